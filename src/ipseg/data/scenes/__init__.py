"""Drawn scenes: a data set that needs no download, because the package draws its images itself."""
