"""Contrastive PCA in the napari window: sample data and a denoising widget.

napari reads ``napari.yaml`` and imports the rest when it is needed.
"""

from contrast_core import __version__ as __version__
