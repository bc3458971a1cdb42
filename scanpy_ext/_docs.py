"""The parameters that functions share, described once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

CELLS = """\
groupby
    Column of `adata.obs` that tells the groups apart, as in `sc.tl.rank_genes_groups`. Cells
    without a value (NaN) are in neither the foreground nor the background.
reference
    The level of `groupby` whose cells are the background.
groups
    The level or levels of `groupby` that are pooled into the foreground. All levels but
    the reference by default.
include_reference
    Whether the reference cells are part of the foreground too. With `True` (the default)
    the shift *between* the groups and the reference is in the foreground, and is found;
    with `False` only what varies *within* the groups is.
foreground, background
    Any other design, instead of `groupby` and `reference`: a boolean mask of shape
    `(n_obs,)` each, or the name of a boolean column of `adata.obs`. The two may overlap.
    A missing value counts as `False`."""

PAIRING = """\
condition
    Column of `adata.obs` that tells the conditions apart. Cells without a value are not paired.
reference
    The level of `condition` of the control cells. The cells of all other levels are the
    stimulated ones, pooled.
donor
    Column of `adata.obs` with the donor (animal, culture, ...): pairs are formed within donors
    only. Cells without a value are not paired. `None` takes all cells for one donor's."""

DATA = """\
layer
    Use `adata.layers[layer]` instead of `adata.X`.
mask_var
    The genes to use: a boolean mask of shape `(n_vars,)`, the name of a boolean column of
    `adata.var`, or `None` for all genes. By default `"highly_variable"` if `adata.var` has
    that column, else all, as in `sc.pp.pca`."""

COPY = """\
copy
    Return an updated copy and leave `adata` as it is."""

EXPECTS = """\
The values are centred, never scaled: give log-normalised counts. Which genes are used
matters more than the method. Selecting genes by their plain variance keeps a difference between
conditions that scanpy's highly variable genes (variance corrected for the mean) often drop.

Dense, CSR and CSC matrices and views are read as they are: nothing is densified, and `adata.X`
never changes. If anything fails, `adata` is left untouched."""

RAISES = """\
ValueError
    If a column, group, layer or gene mask does not exist, selects nothing, or has the wrong
    length; if both calling styles are given, or neither; if there are NaN or infinite values.
TypeError
    If a mask is not boolean, or the matrix is not in memory."""


def documented(function: F) -> F:
    """Fill the texts above into a docstring, where it says `{CELLS}` and so on."""
    doc = function.__doc__
    if doc is not None:  # it is None under python -OO
        texts = {
            "CELLS": CELLS,
            "PAIRING": PAIRING,
            "DATA": DATA,
            "COPY": COPY,
            "EXPECTS": EXPECTS,
            "RAISES": RAISES,
        }
        for name, text in texts.items():
            doc = doc.replace(f"{{{name}}}", text.replace("\n", "\n    "))
        function.__doc__ = doc
    return function
