"""The parameters that functions share, described and written out once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

from ._logging import logged
from ._signature import written_out

F = TypeVar("F", bound=Callable[..., object])

CELLS = """\
groupby
    Column of `adata.obs` that tells the groups apart, as in `sc.tl.rank_genes_groups`. Cells
    without a value (NaN) are in neither the foreground nor the background.
reference
    The level or levels of `groupby` whose cells are the background, pooled.
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
    A missing value counts as `False`. The background may also be all cells of another AnnData
    with the genes of `adata` in the same order; the foreground is then the mask, or every cell.
    A layer or embedding that is asked for must be in both."""

WITHIN = """\
within
    Column of `adata.obs` with the donor, animal or batch of every cell. The contrast is then of
    what varies *within* donors: each cell counts about its donor's mean in its set, and its scores
    are centred by its donor, in `.uns[...]['within_groups' | 'within_scores']`, for
    `scanpy_ext.tl.project`. What donors differ by is no finding any more."""

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

OBSM = """\
obsm
    Use the embedding `adata.obsm[obsm]` instead of genes: the contrast is then taken among its
    dimensions. There are no loadings on genes; those on the dimensions go to `.uns`."""

PROGRESS = """\
progress
    Show a progress bar while the cells are read: `True` for tqdm's, or a callable such as tqdm.
    A dask array is read without one: use dask's own."""

KEPT = """\
`.uns['<NAME>' | key_added]['foreground_variance' | 'background_variance']` : `ndarray` \
(shape `(n_comps,)`)
    Variance of the foreground and of the background cells along each component.
`.uns['<NAME>' | key_added]['n_foreground' | 'n_background']` : `int`
    Number of cells.
`.uns['<NAME>' | key_added]['params']` : `dict`
    The arguments that were given."""

MEANS = """\
`.var['<NAME>_in_use' | key_added + '_in_use']` : `bool`
    The genes in use.
`.var['<NAME>_mean' | ...]`, `.var['<NAME>_background_mean' | ...]` : `float`
    Means of the foreground and of the background cells, zero for genes not in use. With them
    `scanpy_ext.tl.project` embeds new cells and `scanpy_ext.tl.denoise` reconstructs these. With
    `obsm` they are in `.uns['<NAME>' | key_added]['mean' | 'background_mean']`.
`.uns['<NAME>' | key_added]['loadings']` : `ndarray` (shape `(n_dimensions, n_comps)`)
    With `obsm` only, instead of those in `.varm`: loadings on the dimensions of the embedding."""

FIGURE = """\
ax
    Axes to draw into, as many as there are panels, instead of a figure of their own.
figsize
    Width and height of the figure in inches. By default by the panels and the size of fonts.
show
    Whether to show the figure. By default as scanpy is set, and not if it is saved or with `ax`.
save
    `True` or text such as `"_kang.png"`, which is appended to the name of the function, saves the
    figure in `sc.settings.figdir`, as in scanpy, in the format `sc.settings.file_format_figs` if
    the text names none. A path object, or text with a folder, is the file itself. The figure is
    closed afterwards, unless it is shown or returned.
return_fig
    Return the figure."""

COPY = """\
copy
    Return an updated copy and leave `adata` as it is."""

LOADED = """\
The matrix of a backed AnnData is read in blocks of rows (a CSC matrix in blocks of genes), a dask
array chunk by chunk, and nothing but these cells and genes is kept. If anything fails, `adata` is
left untouched."""

EXPECTS = """\
The values are centred, never scaled: give log-normalised counts. Which genes are used
matters more than the method. Selecting genes by their plain variance keeps a difference between
conditions that scanpy's highly variable genes (variance corrected for the mean) often drop.

Dense, CSR and CSC matrices and views are read as they are: nothing is densified, and `adata.X`
never changes. The matrix of a backed AnnData is read in blocks of rows, a dask array by its own
scheduler, chunk by chunk; of a CSC matrix in a file the genes in use are held in memory, for it
cannot be read by rows. If anything fails, `adata` is left untouched."""

RAISES = """\
ValueError
    If a column, group, layer or gene mask does not exist, selects nothing, or has the wrong
    length; if both calling styles are given, or neither; if there are NaN or infinite values.
TypeError
    If a mask is not boolean, or the matrix is of an unknown kind."""


def documented(function: F) -> F:
    """Fill the texts above into a docstring, where it says `{CELLS}` and so on.

    The signature of a function that takes ``**design`` gets the parameters that this stands for.
    """
    if function.__doc__ is not None:  # it is None under python -OO
        doc = inspect.cleandoc(function.__doc__)  # as Python 3.13 and newer compile it already
        texts = {
            "CELLS": CELLS,
            "WITHIN": WITHIN,
            "PAIRING": PAIRING,
            "DATA": DATA,
            "OBSM": OBSM,
            "PROGRESS": PROGRESS,
            "KEPT": KEPT,
            "MEANS": MEANS,
            "COPY": COPY,
            "FIGURE": FIGURE,
            "LOADED": LOADED,
            "EXPECTS": EXPECTS,
            "RAISES": RAISES,
        }
        for name, text in texts.items():
            doc = doc.replace(f"{{{name}}}", text)
        doc = doc.replace("<NAME>", function.__name__)
        function.__doc__ = doc
    function = written_out(function)
    return logged(function) if "copy" in inspect.signature(function).parameters else function
