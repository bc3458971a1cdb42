"""Contrastive variational autoencoders of the cells of an AnnData."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from anndata import AnnData

from contrast_core import CVAE, save

from .. import _write
from .._arguments import model_parameters, quoted, storable_texts
from .._docs import documented
from .._read import contrast_input
from .._select import DEFAULT, Default, Levels, Mask, cells


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
    have z alone. A network decodes each of the two [1]_ [2]_. Counts are negative binomial, with
    the cell's sum as its size. The salient latent variables explain what only the foreground has,
    so they keep the difference between conditions, even one that no linear direction shows. All
    cells of `adata` are embedded as posterior means of t and of z, even cells in neither set. Cells
    in both sets, such as the reference cells by default, count in both. Training is random and
    takes minutes. It needs torch, and reads minibatches of cells also from files or dask.

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
        File to save the trained model in. `contrast_core.load` reads it, to embed, denoise or
        generate cells, or to continue training. It holds weights and numbers, but no code.
    {DATA}
    key_added
        Name of the results in `.obsm` and `.uns`, instead of `X_cvae` and `cvae`.
    {COPY}
    model_kwargs
        Further parameters of `contrast_core.CVAE`, such as `"max_iter"` (20 to 400 by default,
        fewer for more cells), `"device"` (such as `"cuda"`), `"batch_size"` and
        `"random_state"` (0 by default; the same seed gives the same numbers on the same processor).

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cvae' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: posterior means of the salient latent variables.
    `.obsm['X_cvae_shared' | key_added + '_shared']` : `ndarray` (shape `(n_obs, n_shared)`)
        Posterior means of the shared latent variables.
    `.uns['cvae' | key_added]['training_loss' | 'held_out_loss']` : `ndarray` (shape `(n_epochs,)`)
        Minus the evidence lower bound per cell: of the training cells in each epoch, and of the
        held-out cells after it. `scanpy_ext.pl.cvae` plots both.
    `.uns['cvae' | key_added]['best_epoch']` : `int`
        The epoch whose weights are kept.
    `.uns['cvae' | key_added]['converged']` : `bool`
        Whether the training ended before `max_iter`, because the likelihood of the held-out tenth
        of the cells no longer rose.
    `.uns['cvae' | key_added]['n_foreground' | 'n_background']` : `int`
        Number of cells.
    `.uns['cvae' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    {RAISES}
        ValueError also if values are not counts, or if the loss is NaN or infinite in the first
        epoch.
    ImportError
        If torch is not installed.

    Notes
    -----
    Give raw counts, for example `layer="counts"` if `.X` is log-normalised. Donors and batches are
    not modelled: differences between donors of the foreground and donors of the background are part
    of the contrast.
    If anything fails, `adata` is left untouched.

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
    keys = _write.reserve(adata, "cvae", key_added)
    given: dict[str, Any] = {"random_state": 0}
    given |= model_parameters(CVAE, model_kwargs, "n_salient", "n_shared", "noise")
    if model_file is not None:
        _check_file(model_file)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    counts = isinstance(noise, str) and noise == "counts"
    data = contrast_input(adata, selection, n_comps, layer, None, mask_var, copy, counts=counts)
    model = CVAE(n_comps, n_shared=n_shared, noise=noise, **given)
    model.fit(data.foreground, background=data.background)
    scores, latent = data.embed(model), data.as_precise(model.transform_shared(data.matrix))
    if model_file is not None:
        save(model, model_file)
    params = _write.storable(
        n_shared=n_shared,
        noise=noise,
        model_file=None if model_file is None else str(model_file),
        **storable_texts(given),
    )
    entry = {
        "params": data.params | params,
        "training_loss": model.training_loss_,
        "held_out_loss": model.held_out_loss_,
        "best_epoch": model.best_epoch_,
        "converged": model.converged_,
    }
    slots = {"obsm": {keys.obsm: scores, keys.part("shared").obsm: latent}}
    return _write.write(adata, _write.Result(keys.uns, entry | data.sizes, slots), copy=copy)


def _check_file(path: str | PathLike[str]) -> None:
    """Raise errors about the file before the training rather than after it."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"model_file={quoted(path)}: expected the path of a file.")
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(f"model_file={str(path)!r}: there is no folder {str(folder)!r}.")
