"""Contrastive latent variable models of the cells of an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from contrast_core import CLVM

from .. import _keys, _read, _write
from .._arguments import is_word, quoted
from .._docs import documented
from .._read import WithinDesign

if TYPE_CHECKING:
    from anndata import AnnData


@documented
def clvm(
    adata: AnnData,
    *,
    n_comps: int = 2,
    n_shared: int = 2,
    sparsity: Literal["auto", "horseshoe"] | float | None = None,
    ard: bool = False,
    robust: Literal["entries", "rows"] | None = None,
    inference: Literal["em", "vi"] = "em",
    likelihood: Literal["normal", "counts"] = "normal",
    n_init: int = 1,
    max_iter: int = 3000,
    device: Any = None,
    key_added: str | None = None,
    random_state: int | None = 0,
    **design: Unpack[WithinDesign],
) -> AnnData | None:
    """Contrastive latent variable model: what cells of both sets share, and what is salient.

    Foreground cells are `x = S z + W t + mean + noise`, background cells have no t: the shared
    latent variables z explain what varies in both sets; the salient ones t, what only the
    foreground has, keep and sharpen the difference between conditions. S, W and the noise variance
    maximise the likelihood of all these cells [1]_; there is no contrast strength to choose. All
    cells of `adata` are embedded, as posterior means of t and of z, also those in neither set.
    Cells in both sets, as the reference cells are by default, count in both.

    Values may be missing, as NaN in a dense layer: the likelihood is then that of what each cell
    has observed. With `robust` wrong values or bad cells count for less. With
    `likelihood="counts"` the model is of raw counts.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of salient latent dimensions.
    n_shared
        Number of shared latent dimensions. What the background has beyond them counts as noise.
    sparsity
        Salient loadings of few genes: `"auto"` chooses the strength of a penalty on genes by the
        Bayesian information criterion, a number is that strength, in units of the log-likelihood;
        `"horseshoe"` takes the genes that this prior does not shrink away; see
        `contrast_core.CLVM`. It needs a matrix of genes by genes: for a few thousand.
    ard
        Keep only as many of the `n_shared` dimensions as add enough. Meant for noise of the same
        variance in all genes, which those of cells is not: there it tends to keep them all.
    robust
        Student's t instead of the normal distribution: of the noise of each value (`"entries"`),
        where single values are wrong, or of each cell (`"rows"`), where whole cells are; see
        `contrast_core.CLVM`. The cells in use are held in memory, dense, but with
        `inference="vi"`.
    inference
        Expectation maximisation (`"em"`), or stochastic variational inference with torch (`"vi"`),
        on minibatches of cells that alone are dense: for raw counts, and for robust fits to data
        larger than memory. Slower and less exact where both can be had.
    likelihood
        `"counts"`, with `inference="vi"`: negative binomial, of raw counts in `layer`, with each
        cell's total over the genes in use for its size. Loadings and means are then of logarithms
        of rates.
    n_init
        Starts, of which the most likely solution is kept; all but the first are random.
    max_iter
        Steps, at most; passes over the cells with `inference="vi"`.
    device
        Where torch computes with `inference="vi"`, such as `"cuda"`; the processor by default.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_clvm`, `PCs_clvm` and
        `clvm`.
    {COPY}
    random_state
        Seed of all that is random: starts beyond the first, minibatches with `inference="vi"`.
    {PROGRESS}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_clvm' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: posterior means of the salient latent variables.
    `.obsm['X_clvm_shared' | key_added + '_shared']` : `ndarray` (shape `(n_obs, n_shared)`)
        Posterior means of the shared latent variables, of every cell as of one of the foreground.
    `.varm['PCs_clvm' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The salient loadings W: orthogonal columns, zero for genes outside `mask_var` and for those
        that `sparsity` leaves out.
    `.varm['PCs_clvm_shared' | key_added + '_shared']` : `ndarray` (shape `(n_vars, n_shared)`)
        The shared loadings S, likewise. With `obsm` in `.uns[...]['shared_loadings']`. With `ard`
        of the columns that are kept.
    `.varm['PCs_clvm_filters' | key_added + '_filters']` : `ndarray` (shape `(n_vars, n_comps)`)
        What gives the salient scores of any cell: `(x - mean) @ filters`. Not with
        `robust="entries"` or `likelihood="counts"`, whose scores are not linear:
        `scanpy_ext.tl.project` and `scanpy_ext.tl.denoise` then refuse.
    `.uns['clvm' | key_added]['noise_variance']` : `float`
        Variance of the noise; not with `likelihood="counts"`.
    `.var['clvm_dispersion' | key_added + '_dispersion']` : `float`
        With `likelihood="counts"`, the dispersion of each gene; zero for genes not in use.
    `.uns['clvm' | key_added]['log_likelihoods' | 'elbo']` : `ndarray`
        Log-likelihood at the start and after each step of the fit; with `inference="vi"` its
        variational lower bound, at the start, after each pass and at the end.
    `.uns['clvm' | key_added]['converged']` : `bool`
        Whether it has settled.
    {KEPT}
    {MEANS}

    Raises
    ------
    {RAISES}
        Here NaN is a missing value, but in sparse matrices and in backed or dask-backed data; with
        `within` nothing may be missing, and `robust` and `inference="vi"` are not available.

    Notes
    -----
    {EXPECTS}
    With `likelihood="counts"`, give raw counts instead.

    References
    ----------
    .. [1] Severson, Ghosh, Ng (2019). Unsupervised learning with contrastive latent variable
       models. AAAI. arXiv:1811.06094.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.clvm(adata, groupby="condition", reference="ctrl", n_shared=1)
    >>> adata.obsm["X_clvm"].shape, adata.obsm["X_clvm_shared"].shape
    ((60, 2), (60, 1))
    """
    keys = _keys.CLVM.added(key_added)
    shared = keys.shared()
    counts, variational = is_word(likelihood, "counts"), is_word(inference, "vi")
    if device is not None and not variational:
        raise ValueError(
            f"device={quoted(device)} is for inference='vi'; otherwise the processor computes. "
            "Leave device out, or give inference='vi'."
        )
    data = _read.read(adata, n_comps=n_comps, missing=not counts, counts=counts, **design)
    model = CLVM(
        n_shared=n_shared,
        n_salient=n_comps,
        sparsity=sparsity,
        ard=ard,
        robust=robust,
        inference=inference,
        likelihood=likelihood,
        n_init=n_init,
        max_iter=max_iter,
        device=device,
        random_state=random_state,
        progress=design.get("progress", False) if variational else False,
    )
    model.fit(data.foreground, background=data.background, **data.groups)
    result = {
        "params": data.params
        | _write.storable(
            n_shared=n_shared,
            sparsity=sparsity,
            ard=ard,
            robust=robust,
            inference=inference,
            likelihood=likelihood,
            n_init=n_init,
            max_iter=max_iter,
            device=None if device is None else str(device),
            random_state=random_state,
        ),
        "converged": model.converged_,
        "foreground_variance": model.foreground_variance_,
        "background_variance": model.background_variance_,
    }
    result |= {"elbo": model.elbo_} if variational else {"log_likelihoods": model.log_likelihoods_}
    if counts:
        result["dispersion"] = model.dispersions_
    else:
        result["noise_variance"] = float(model.noise_variance_)
    if data.features is None:
        result["shared_loadings"] = model.shared_loadings_
    loadings = model.salient_loadings_
    filters = None if counts or robust == "entries" else model.projection_
    slots = data.slots(keys, model, result, loadings=loadings, filters=filters)
    latent = model.transform_shared(data.matrix, groups=data.within)
    slots["obsm"][shared.obsm] = data.as_precise(latent)
    if data.features is not None:
        whole = _read.of_all_genes(model.shared_loadings_, data.features)
        slots["varm"][shared.varm] = whole
    return _write.write(adata, **slots, copy=data.copy)
