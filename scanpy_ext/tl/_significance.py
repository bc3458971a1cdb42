"""Which components of a contrast are real, and which are stable."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData

from contrast_core import CPCA, PCPCA, CPCAStar, bootstrap_stability
from contrast_core.feedback import Progress

from .. import _keys, _select, _write
from .._arguments import is_among, quoted
from .._docs import documented
from .._read import contrast_input
from .._relabelling import resampled
from .._select import DEFAULT, Default, Levels, Mask, cells


@documented
def significance(
    adata: AnnData,
    *,
    donor: str | None,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    n_comps: int = 2,
    method: Literal["cpca", "cpca_star", "pcpca"] = "cpca",
    strength: float | Literal["auto"] = "auto",
    n_permutations: int = 199,
    n_resamples: int = 100,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
    random_state: int | None = 0,
    progress: Progress = False,
) -> AnnData | None:
    """Permute donors between the two sets, and resample them: p-values and stability.

    cPCA, cPCA* and PCPCA keep and sharpen the difference between conditions, whether or not
    another donor would show it; this asks. A component's p-value compares how far it stands out
    with how far the leading one does after donors change sides: both sets are built anew, every
    donor counting the same, and the contrast is chosen again, after the components before are taken
    out (`contrast_core.condition_test`). Its stability says how far it moves when donors are drawn
    with replacement. Plot both with `scanpy_ext.pl.significance`. The cells are not embedded.

    Cells of one donor are not independent. With `donor=None` single cells are permuted and drawn
    instead: the p-values are then far too small, and called exploratory wherever they are shown.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...). `None`: see above.
    {CELLS}
    n_comps
        Number of components.
    method
        The method to ask about.
    strength
        Its `alpha`, `beta` or `gamma`. An automatic alpha or beta is chosen for each component and
        relabelling (for the stability, once), an automatic gamma once.
    n_permutations
        Number of relabellings. If there are no more than that many, all are used.
    n_resamples
        Number of bootstrap samples.
    {DATA}
    {OBSM}
    key_added
        Name of the result in `.uns`, instead of `significance`.
    {COPY}
    random_state
        Seed of the relabellings and the samples.
    {PROGRESS}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.uns['significance' | key_added]['components']` : `DataFrame`
        A row per component: `p_value` (`exploratory_p_value` without donors), the `strength` of the
        contrast at which it was found, the `statistic` (strength times total background variance
        over total foreground variance; at a given contrast the eigenvalue), `null_median` and
        `null_95` (of the relabelled statistics), `stability` (mean squared cosine with the
        resampled component) and `retention` (share that lies in the resampled subspace).
    `.uns['significance' | key_added]['unit']` : `str`
        What was permuted and drawn: `donor` or `cell`.
    `.uns['significance' | key_added]['exploratory']` : `bool`
        Whether the p-values are by cell.
    `.uns['significance' | key_added]['smallest_p_value']` : `float`
        The smallest p-value that so many units and permutations can give.
    `.uns['significance' | key_added]['n_permutations' | 'n_resamples']` : `int`
        Number of relabellings and of samples used.
    `.uns['significance' | key_added]['n_foreground_units' | 'n_background_units']` : `int`
        Number of donors with treated cells (in the foreground, not in the background) and with
        background cells; or of cells.
    `.uns['significance' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    {RAISES}

    Warns
    -----
    contrast_core.ContrastWarning
        If there are so few permutations that no p-value can reach 0.05.

    Notes
    -----
    Every donor counts the same, however many cells it has. The two parts of a donor with cells in
    both sets are compared with each other and change places; other donors change places among
    themselves. There must be 20 ways to say who was treated, or no p-value reaches 0.05: 3 donors
    against 3, 1 against 19, or 5 with cells in both. Fewer are refused, and so are donors with
    cells in one set only where all of the other's have cells in both, for they could never change
    sides. Treated and background donors with different numbers of cells would differ by that alone:
    the parts of a donor are used with as many cells as the smaller has, other donors with no more
    than the smaller median of the two sets, drawn at random.

    The question is whether the condition does anything that donors do not. With the background's
    cells in the foreground that is mostly the shift between the
    conditions; without, what varies within the treated ones. Without donors, single cells change
    places in the first case, and in the second too, but there by `contrast_core.permutation_test`,
    which leaves shifts aside.

    The cells of both sets and the genes in use are held in memory, sparse ones as such; each donor
    is then reduced to a covariance. Dense are single cells (`donor=None`), and all of them where
    there are more genes than cells. {LOADED}

    References
    ----------
    See `contrast_core.condition_test` and `contrast_core.bootstrap_stability`.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> values = np.random.default_rng(0).normal(size=(80, 5))
    >>> adata = anndata.AnnData(values)
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 40
    >>> adata.obs["donor"] = np.repeat([f"donor {i}" for i in range(8)], 10)
    >>> cx.tl.significance(
    ...     adata, donor="donor", groupby="condition", reference="ctrl", n_resamples=10
    ... )
    >>> list(adata.uns["significance"]["components"])[0], adata.uns["significance"]["unit"]
    ('p_value', 'donor')
    """
    key = _keys.checked("significance" if key_added is None else key_added)
    if not is_among(method, _METHODS):
        raise ValueError(f"method={quoted(method)} is unknown; expected one of {list(_METHODS)}.")
    _select.check_donor(donor, groupby)
    _write.check_writable(adata, copy)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, copy)
    model = _METHODS[method](n_comps, **{_STRENGTHS[method]: strength})
    sets = resampled(adata, data, donor, background)
    test = sets.permuted(model, n_permutations, random_state, progress)
    stability = bootstrap_stability(
        model,
        sets.foreground,
        background=sets.background,
        n_resamples=n_resamples,
        random_state=random_state,
        progress=progress,
        **sets.donors,
    )
    p_value = "p_value" if donor is not None else "exploratory_p_value"
    components = pd.DataFrame(
        {
            p_value: test.p_values,
            "strength": test.strengths,
            "statistic": test.statistics,
            "null_median": np.median(test.null_statistics, axis=0),
            "null_95": np.quantile(test.null_statistics, 0.95, axis=0),
            "stability": stability.component_stability,
            "retention": stability.component_retention,
        },
        index=[f"component {i + 1}" for i in range(n_comps)],
    )
    params = data.params | _write.storable(
        donor=donor, method=method, strength=strength, random_state=random_state
    )
    result = {
        "components": components,
        "unit": "cell" if donor is None else "donor",
        "exploratory": donor is None,
        "smallest_p_value": float(test.smallest_p_value),
        "n_permutations": int(test.n_permutations),
        "n_resamples": int(n_resamples),
        "n_foreground_units": int(test.n_units or data.sizes["n_foreground"]),
        "n_background_units": int(test.n_background_units or data.sizes["n_background"]),
        "params": params,
    }
    return _write.write(adata, _write.Result(key, result), copy=copy)


_METHODS: dict[str, Any] = {"cpca": CPCA, "cpca_star": CPCAStar, "pcpca": PCPCA}
_STRENGTHS = {"cpca": "alpha", "cpca_star": "beta", "pcpca": "gamma"}
