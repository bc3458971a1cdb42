"""Contrastive latent variable models and autoencoders of the cells of an AnnData."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

from anndata import AnnData

from contrast_core import CLVM, CVAE, save
from contrast_core.feedback import check_path

from .. import _write
from .._arguments import model_parameters, storable
from .._docs import documented
from .._read import contrast_input, on_all_genes
from .._select import DEFAULT, BoolArray, Default, Levels, Mask, cells


@documented
def clvm(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    n_comps: int = 2,
    n_shared: int = 2,
    noise: Literal["normal", "counts"] = "normal",
    layer: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
    model_kwargs: Mapping[str, Any] | None = None,
) -> AnnData | None:
    """Contrastive latent variable model: separate shared variation from the foreground's own.

    Foreground cells are modelled as `x = S z + W t + mean + noise`, background cells without the
    term `W t`. The shared latent variables z explain what varies in both sets. The salient latent
    variables t explain what varies in the foreground only, so they keep and sharpen the difference
    between conditions. The loadings S and W and the noise variance maximise the likelihood of the
    cells of both sets [1]_.
    There is no contrast strength to choose. All cells of `adata` are embedded as posterior means of
    t and of z, even cells in neither set. Cells in both sets, such as the reference cells by
    default, count in both.

    Values may be missing, as NaN in a dense layer. The likelihood is then computed from the
    observed values of each cell.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of salient latent dimensions.
    n_shared
        Number of shared latent dimensions. Variation of the background beyond them counts as noise.
    noise
        `"normal"` for log-normalised counts, or `"counts"` for raw counts in `layer`. Raw counts
        are modelled by a negative binomial distribution. The size factor of a cell is its total
        count over the genes in use. Loadings and means then refer to the logarithms of the rates,
        and the fit is variational, which needs torch.
    {DATA}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_clvm`, `PCs_clvm` and
        `clvm`.
    {COPY}
    model_kwargs
        Further parameters of `contrast_core.CLVM`. Give `{"robust": "entries"}` if single values
        may be wrong, or `{"robust": "rows"}` if whole cells may be. `{"sparsity": "auto"}` gives
        loadings of few genes, and `{"inference": "vi"}` allows robust fits to data larger than
        memory. Other parameters are `"n_init"`, `"max_iter"`, `"device"`, `"progress"` and
        `"random_state"` (0 by default).

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_clvm' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: posterior means of the salient latent variables.
    `.obsm['X_clvm_shared' | key_added + '_shared']` : `ndarray` (shape `(n_obs, n_shared)`)
        Posterior means of the shared latent variables. Every cell is treated as a foreground cell.
    `.varm['PCs_clvm' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The salient loadings W, with orthogonal columns. Genes outside `mask_var` and genes that
        `sparsity` leaves out have zeros.
    `.varm['PCs_clvm_shared' | key_added + '_shared']` : `ndarray` (shape `(n_vars, n_shared)`)
        The shared loadings S, with zeros for the same genes.
    `.uns['clvm' | key_added]['noise_variance']` : `float`
        Variance of the noise. For counts there is no such value: the table of the fit has a column
        `dispersion` instead.
    `.uns['clvm' | key_added]['log_likelihoods' | 'elbo']` : `ndarray`
        Log-likelihood at the start and after each step of the fit. A variational fit has its lower
        bound (`elbo`) at the start, after each pass over the cells and at the end instead.
    `.uns['clvm' | key_added]['converged']` : `bool`
        Whether the fit has converged.
    {KEPT}
    {FIT}
        With counts or `robust="entries"` the scores are not linear. The table then has no filters,
        and `scanpy_ext.tl.project` and `scanpy_ext.tl.denoise` raise an error.

    Raises
    ------
    {RAISES}
        NaN is allowed here as a missing value, except in sparse matrices and in backed or
        dask-backed data. With `within` no value may be missing, and the fit can be neither robust
        nor variational.

    Notes
    -----
    {EXPECTS}
    With `noise="counts"`, give raw counts instead.

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
    keys = _write.reserve(adata, copy, "clvm", key_added)
    counts = isinstance(noise, str) and noise == "counts"
    given: dict[str, Any] = {"random_state": 0} | ({"inference": "vi"} if counts else {})
    given |= model_parameters(CLVM, model_kwargs, "n_salient", "n_shared", "noise")
    selection = cells(adata, groupby, reference, groups, foreground, background)
    kinds = {"missing": not counts, "counts": counts}
    data = contrast_input(adata, selection, n_comps, layer, None, mask_var, within=within, **kinds)
    model = CLVM(n_shared=n_shared, n_salient=n_comps, noise=noise, **given)
    model.fit(data.foreground, background=data.background, **data.strata)
    trace = "elbo" if model.inference == "vi" else "log_likelihoods"
    entry = {
        "params": data.params | storable(n_shared=n_shared, noise=noise, **given),
        "converged": model.converged_,
        trace: getattr(model, f"{trace}_"),
    }
    if not counts:
        entry["noise_variance"] = float(model.noise_variance_)
    result = data.result(
        keys,
        model,
        entry,
        loadings=model.salient_loadings_,
        linear=not counts and model.robust != "entries",
        dispersion=model.dispersions_ if counts else None,
    )
    shared = keys.part("shared")
    latent = model.transform_shared(data.matrix, within=data.within.get("within"))
    result.slots["obsm"][shared.obsm] = data.as_precise(latent)
    result.slots["varm"][shared.varm] = on_all_genes(
        model.shared_loadings_, cast("BoolArray", data.features)
    )
    return _write.write(adata, result, copy=copy)


@documented
def cvae(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    n_comps: int = 2,
    n_shared: int = 8,
    noise: Literal["counts", "normal"] = "counts",
    model_file: str | PathLike[str] | None = None,
    layer: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
    model_kwargs: Mapping[str, Any] | None = None,
) -> AnnData | None:
    """Contrastive variational autoencoder: shared and salient latent variables of raw counts.

    Foreground cells have shared latent variables z and salient latent variables t; background cells
    have z alone. One network decodes z, and another one decodes t [1]_ [2]_. Counts are modelled
    by a negative binomial distribution, and the size factor of a cell is its total count. The
    salient latent variables explain what only the foreground has, so they keep the difference
    between conditions, even if no linear direction shows it. All cells of `adata` are embedded as
    posterior means of t and of z, even cells in neither set. Cells in both sets, such as the
    reference cells by default, count in both. Training is random, takes minutes and needs torch.
    Minibatches of cells can be read from files and dask arrays too.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    n_comps
        Number of salient latent dimensions.
    n_shared
        Number of shared latent dimensions.
    noise
        `"counts"` for raw counts, or `"normal"` for log-normalised values with the same noise
        variance in all genes.
    model_file
        File to save the trained model in. `contrast_core.load` reads the file, so that the model
        can embed, denoise or generate cells, or be trained further. The file holds weights and
        numbers, but no code.
    {DATA}
    key_added
        Name of the results in `.obsm` and `.uns`, instead of `X_cvae` and `cvae`.
    {COPY}
    model_kwargs
        Further parameters of `contrast_core.CVAE`, such as `"max_iter"` (20 to 400 by default,
        fewer for more cells), `"device"` (such as `"cuda"`), `"batch_size"` and `"random_state"`
        (0 by default). The same seed gives the same numbers on the same processor.

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cvae' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: posterior means of the salient latent variables.
    `.obsm['X_cvae_shared' | key_added + '_shared']` : `ndarray` (shape `(n_obs, n_shared)`)
        Posterior means of the shared latent variables.
    `.uns['cvae' | key_added]['training_loss' | 'held_out_loss']` : `ndarray` (shape `(n_epochs,)`)
        Negative evidence lower bound per cell. The training loss is measured on the training cells
        during each epoch, and the held-out loss on the held-out cells after each epoch.
        `scanpy_ext.pl.cvae` plots both.
    `.uns['cvae' | key_added]['best_epoch']` : `int`
        The epoch whose weights are kept.
    `.uns['cvae' | key_added]['converged']` : `bool`
        Whether the training ended before `max_iter`, because the likelihood of the held-out cells
        (a tenth of all) no longer rose.
    `.uns['cvae' | key_added]['n_foreground' | 'n_background']` : `int`
        Number of cells.
    `.uns['cvae' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    {RAISES}
        ValueError is also raised if `noise="counts"` and some values are not counts, or if the loss
        is NaN or infinite in the first epoch.
    ImportError
        If torch is not installed.

    Notes
    -----
    Give raw counts, for example `layer="counts"` if `.X` is log-normalised. Donors and batches are
    not modelled: differences between donors of the foreground and donors of the background are part
    of the contrast. If anything fails, `adata` is left untouched.

    References
    ----------
    .. [1] Severson, Ghosh, Ng (2019). Unsupervised learning with contrastive latent variable
       models. AAAI. arXiv:1811.06094, Sec. 2.4.
    .. [2] Abid, Zou (2019). Contrastive variational autoencoder enhances salient features.
       arXiv:1902.04601.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(counts)
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.cvae(adata, groupby="condition", reference="ctrl", model_kwargs={"max_iter": 2})
    >>> adata.obsm["X_cvae"].shape, adata.obsm["X_cvae_shared"].shape
    ((60, 2), (60, 8))
    """
    keys = _write.reserve(adata, copy, "cvae", key_added)
    given: dict[str, Any] = {"random_state": 0}
    given |= model_parameters(CVAE, model_kwargs, "n_salient", "n_shared", "noise")
    if model_file is not None:
        folder = Path(check_path(model_file)).parent  # checked before the training starts
        if not folder.is_dir():
            raise ValueError(f"model_file={str(model_file)!r}: no folder {str(folder)!r} exists.")
    selection = cells(adata, groupby, reference, groups, foreground, background)
    counts = isinstance(noise, str) and noise == "counts"
    data = contrast_input(adata, selection, n_comps, layer, None, mask_var, counts=counts)
    model = CVAE(n_comps, n_shared=n_shared, noise=noise, **given)
    model.fit(data.foreground, background=data.background)
    scores, latent = data.embed(model), data.as_precise(model.transform_shared(data.matrix))
    if model_file is not None:
        save(model, model_file)
    params = storable(n_shared=n_shared, noise=noise, model_file=model_file, **given)
    entry = {
        "params": data.params | params,
        "training_loss": model.training_loss_,
        "held_out_loss": model.held_out_loss_,
        "best_epoch": model.best_epoch_,
        "converged": model.converged_,
    }
    slots = {"obsm": {keys.obsm: scores, keys.part("shared").obsm: latent}}
    return _write.write(adata, _write.Result(keys.uns, entry | data.sizes, slots), copy=copy)
