"""What torch's networks fit: the only place that imports torch.nn, and only once it is needed."""

from contrast_core.deep._cvae import CVAE

__all__ = ["CVAE"]
