"""Drawn scenes: a data set that needs no download, because the package draws its pictures itself."""

from ipseg.data.scenes.classes import class_names, look_alike
from ipseg.data.scenes.draw import Scene

__all__ = ["Scene", "class_names", "look_alike"]  # `draw` stays in its module: here it would hide the module's own name
