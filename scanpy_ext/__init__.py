"""Contrastive PCA for AnnData, in scanpy's calling style.

>>> import scanpy_ext as cx
>>> sorted(cx.__all__)
['get', 'pl', 'pp', 'tl']

`cx.pp` checks the choice of cells and genes, and pairs similar cells of two conditions. `cx.tl`
computes results and writes them into the AnnData, `cx.pl` plots them, and `cx.get` returns them as
tables. Each module is imported when it is first used: importing the package alone loads neither
anndata nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from contrast_core import __version__ as __version__

if TYPE_CHECKING:
    from types import ModuleType

    from . import get, pl, pp, tl

__all__ = ["get", "pl", "pp", "tl"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == __name__:
                raise
            raise ModuleNotFoundError(
                f"{__name__}.{name} needs {error.name}, which is not installed. Run "
                "pip install '.[scanpy]' in the folder of the project (its clone or sdist).",
                name=error.name,
            ) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
