"""What torch's networks fit; torch is imported only once it is needed."""

from contrast_core.deep._cvae import CVAE

__all__ = ["CVAE"]
