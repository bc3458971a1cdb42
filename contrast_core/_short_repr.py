"""Short text representation of results, in which large arrays are shown by their shape."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

_FEW = 10  # arrays with at most this number of entries are printed in full


class ShortRepr:
    """Base class of dataclasses whose arrays are too large to print.

    These dataclasses are declared with ``repr=False``, so that they inherit this representation.
    """

    def __repr__(self) -> str:
        shown: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in fields(self)  # type: ignore[arg-type]
            if field.repr
        }
        lines = [f"    {name}={_shown(value)}," for name, value in shown.items()]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.ndim == 1 and len(value) <= _FEW:
            return np.array2string(value, precision=4, separator=", ", max_line_width=200)
        return f"<array of shape {value.shape}>"
    text = repr(value)
    return text if "\n" not in text and len(text) <= 200 else f"<{type(value).__name__}>"
