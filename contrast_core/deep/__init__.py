"""Contrastive methods with neural networks; torch is imported only when it is needed."""

from contrast_core.deep._cvae import CVAE

__all__ = ["CVAE"]
