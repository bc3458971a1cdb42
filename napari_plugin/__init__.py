"""Contrastive PCA in the napari window: sample data and a denoising widget.

napari reads the manifest ``napari.yaml`` and imports the other modules when they are needed.
"""

from contrast_core import __version__ as __version__
