"""Contrastive PCA over a whole range of contrast strengths."""

from contrast_core.path._contrast_path import ContrastPath, contrast_path

__all__ = ["ContrastPath", "contrast_path"]
