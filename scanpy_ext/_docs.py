"""Descriptions of the parameters that functions share."""

from __future__ import annotations

import inspect

from ._logging import F, logged

_TEXTS = {
    "CELLS": """\
groupby
    Column of `adata.obs` with the groups, as in `sc.tl.rank_genes_groups`. Cells without a value
    (NaN) are in neither the foreground nor the background.
reference
    The level or levels of `groupby` whose cells are the background, pooled.
groups
    The level or levels of `groupby` whose cells are in the foreground. By default, these are all
    levels other than `reference`. The foreground always holds the cells of `reference` too, so
    that it contains the difference between the groups and the reference.
foreground, background
    The two sets of cells. Give them instead of `groupby` and `reference`. Each is a boolean mask of
    shape `(n_obs,)`, or the name of a boolean column of `adata.obs`; a missing value counts as
    `False`. The two sets may overlap. If the background's cells are not in the foreground, the
    contrast shows variation *within* the foreground, but not the difference between the two sets.
    The background may also be another AnnData that has the genes of `adata` in the same order. All
    cells of that AnnData are then the background, and all cells of `adata` are the foreground
    unless a mask `foreground` is given.""",
    "WITHIN": """\
within
    Column of `adata.obs` with the donor, animal or batch of every cell. The contrast then
    compares variation *within* donors, and ignores differences between donors. In each of the two
    sets, each donor's cells are centred by their own mean. From the scores of a donor's cells, the
    mean score of its foreground cells is subtracted. If the foreground contains the background,
    only donors with cells both in the background and outside of it show the difference between the
    two sets.""",
    "PAIRING": """\
groupby
    Column of `adata.obs` with the conditions. Cells without a value are not paired.
reference
    The level of `groupby` of the control cells. The cells of all other levels are the
    stimulated ones, pooled.
donor
    Column of `adata.obs` with the donor (animal, culture, ...): pairs are formed within donors
    only. Cells without a value are not paired. With `None`, all cells count as cells of one
    donor.""",
    "DATA": """\
layer
    Use `adata.layers[layer]` instead of `adata.X`.
mask_var
    The genes to use: a boolean mask of shape `(n_vars,)`, the name of a boolean column of
    `adata.var`, or `None` for all genes. By default `"highly_variable"` if `adata.var` has
    that column, else all, as in `sc.pp.pca`.""",
    "OBSM": """\
obsm
    Use the embedding `adata.obsm[obsm]` instead of genes. Its dimensions take the place of genes,
    and the results that would be in `.varm` are in `.uns[...]['loadings' | 'fit']`.""",
    "KEPT": """\
`.uns['<NAME>' | key_added]['foreground_variance' | 'background_variance']` : `ndarray` \
(shape `(n_comps,)`)
    Variance of the foreground and of the background cells along each component.
`.uns['<NAME>' | key_added]['n_foreground' | 'n_background']` : `int`
    Number of cells.
`.uns['<NAME>' | key_added]['params']` : `dict`
    The arguments that were given.""",
    "FIT": """\
`.varm['PCs_<NAME>_fit' | key_added + '_fit']` : `DataFrame` (a row per gene)
    The columns that `scanpy_ext.tl.project` and `scanpy_ext.tl.denoise` need: `mean` and
    `background_mean`, the means of the two sets, and `filter_1`, `filter_2`, ..., which give the
    scores of any cell: `(x - mean) @ filters`. Genes that are not in use have NaN.""",
    "FIGURE": """\
ax
    Axes to draw into, one for each panel, instead of a new figure.
figsize
    Width and height of the figure in inches. By default they depend on the number of panels and
    on the font size.
show
    Whether to show the figure. By default scanpy's setting decides; a figure that is saved or drawn
    into `ax` is not shown.
save
    `True` or text such as `"_kang.png"`, which is appended to the name of the function, saves the
    figure in `sc.settings.figdir`, as in scanpy. If the text has no file extension, the format is
    `sc.settings.file_format_figs`. A path object, or text with a folder, is the path of the
    file. The figure is closed afterwards, unless it is shown or returned.
return_fig
    Return the figure.""",
    "COPY": """\
copy
    Return an updated copy and leave `adata` as it is.""",
    "LOADED": """\
The matrix of a backed or lazy AnnData is read in blocks of rows (a CSC matrix in blocks of genes),
and a dask array is read chunk by chunk. Only the cells and genes in use are kept in memory. If
anything fails, `adata` is left untouched.""",
    "EXPECTS": """\
The values are centred, but not scaled to unit variance. Give log-normalised counts. The choice of
genes matters more than the choice of the method. The genes with the largest variance
(`scanpy_ext.pp.genes_by_variance`) keep a difference between conditions. Scanpy's highly variable
genes, whose variance is corrected for the mean, often lose it.

Dense, CSR and CSC matrices and views are read as they are: sparse matrices stay sparse, and
`adata.X` never changes. The matrix of a backed or lazy AnnData is read in blocks of rows, and a
dask array is read chunk by chunk. A CSC matrix in a file cannot be read by rows, so its genes in
use are held in memory. If anything fails, `adata` is left untouched.""",
    "RAISES": """\
ValueError
    If a column, group, layer or gene mask does not exist, selects nothing, or has the wrong
    length. The error is also raised if the cells are chosen both by `groupby` and by masks, or not
    at all, if there are NaN or infinite values, or if a result would replace something that this
    package did not write.
TypeError
    If a mask is not boolean, or the matrix has an unknown type.""",
}


def documented(function: F) -> F:
    """Replace the placeholders in a docstring, such as `{CELLS}`, by the texts above.

    A function with the parameter `copy` is also wrapped to log its start and duration.
    """
    if function.__doc__ is not None:  # it is None under python -OO
        doc = inspect.cleandoc(function.__doc__)  # Python 3.13 and newer do this already
        for name, text in _TEXTS.items():
            doc = doc.replace(f"{{{name}}}", text)
        doc = doc.replace("<NAME>", function.__name__)
        function.__doc__ = doc
    return logged(function) if "copy" in inspect.signature(function).parameters else function
