"""Contrastive PCA of the cells of an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from contrast_core import CPCA

from .. import _by, _keys, _read, _write
from .._docs import documented
from .._read import WithinDesign
from .._relabelling import check_donor

if TYPE_CHECKING:
    from anndata import AnnData

    from contrast_core.feedback import Progress


@documented
def cpca(
    adata: AnnData,
    *,
    n_comps: int = 2,
    alpha: float | Literal["auto", "denoise"] = "auto",
    by: str | None = None,
    n_permutations: int | None = None,
    donor: str | None = None,
    key_added: str | None = None,
    random_state: int | None = 0,
    **design: Unpack[WithinDesign],
) -> AnnData | None:
    """Contrastive PCA: directions that vary in the foreground cells, not in the background.

    cPCA keeps and sharpens the difference between conditions. The components are the leading
    eigenvectors of `C_foreground - alpha * C_background`, each covariance centred by its own
    mean [1]_ (Alg. 1). All cells of `adata` are embedded, also those in neither set.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of components. The automatic alpha depends on it.
    alpha
        Contrast strength: a number from 0 (PCA of the foreground) to infinity, or `"auto"`
        (chosen without labels from the two covariances), or `"denoise"` (milder, for
        reconstructions); see `contrast_core.CPCA`.
    by
        Column of `adata.obs`: a contrast of its own for the cells of each level, each with its own
        alpha. A column of cell types asks which of them respond, and by which genes; the column
        `groupby` itself takes each condition against the reference. Levels with fewer than ten
        cells on a side are left out, with a warning. Read the results by
        `scanpy_ext.get.contrasts`.
    n_permutations
        With `by`: p-values by so many relabellings of donors, as of `scanpy_ext.tl.significance`,
        which has more to say of one contrast. They take much longer than the fits.
    donor
        With `n_permutations`: column of `adata.obs` with the donor (animal, culture, ...). Without,
        cells are permuted, and p-values are called exploratory: they are far too small.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_cpca`, `cPCs` and
        `cpca`.
    {COPY}
    random_state
        Seed of the start of the iteration that is used on wide sparse data (many more genes than
        cells); the result does not depend on it beyond rounding.
    {PROGRESS}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: each cell minus the foreground mean, on the components.
    `.varm['cPCs' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings): orthonormal columns, zero for genes outside `mask_var`.
    `.uns['cpca' | key_added]['alpha']` : `float`
        The contrast strength in use.
    `.uns['cpca' | key_added]['contrastive_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Foreground variance minus alpha times background variance, per component.
    {KEPT}
    {MEANS}

    With `by` the fields are these instead, `<level>` being its name with `_` in the place of `/`:

    `.obsm['X_cpca_<level>' | key_added + '_<level>']` : `ndarray` (shape `(n_obs, n_comps)`)
        All cells, also those of other levels, on the components of this one.
    `.varm['cPCs_<level>' | key_added + '_<level>']` : `ndarray` (shape `(n_vars, n_comps)`)
        Its components. With `obsm` in `.uns[...]['loadings']`, under the same name.
    `.uns['cpca' | key_added]['contrasts']` : `DataFrame`
        A row for each level and component: `level`, `component`, `alpha`,
        `contrastive_eigenvalue`, `foreground_variance`, `background_variance`, their `ratio` (in
        the cells of the fit: of few cells it is large by chance), `n_foreground`, `n_background`,
        with `n_permutations` `p_value` and `p_adjusted` (Benjamini-Hochberg, over the levels;
        without donors `exploratory_p_value`, ...), and `top_genes`, the ten of largest loading.
    `.uns['cpca' | key_added]['levels']` : `ndarray` of `str`
        The levels that have a contrast.

    Raises
    ------
    {RAISES}

    Warns
    -----
    contrast_core.ContrastWarning
        If some components vary less in the foreground than alpha times in the background.

    Notes
    -----
    {EXPECTS}

    With `by` data in memory are read level by level, others once for eight levels, and once more
    to embed all cells; `within` takes one pass for each level.

    References
    ----------
    .. [1] Abid, Zhang, Bagaria, Zou (2018). Exploring patterns enriched in a dataset with
       contrastive principal component analysis. Nature Communications 9, 2134.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", alpha=1.0)
    >>> adata.obsm["X_cpca"].shape, adata.varm["cPCs"].shape
    ((60, 2), (8, 2))
    >>> adata.obs["cell_type"] = ["B", "B", "T"] * 20
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", by="cell_type", n_comps=1)
    >>> cx.get.contrasts(adata)[["level", "n_foreground", "n_background"]]
        level  n_foreground  n_background
    B 1     B            40            20
    T 1     T            20            10
    """
    keys = _keys.CPCA.added(key_added)
    data = _read.read(adata, n_comps=n_comps, **design)
    model = CPCA(n_comps, alpha=alpha, random_state=random_state)
    if by is not None:
        check_donor(donor, design.get("groupby"))
        progress = design.get("progress", False)
        return _by_level(adata, data, model, keys, progress, by, donor, n_permutations)
    if n_permutations is not None or donor is not None:
        raise ValueError(
            "n_permutations and donor are for by=, a contrast for each level; of one contrast "
            "scanpy_ext.tl.significance tells more."
        )
    model.fit(data.foreground, background=data.background, **data.groups)
    result = {
        "params": data.params | _write.storable(alpha=alpha, random_state=random_state),
        "alpha": float(model.alpha_),
        "contrastive_eigenvalues": model.contrastive_eigenvalues_,
        "foreground_variance": model.foreground_variance_,
        "background_variance": model.background_variance_,
    }
    return _write.write(adata, **data.slots(keys, model, result), copy=data.copy)


def _by_level(
    adata: AnnData,
    data: _read.ContrastInput,
    model: CPCA,
    keys: _keys.Keys,
    progress: Progress,
    by: str,
    donor: str | None,
    n_permutations: int | None,
) -> AnnData | None:
    """A contrast for each level: fitted, tested and written."""
    if donor is not None and n_permutations is None:
        raise ValueError("donor= was given without n_permutations=: donors are for the p-values.")
    contrasts = _by.fitted(_by.split(adata, data, by), model, by)
    features = data.features
    found = _by.table(contrasts, np.asarray(data.feature_names(adata)))
    if n_permutations is not None:
        seed = model.random_state
        found = _by.with_p_values(
            found, adata, contrasts, model, donor, n_permutations, seed, progress
        )
    slots = [keys.of_level(each.level) for each in contrasts]
    loadings = [each.model.components_.T for each in contrasts]
    given = {"alpha": model.alpha, "random_state": model.random_state, "by": by, "donor": donor}
    result: dict[str, Any] = {
        "contrasts": found,
        _keys.LEVELS: np.array([each.level for each in contrasts], dtype=object),
        "params": data.params | _write.storable(n_permutations=n_permutations, **given),
    }
    varm: dict[str, Any] = dict.fromkeys((keys.varm, _keys.filters(keys)))
    if features is None:
        result["loadings"] = {slot.varm: table for slot, table in zip(slots, loadings, strict=True)}
    else:
        varm |= {
            slot.varm: _read.of_all_genes(table, features)
            for slot, table in zip(slots, loadings, strict=True)
        }
    return _write.write(
        adata,
        obsm=dict(zip([slot.obsm for slot in slots], _by.embedded(contrasts), strict=True)),
        varm=varm,
        var=dict.fromkeys(_keys.vectors(keys)),
        uns={keys.uns: result},
        copy=data.copy,
        stale=[keys],
    )
