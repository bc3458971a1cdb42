"""Contrastive methods that fit a probability density to the data."""

from contrast_core.probabilistic._clvm import CLVM
from contrast_core.probabilistic._factor_model import FactorModel
from contrast_core.probabilistic._pcpca import PCPCA

__all__ = ["CLVM", "PCPCA", "FactorModel"]
