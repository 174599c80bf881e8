"""Where pixels come from: data sets, saliency, replay memory, augmentation, batches."""
