"""Tools: compute a contrast and write it into the AnnData."""

from ._cpca_path import cpca_path
from ._kernel_cpca import kernel_cpca
from ._latent import clvm, cvae
from ._layers import denoise, impute
from ._linear import cpca, cpca_star, pcpca
from ._pca_pp import pca_plus, pca_pp
from ._project import project
from ._responses import contrasts, response
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
