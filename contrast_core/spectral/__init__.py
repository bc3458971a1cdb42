"""Contrastive methods based on eigenvectors, for rows, kernels, streams and positive pairs."""

from contrast_core._linear_map import LinearMap
from contrast_core.spectral._cpca import CPCA
from contrast_core.spectral._cpca_star import CPCAStar
from contrast_core.spectral._kernel_cpca import Kernel, KernelCPCA
from contrast_core.spectral._online_cpca_star import OnlineCPCAStar
from contrast_core.spectral._pca_plus import PCAPlus
from contrast_core.spectral._pca_pp import PCAPlusPlus
from contrast_core.spectral._penalty import PenaltyChoice, cross_validated_penalty
from contrast_core.spectral._sparse_cpca import SparseCPCA

__all__ = [
    "CPCA",
    "CPCAStar",
    "Kernel",
    "KernelCPCA",
    "LinearMap",
    "OnlineCPCAStar",
    "PCAPlus",
    "PCAPlusPlus",
    "PenaltyChoice",
    "SparseCPCA",
    "cross_validated_penalty",
]
