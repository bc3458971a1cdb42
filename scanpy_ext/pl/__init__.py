"""Plots of what `scanpy_ext.tl` wrote. scanpy and matplotlib are imported when first used."""

from ._contrast_check import contrast_check
from ._contrast_curve import contrast_curve
from ._loadings import loadings
from ._pairs import pairs
from ._path import path
from ._scree import scree
from ._training import training

__all__ = ["contrast_check", "contrast_curve", "loadings", "pairs", "path", "scree", "training"]
