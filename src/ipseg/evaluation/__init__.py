"""How good it is: confusion matrix, mIoU groups, forgetting, image-level accuracy."""
