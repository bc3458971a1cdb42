"""Fit PCA+ and PCA++ to positive pairs of cells."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from anndata import AnnData

from contrast_core import PCAPlus, PCAPlusPlus
from contrast_core.contrast import effective_n_pairs
from contrast_core.feedback import check_flag, muted
from contrast_core.pairing import scaled_features
from contrast_core.rows import load_into_memory

from .. import _keys, _pairs, _read, _select, _values, _write
from .._arguments import storable
from .._docs import documented
from .._stored import fit_table


@documented
def pca_pp(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: _select.Level | None = None,
    donor: str | None = None,
    pairs: str | None = None,
    n_comps: int = 20,
    scale: bool = True,
    truncation: Literal["auto"] | int | float | None = "auto",
    exchangeable: bool = True,
    weighted: bool = True,
    layer: str | None = None,
    mask_var: _select.Mask | _select.Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """PCA++: components that cells share with their partners under the other condition.

    PCA++ removes the difference between conditions. Its directions maximise the alignment of the
    pairs under the constraint that the scores are uncorrelated with unit variance. They solve
    `S+ v = lambda S v`, where S is the covariance of the paired cells, and S+ is the symmetrised
    covariance between the two cells of a pair [1]_. Scores are then weighted by lambda, so that
    directions on which the partners disagree have little weight. All cells of `adata` are embedded,
    even cells without a pair.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {PAIRING}
        If `groupby` and `reference` are given, pairs are found with the defaults of
        `scanpy_ext.pp.match_pairs` and stored. Otherwise stored pairs are used.
    pairs
        Name of the pairs in `.obsp`; the default is `pairs`. Give the `key_added` of
        `scanpy_ext.pp.match_pairs`, or the name of any matrix of your own, of shape
        `(n_obs, n_obs)`, with a nonzero entry for each pair.
    n_comps
        Number of components. The paper uses 50.
    scale
        Divide each gene by its standard deviation over all cells, and cap values at 10 standard
        deviations above the mean.
    truncation
        Number of principal directions of the paired cells to keep; see
        `contrast_core.PCAPlusPlus`.
    exchangeable
        Treat the two cells of a pair alike. A shift between the conditions then counts as
        disagreement of the partners, and is suppressed. `False` with `weighted=False` is the form
        of the paper, which mixes the conditions less.
    weighted
        Weight the scores by lambda. Without weights, the scores of each component have unit
        variance over the paired cells.
    {DATA}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_pca_pp`, `PCs_pca_pp` and
        `pca_pp`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_pca_pp' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding.
    `.varm['PCs_pca_pp' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The loadings (patterns): the correlation of each gene with each component over the paired
        cells, computed from the truncated covariance. With `scale=False`, loadings are covariances
        instead. Genes that are not in use have zeros.
    `.varm['PCs_pca_pp_fit' | key_added + '_fit']` : `DataFrame` (a row per gene)
        The columns `mean`, `cap` (infinite if values are not capped) and `filter_1`, `filter_2`,
        ..., which give the scores of any cell x: `(min(x, cap) - mean) @ filters`. Genes that are
        not in use have NaN.
    `.uns['pca_pp' | key_added]['eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Lambda: the correlation of the partners along each direction.
    `.uns['pca_pp' | key_added]['detectable']` : `ndarray` of `bool` (shape `(n_comps,)`)
        Whether this number of pairs suffices, in theory, to detect the component. With
        `weighted=True`, components that cannot be detected do no harm, because their weight is
        small.
    `.uns['pca_pp' | key_added]['truncation']` : `int`
        Number of principal directions that were kept.
    `.uns['pca_pp' | key_added]['n_pairs']` : `int`
        Number of pairs.
    `.uns['pca_pp' | key_added]['n_effective']` : `float`
        Effective number of pairs (Kish's formula), since a cell can be in several pairs.
    `.uns['pca_pp' | key_added]['params']` : `dict`
        The arguments that were given.

    With `groupby`, the fields of `scanpy_ext.pp.match_pairs` are also set, under the name `pairs`.

    Raises
    ------
    ValueError
        If there are no pairs, a column, level, layer or gene mask does not exist, or there are NaN
        or infinite values.
    TypeError
        If a mask is not boolean, or the matrix is of an unknown kind.

    Warns
    -----
    contrast_core.ContrastWarning
        If the largest lambda is below 0.5, which is a sign of bad pairs (see
        `scanpy_ext.pl.match_pairs`). There is also a warning if the values look like raw counts,
        or if so few directions stand out of the noise that the components span the same space as
        those of PCA.

    Notes
    -----
    The values of all cells in the genes in use are held in memory twice: as they were read, and
    scaled. The values of the paired cells are held once more. Sparse matrices stay sparse, because
    means are subtracted implicitly. {LOADED}

    References
    ----------
    .. [1] PCA++: How uniformity induces robustness to background noise in contrastive learning,
       eq. 4.1. The exchangeable form and the weights are additions.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(size=(200, 12))
    >>> values[:, :3] *= 5
    >>> adata = anndata.AnnData(values)
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 100
    >>> cx.tl.pca_pp(adata, groupby="condition", reference="ctrl", n_comps=2, scale=False)
    >>> adata.obsm["X_pca_pp"].shape, adata.varm["PCs_pca_pp"].shape
    ((200, 2), (12, 2))
    """
    model = PCAPlusPlus(
        n_comps, truncation=truncation, exchangeable=exchangeable, weighted=weighted
    )
    return _fitted(
        adata,
        "pca_pp",
        model,
        groupby,
        reference,
        donor,
        pairs,
        scale,
        layer,
        mask_var,
        key_added,
        copy,
    )


@documented
def pca_plus(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: _select.Level | None = None,
    donor: str | None = None,
    pairs: str | None = None,
    n_comps: int = 20,
    scale: bool = True,
    exchangeable: bool = True,
    layer: str | None = None,
    mask_var: _select.Mask | _select.Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """PCA+: PCA of the variation that cells share with partners under the other condition.

    PCA+ removes the difference between conditions if it is not strong. For strong differences, use
    `scanpy_ext.tl.pca_pp`. The components are the leading eigenvectors of the symmetrised
    covariance between the two cells of a pair [1]_. All cells of `adata` are embedded, even cells
    without a pair.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {PAIRING}
        If `groupby` and `reference` are given, pairs are found with the defaults of
        `scanpy_ext.pp.match_pairs` and stored. Otherwise stored pairs are used.
    pairs
        Name in `.obsp` of the stored pairs to use, or of the pairs that are found now. The default
        is `pairs`.
    n_comps
        Number of components. The paper uses 50.
    scale
        Divide each gene by its standard deviation over all cells, and cap values at 10 standard
        deviations above the mean.
    exchangeable
        Treat the two cells of a pair alike. A shift between the conditions then counts as
        disagreement of the partners, and is suppressed. `False` is the form of the paper.
    {DATA}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_pca_plus`,
        `PCs_pca_plus` and `pca_plus`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_pca_plus' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding.
    `.varm['PCs_pca_plus' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings), with orthonormal columns. Genes that are not in use have zeros.
    `.varm['PCs_pca_plus_fit' | key_added + '_fit']` : `DataFrame` (a row per gene)
        The columns `mean`, `cap` (infinite if values are not capped) and `filter_1`, `filter_2`,
        ..., which give the scores of any cell x: `(min(x, cap) - mean) @ filters`. Genes that are
        not in use have NaN.
    `.uns['pca_plus' | key_added]['eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        The variance that partners share along each component.
    `.uns['pca_plus' | key_added]['n_pairs']` : `int`
        Number of pairs.
    `.uns['pca_plus' | key_added]['n_effective']` : `float`
        Effective number of pairs (Kish's formula), since a cell can be in several pairs.
    `.uns['pca_plus' | key_added]['params']` : `dict`
        The arguments that were given.

    With `groupby`, the fields of `scanpy_ext.pp.match_pairs` are also set, under the name `pairs`.

    Raises
    ------
    ValueError
        If there are no pairs, a column, level, layer or gene mask does not exist, or there are NaN
        or infinite values.
    TypeError
        If a mask is not boolean, or the matrix is of an unknown kind.

    Warns
    -----
    contrast_core.ContrastWarning
        If the values look like raw counts.

    Notes
    -----
    The values of all cells in the genes in use are held in memory twice: as they were read, and
    scaled. The values of the paired cells are held once more. Sparse matrices stay sparse, because
    means are subtracted implicitly. {LOADED}

    References
    ----------
    .. [1] PCA++: How uniformity induces robustness to background noise in contrastive learning,
       eq. 3.3. The exchangeable form is an addition.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(200, 12)))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 100
    >>> cx.tl.pca_plus(adata, groupby="condition", reference="ctrl", n_comps=2)
    >>> adata.obsm["X_pca_plus"].shape
    (200, 2)
    """
    model = PCAPlus(n_comps, exchangeable=exchangeable)
    return _fitted(
        adata,
        "pca_plus",
        model,
        groupby,
        reference,
        donor,
        pairs,
        scale,
        layer,
        mask_var,
        key_added,
        copy,
    )


def _fitted(
    adata: AnnData,
    method: str,
    model: PCAPlus | PCAPlusPlus,
    groupby: str | None,
    reference: _select.Level | None,
    donor: str | None,
    key: str | None,
    scale: bool,
    layer: str | None,
    mask_var: _select.Mask | _select.Default | None,
    key_added: str | None,
    copy: bool,
) -> AnnData | None:
    """Find or read the pairs, fit the model to them, embed all cells, and write the result."""
    keys = _write.reserve(adata, copy, method, key_added)
    check_flag(scale, "scale")
    n_comps = model.n_components
    matrix, mask, params = _read.read_matrix(adata, layer=layer, mask_var=mask_var, n_comps=n_comps)
    features = cast("_select.BoolArray", mask)  # the mask is None only if obsm is read
    if groupby is None and (reference is not None or donor is not None):
        raise ValueError(
            "groupby is missing: give groupby= and reference= (and donor=) to find pairs, or none "
            "of them to use stored pairs."
        )
    key = "pairs" if key is None else _keys.checked(key, "pairs")
    results: list[_write.Result] = []
    if groupby is None:
        pairs = _pairs.stored(adata, key)
        matrix = load_into_memory(matrix)
        _values.warn_of_counts(matrix)
    else:
        matrix = load_into_memory(matrix)
        results.append(_pairs.find(adata, matrix, groupby, reference, donor, key, params))
        pairs = results[0].slots["obsp"][key]
    stimulated, control = pairs.nonzero()
    n_effective = effective_n_pairs(stimulated, control)
    if scale:
        values, cap, factors = scaled_features(matrix)
    else:
        n_features = matrix.shape[1]
        values, cap, factors = matrix.load(), np.full(n_features, np.inf), np.ones(n_features)

    sides: dict[str, Any] = {"X": values[stimulated], "positive": values[control]}
    entry: dict[str, Any]
    if isinstance(model, PCAPlusPlus):
        with muted(r"components are too weak"):  # `detectable` names the weak ones
            model.fit(**sides, n_effective=n_effective)
        loadings, eigenvalues = model.patterns_, model.generalized_eigenvalues_
        entry = {"detectable": model.detectable_, "truncation": int(model.truncation_)}
    else:
        model.fit(**sides)
        loadings, eigenvalues, entry = model.components_, model.alignment_, {}
    mean = np.divide(model.mean_, factors, out=np.zeros_like(factors), where=factors > 0)
    filters = model.projection_ * factors[:, None]
    given = storable(**model.get_params(), pairs=key, scale=scale)
    entry |= {
        "eigenvalues": eigenvalues,
        "n_pairs": len(control),
        "n_effective": n_effective,
        "params": params | {name: given[name] for name in given if name != "n_components"},
    }
    kind = np.float32 if matrix.dtype == np.float32 else np.float64
    slots = {
        "obsm": {keys.obsm: np.asarray(model.transform(values), kind)},
        "varm": {
            keys.varm: _read.on_all_genes(loadings.T, features),
            keys.fit: fit_table(adata.var_names, features, filters, mean=mean, cap=cap),
        },
    }
    return _write.write(adata, *results, _write.Result(keys.uns, entry, slots), copy=copy)
