"""Test which components of a contrast are real, and measure how stable they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData

from contrast_core import (
    CPCA,
    PCPCA,
    CPCAStar,
    bootstrap_stability,
    condition_test,
    permutation_test,
)
from contrast_core.feedback import check_choice

from .. import _keys, _select, _write
from .._arguments import further, storable
from .._docs import documented
from .._read import ContrastInput, contrast_input
from .._select import DEFAULT, BoolArray, Default, Levels, Mask, cells, known_labels


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
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
    test_kwargs: Mapping[str, Any] | None = None,
) -> AnnData | None:
    """Permute donors between the two sets, and resample them: p-values and stability.

    cPCA, cPCA* and PCPCA keep and sharpen the difference between conditions, whether or not other
    donors would show it too. This function tests whether they would. The p-value of a component
    compares its statistic with that of the leading component after donors have changed sides. For
    each such relabelling both sets are rebuilt, with the same weight for every donor, the earlier
    components are removed, and the contrast strength is chosen again
    (`contrast_core.condition_test`). The stability of a component says how much it changes when
    donors are drawn with replacement. Plot both with `scanpy_ext.pl.significance`. The cells are
    not embedded.

    Cells of one donor are not independent. With `donor=None` single cells are permuted and drawn
    instead. The p-values are then far too small, and are marked as exploratory everywhere.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...), or `None` to permute cells.
    {CELLS}
    n_comps
        Number of components.
    method
        The method whose components are tested.
    {DATA}
    {OBSM}
    key_added
        Name of the result in `.uns`, instead of `significance`.
    {COPY}
    test_kwargs
        Further settings: `"strength"`, the method's alpha, beta or gamma (`"auto"` by default);
        `"n_permutations"`, the number of relabellings (199 by default; if no more exist, all are
        used); `"n_resamples"`, the number of bootstrap samples (100); `"random_state"`, the seed
        of both (0); and `"progress"`, `True` or a callable such as tqdm, for a progress bar. With
        `"auto"`, the test chooses alpha or beta anew for each component and relabelling, but gamma
        only once; the stability uses a strength that is chosen once.

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
        The unit that was permuted and drawn: `donor` or `cell`.
    `.uns['significance' | key_added]['exploratory']` : `bool`
        Whether the p-values are by cell.
    `.uns['significance' | key_added]['smallest_p_value']` : `float`
        The smallest p-value that is possible with these numbers of units and permutations.
    `.uns['significance' | key_added]['n_permutations' | 'n_resamples']` : `int`
        Number of relabellings and of bootstrap samples.
    `.uns['significance' | key_added]['n_foreground_units' | 'n_background_units']` : `int`
        Number of donors with treated cells (in the foreground, but not in the background) and with
        background cells. Without donors, numbers of cells.
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
    Every donor has the same weight, however many cells it has. If a donor has cells in both sets, a
    relabelling exchanges its two parts; other donors exchange labels among themselves. At least 20
    relabellings are needed for a p-value of 0.05; designs with fewer are refused. Enough are 3
    donors against 3, 1 against 19, or 5 with cells in both sets. Donors with cells in one set only
    are also refused if all donors of the other set have cells in both, because they could never
    change sides. Different numbers of cells alone would make donors differ. Cells are therefore
    drawn at random. A donor with cells in both sets keeps as many in each as in its smaller part.
    Any other donor keeps at most the median number of cells per donor of the set in which this
    median is smaller.

    The test asks whether the condition has an effect beyond the differences between donors. If the
    background's cells are in the foreground, this effect is mostly the shift between the
    conditions; otherwise it is variation within the treated cells. Without donors, single cells are
    exchanged. If the background's cells are not in the foreground, they are exchanged by
    `contrast_core.permutation_test`, which ignores shifts.

    The cells of both sets with the genes in use are held in memory; sparse matrices stay sparse,
    and each donor is reduced to a covariance. With `donor=None`, or with more genes than cells, the
    cells are held as a dense array. {LOADED}

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
    >>> cx.tl.significance(adata, donor="donor", groupby="condition", reference="ctrl")
    >>> list(adata.uns["significance"]["components"])[0], adata.uns["significance"]["unit"]
    ('p_value', 'donor')
    """
    key = _keys.checked("significance" if key_added is None else key_added)
    given = _SETTINGS | further(test_kwargs, "test_kwargs", list(_SETTINGS), "settings")
    _write.check_free(adata, copy, key, {})
    _select.check_donor(donor, groupby)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var)
    kind, name = _METHODS[check_choice(method, "method", _METHODS)]
    model = kind(n_comps, **{name: given["strength"]})
    shared = _shared(data)
    units = {} if donor is None else _units(adata, data, donor)
    seeded = {name: given[name] for name in ("random_state", "progress")}
    x, y = data.foreground.load(), data.background.load()

    permuted = seeded | {"background": y, "n_permutations": given["n_permutations"]}
    if donor is None and not shared.any():
        test = permutation_test(model, x, **permuted)
    else:
        treated = ~shared[selection.foreground]
        if units:
            permuted |= units | {"units": units["units"][treated]}
        test = condition_test(model, x[treated], include_background=bool(shared.any()), **permuted)
    stability = bootstrap_stability(
        model, x, background=y, n_resamples=given["n_resamples"], **seeded, **units
    )
    kept = {name: given[name] for name in ("strength", "random_state")}
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
    result = {
        "components": components,
        "unit": "cell" if donor is None else "donor",
        "exploratory": donor is None,
        "smallest_p_value": float(test.smallest_p_value),
        "n_permutations": int(test.n_permutations),
        "n_resamples": int(given["n_resamples"]),
        "n_foreground_units": int(test.n_units or data.sizes["n_foreground"]),
        "n_background_units": int(test.n_background_units or data.sizes["n_background"]),
        "params": data.params | storable(donor=donor, method=method, **kept),
    }
    return _write.write(adata, _write.Result(key, result), copy=copy)


_METHODS: dict[str, Any] = {
    "cpca": (CPCA, "alpha"),
    "cpca_star": (CPCAStar, "beta"),
    "pcpca": (PCPCA, "gamma"),
}
_SETTINGS: dict[str, Any] = {
    "strength": "auto",
    "n_permutations": 199,
    "n_resamples": 100,
    "random_state": 0,
    "progress": False,
}


def _shared(data: ContrastInput) -> BoolArray:
    """Return the cells in both sets; raise ValueError if only a part of the background is."""
    shared = data.selection.foreground & data.selection.background
    if shared.any() and (data.selection.background & ~shared).any():
        raise ValueError(
            f"{int(shared.sum())} of the {int(data.selection.background.sum())} background cells "
            "are in the foreground too. Put all of them there, to test the difference between the "
            "sets, or none."
        )
    return shared


def _units(adata: AnnData, data: ContrastInput, donor: str) -> dict[str, Any]:
    """Return the donors of both sets; another AnnData may be the background."""
    front, back, other = data.selection.foreground, data.selection.background, data.selection.other
    back_cells = (adata, donor, "donor", back) if other is None else (other, donor, "donor")
    return {
        "units": known_labels(adata, donor, "donor", front),
        "background_units": known_labels(*back_cells),
    }
