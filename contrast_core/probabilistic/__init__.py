"""Methods with a density: what the data are likely to be, not only where they vary."""

from contrast_core.probabilistic._clvm import CLVM
from contrast_core.probabilistic._factor_model import FactorModel
from contrast_core.probabilistic._pcpca import PCPCA

__all__ = ["CLVM", "PCPCA", "FactorModel"]
