"""Tools: compute a contrast and write it into the AnnData."""

from ._cpca import cpca
from ._cpca_path import cpca_path

__all__ = ["cpca", "cpca_path"]
