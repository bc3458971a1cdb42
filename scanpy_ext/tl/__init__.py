"""Tools: compute a contrast and write it into the AnnData."""

from ._clvm import clvm
from ._contrasts import contrasts
from ._cpca import cpca
from ._cpca_path import cpca_path
from ._cpca_star import cpca_star
from ._cvae import cvae
from ._denoise import denoise
from ._impute import impute
from ._kernel_cpca import kernel_cpca
from ._pca_pp import pca_plus, pca_pp
from ._pcpca import pcpca
from ._project import project
from ._response import response
from ._significance import significance

__all__ = [
    "clvm",
    "contrasts",
    "cpca",
    "cpca_path",
    "cpca_star",
    "cvae",
    "denoise",
    "impute",
    "kernel_cpca",
    "pca_plus",
    "pca_pp",
    "pcpca",
    "project",
    "response",
    "significance",
]
