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
from .._arguments import further_parameters, storable
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
    """Test the components of a contrast by permuting donors, and measure their stability.

    cPCA, cPCA* and PCPCA keep and sharpen the difference between conditions, whether or not other
    donors would show it too. This function tests whether other donors would. The p-value of a
    component compares its statistic with the statistics after donors have been relabelled, which
    means that they have moved from one set to the other. For each such relabelling, both sets are
    formed again with the same weight for every donor, the components before the tested one are
    removed, and the contrast strength is chosen again. The statistic of the relabelling is computed
    from the leading component (`contrast_core.condition_test`). The stability of a component says
    how little it changes when donors are drawn with replacement. `scanpy_ext.pl.significance` plots
    both. The cells are not embedded.

    With `donor=None`, single cells are permuted and drawn instead. Since cells of one donor are not
    independent, the p-values are then far too small. They are marked as exploratory everywhere.

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
        Further settings. `"strength"` is the method's alpha, beta or gamma (`"auto"` by default).
        `"n_permutations"` is the number of relabellings (199 by default; if no more exist, all are
        used). `"n_resamples"` is the number of bootstrap samples (100 by default). `"random_state"`
        is the seed of relabellings and bootstrap samples (0 by default). `"progress"` is `True` or
        a callable such as tqdm, for a progress bar. With `"auto"`, the test chooses alpha or beta
        anew for each component and relabelling, but gamma only once. The stability is measured at a
        strength that is chosen once.

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.uns['significance' | key_added]['components']` : `DataFrame`
        A row for each component. `p_value` is named `exploratory_p_value` without donors.
        `strength` is the contrast strength at which the component was found. For cPCA and cPCA*
        with an automatic strength, the `statistic` is the largest ratio of foreground to background
        variance, divided by the ratio of the total variances (see
        `contrast_core.permutation_test`). For PCPCA, or if the strength was given, the `statistic`
        is the eigenvalue of the component. `null_median` and `null_95` are the median and the 95%
        quantile of the statistics after relabelling. `stability` is the mean squared cosine between
        the component and the resampled component, and `retention` is the share of the component
        that lies in the resampled subspace.
    `.uns['significance' | key_added]['unit']` : `str`
        The unit that was permuted and drawn: `donor` or `cell`.
    `.uns['significance' | key_added]['exploratory']` : `bool`
        Whether the p-values are exploratory, because single cells were permuted.
    `.uns['significance' | key_added]['smallest_p_value']` : `float`
        The smallest p-value that is possible with these numbers of units and permutations.
    `.uns['significance' | key_added]['n_permutations' | 'n_resamples']` : `int`
        Number of relabellings and of bootstrap samples.
    `.uns['significance' | key_added]['n_foreground_units' | 'n_background_units']` : `int`
        Number of donors with treated cells, and number of donors with background cells. Treated
        cells are those in the foreground, but not in the background. Without donors, these are
        numbers of cells.
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
    Every donor has the same weight, however many cells it has. If a donor has both treated and
    background cells, a relabelling exchanges its two parts. The other donors, which have treated
    cells only or background cells only, exchange labels among themselves. At least 20 relabellings
    are needed for a p-value of 0.05, and designs with fewer are refused. There are enough
    relabellings for 3 donors against 3, for 1 against 19, or for 5 donors with both kinds of cells.
    If some donors have treated cells only, others must have background cells only, and the reverse.
    Otherwise these donors could not exchange labels with any other donor, and the design is
    refused.

    The number of cells of a donor affects its statistics, even without any other difference. Cells
    are therefore drawn at random to make the numbers similar. A donor with both kinds of cells
    keeps as many treated as background cells: the size of its smaller part. Any other donor keeps
    at most m cells. The median number of cells per donor is computed among the donors with treated
    cells only and among the donors with background cells only, and m is the smaller median.

    The test asks whether the condition has an effect beyond the differences between donors. If the
    background's cells are in the foreground, this effect is mostly the shift between the
    conditions. Otherwise it is variation within the treated cells. Without donors, single cells are
    exchanged. If the background's cells are then not in the foreground,
    `contrast_core.permutation_test` is used, which ignores shifts.

    The cells of both sets with the genes in use are held in memory. Sparse matrices stay sparse,
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
    given = _SETTINGS | further_parameters(test_kwargs, "test_kwargs", list(_SETTINGS), "settings")
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
    """Return a mask of the cells in both sets.

    ValueError is raised if only a part of the background is in the foreground.
    """
    shared = data.selection.foreground & data.selection.background
    if shared.any() and (data.selection.background & ~shared).any():
        raise ValueError(
            f"{int(shared.sum())} of the {int(data.selection.background.sum())} background cells "
            "are in the foreground too. Put all background cells into the foreground to test the "
            "difference between the sets, or none of them to test the variation within the "
            "foreground."
        )
    return shared


def _units(adata: AnnData, data: ContrastInput, donor: str) -> dict[str, Any]:
    """Return the donor of each cell, as the arguments `units` and `background_units` of a test."""
    front, back, other = data.selection.foreground, data.selection.background, data.selection.other
    back_cells = (adata, donor, "donor", back) if other is None else (other, donor, "donor")
    return {
        "units": known_labels(adata, donor, "donor", front),
        "background_units": known_labels(*back_cells),
    }
