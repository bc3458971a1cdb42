"""Tools: compute a contrast and write it into the AnnData."""

from ._cpca import cpca
from ._cpca_path import cpca_path
from ._pca_pp import pca_plus, pca_pp

__all__ = ["cpca", "cpca_path", "pca_plus", "pca_pp"]
