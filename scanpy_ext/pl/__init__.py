"""Plots of results of `scanpy_ext.tl` and `scanpy_ext.pp`.

Most plots have the name of the function whose result they show.
"""

from ._contrast_check import contrast_check
from ._contrasts import contrasts
from ._cpca_path import contrast_curve, cpca_path
from ._cvae import cvae
from ._loadings import loadings
from ._match_pairs import match_pairs
from ._significance import significance

__all__ = [
    "contrast_check",
    "contrast_curve",
    "contrasts",
    "cpca_path",
    "cvae",
    "loadings",
    "match_pairs",
    "significance",
]
