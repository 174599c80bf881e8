"""Class-incremental semantic segmentation: IPSeg and its field."""
