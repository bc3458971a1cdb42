"""Contrastive PCA of the cells of an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contrast_core import CPCA

from .. import _by, _keys, _write
from .._docs import documented
from .._read import ContrastInput, contrast_input, of_all_genes
from .._relabelling import check_donor
from .._select import DEFAULT, Default, Levels, Mask, cells

if TYPE_CHECKING:
    from anndata import AnnData


@documented
def cpca(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    n_comps: int = 2,
    alpha: float | Literal["auto", "denoise"] = "auto",
    by: str | None = None,
    n_permutations: int | None = None,
    donor: str | None = None,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
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
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_cpca`, `PCs_cpca` and
        `cpca`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: each cell minus the foreground mean, on the components.
    `.varm['PCs_cpca' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings): orthonormal columns, zero for genes outside `mask_var`.
    `.uns['cpca' | key_added]['alpha']` : `float`
        The contrast strength in use.
    `.uns['cpca' | key_added]['contrastive_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Foreground variance minus alpha times background variance, per component.
    {KEPT}
    {FIT}

    With `by` the fields are these instead, `<level>` being its name with `_` in the place of `/`:

    `.obsm['X_cpca_<level>' | key_added + '_<level>']` : `ndarray` (shape `(n_obs, n_comps)`)
        All cells, also those of other levels, on the components of this one.
    `.varm['PCs_cpca_<level>' | key_added + '_<level>']` : `ndarray` (shape `(n_vars, n_comps)`)
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
    >>> adata.obsm["X_cpca"].shape, adata.varm["PCs_cpca"].shape
    ((60, 2), (8, 2))
    >>> adata.obs["cell_type"] = ["B", "B", "T"] * 20
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", by="cell_type", n_comps=1)
    >>> cx.get.contrasts(adata)[["level", "n_foreground", "n_background"]]
        level  n_foreground  n_background
    B 1     B            40            20
    T 1     T            20            10
    """
    keys = _write.reserve(adata, "cpca", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, copy, within=within)
    model = CPCA(n_comps, alpha=alpha, random_state=0)  # the result does not depend on the seed
    if by is not None:
        check_donor(donor, groupby)
        return _by_level(adata, data, model, keys, by, donor, n_permutations)
    if n_permutations is not None or donor is not None:
        raise ValueError(
            "n_permutations and donor are for by=, a contrast for each level; of one contrast "
            "scanpy_ext.tl.significance tells more."
        )
    model.fit(data.foreground, background=data.background, **data.groups)
    entry = {
        "params": data.params | {"alpha": alpha},
        "alpha": float(model.alpha_),
        "contrastive_eigenvalues": model.contrastive_eigenvalues_,
        "foreground_variance": model.foreground_variance_,
        "background_variance": model.background_variance_,
    }
    return _write.write(adata, data.result(keys, model, entry), copy=copy)


def _by_level(
    adata: AnnData,
    data: ContrastInput,
    model: CPCA,
    keys: _keys.Keys,
    by: str,
    donor: str | None,
    n_permutations: int | None,
) -> AnnData | None:
    """A contrast for each level: fitted, tested and written."""
    if donor is not None and n_permutations is None:
        raise ValueError("donor= was given without n_permutations=: donors are for the p-values.")
    contrasts = _by.fitted(_by.split(adata, data, by), model, by)
    features = data.features
    found = _by.table(contrasts, np.asarray(data.feature_names))
    if n_permutations is not None:
        found = _by.with_p_values(found, adata, contrasts, model, donor, n_permutations, 0)
    parts = [keys.part(each.level) for each in contrasts]
    loadings = [each.model.components_.T for each in contrasts]
    given = {"alpha": model.alpha, "by": by, "donor": donor}
    result: dict[str, Any] = {
        "contrasts": found,
        _keys.LEVELS: np.array([each.level for each in contrasts], dtype=object),
        "params": data.params | _write.storable(n_permutations=n_permutations, **given),
    }
    slots: dict[str, dict[str, Any]] = {
        "obsm": dict(zip([part.obsm for part in parts], _by.embedded(contrasts), strict=True))
    }
    if features is None:
        result["loadings"] = {part.varm: table for part, table in zip(parts, loadings, strict=True)}
    else:
        slots["varm"] = {
            part.varm: of_all_genes(table, features)
            for part, table in zip(parts, loadings, strict=True)
        }
    return _write.write(adata, _write.Result(keys.uns, result, slots), copy=data.copy)
