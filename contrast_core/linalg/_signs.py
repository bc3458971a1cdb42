"""The one sign rule."""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray


def fix_signs(components: FloatArray) -> FloatArray:
    """Return the rows with the entry of largest magnitude made positive.

    Among entries that tie to rounding, the first decides, so that the sign does not hang on the
    last bit.
    """
    if not components.size:
        return components
    magnitude = np.abs(components)
    largest = magnitude.max(axis=1, keepdims=True)
    decisive = np.argmax(magnitude >= (1 - 1e-8) * largest, axis=1)
    negative = components[np.arange(len(components)), decisive] < 0
    return np.where(negative[:, None], -components, components)
