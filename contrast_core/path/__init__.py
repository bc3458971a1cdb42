"""The whole range of contrasts at once."""

from contrast_core.path._contrast_path import ContrastPath, contrast_path

__all__ = ["ContrastPath", "contrast_path"]
