"""A contrast for each level of a column, from one reading of the data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from contrast_core import CPCA, LinearMap, SecondMoments
from contrast_core.feedback import collected, muted, warn
from contrast_core.rows import rows_of

from . import _fitted, _read, _relabelling, _select
from ._arguments import listed, text

if TYPE_CHECKING:
    from anndata import AnnData

_FEWEST = 10  # cells of either side
_AT_ONCE = 8  # levels whose moments are summed up in one pass over data that are not in memory
_TOP = 10  # genes that are named


@dataclass(frozen=True)
class LevelContrast:
    """The contrast among the cells of one level."""

    level: str
    data: _read.ContrastInput
    model: CPCA


def split(adata: AnnData, data: _read.ContrastInput, by: str) -> dict[str, _read.ContrastInput]:
    """The contrast's cells by the levels of a column, in their order, where there are enough.

    By the column of the conditions: each of them against the same reference.

    Raises
    ------
    ValueError
        If there is no such column, no level has enough cells on both sides, the background is
        another AnnData, or two levels would be written to the same slots.
    """
    labels = _select.column(adata, by, "by").to_numpy()
    if data.other is not None:
        raise ValueError(
            "by= together with another AnnData as the background: its cells have no levels here. "
            "Join both, with anndata.concat, and choose the sets by masks."
        )
    inside, behind = data.selection.foreground, data.selection.background
    found, few = {}, []
    whole = data.params.get("groupby") == by  # each condition with all of the reference
    for level in _levels(adata, by, labels):
        here = labels == level
        front = inside & ((here | (inside & behind)) if whole else here)
        back = behind if whole else behind & here
        if whole and not (here & inside & ~behind).any():
            continue  # the reference itself
        if min((front & ~back).sum(), back.sum()) < _FEWEST:
            few.append(level)
            continue
        found[level] = replace(
            data, selection=data.selection._replace(foreground=front, background=back)
        )
    if not found:
        raise ValueError(
            f"by: no level of adata.obs[{by!r}] has {_FEWEST} cells of the background and as many "
            "others of the foreground."
        )
    names = [level.replace("/", "_") for level in found]
    if len(set(names)) < len(names):
        twice = [level for level in found if names.count(level.replace("/", "_")) > 1]
        raise ValueError(
            f"by: levels {listed(twice)} of adata.obs[{by!r}] differ by '/' and '_' alone, "
            "which names of slots do not tell apart. Rename one."
        )
    if few:
        warn(
            f"{len(few)} level(s) of adata.obs[{by!r}] with fewer than {_FEWEST} cells of the "
            f"background, or beside them of the foreground, are left out: {listed(few)}."
        )
    return found


def fitted(parts: dict[str, _read.ContrastInput], model: CPCA, by: str) -> list[LevelContrast]:
    """Fit every level; data that are not in memory are read once for eight of them."""
    found, said = [], {}
    with muted("negative contrast"):  # each component has its eigenvalue in the table
        for level, data, sets in _sets(parts):
            own = CPCA(**model.get_params())
            try:
                with collected() as said[level]:
                    own.fit(sets[0], background=sets[1], **sets[2])
            except ValueError as error:
                raise ValueError(f"{by}={level!r}: {error}") from None
            found.append(LevelContrast(level, data, own))
    _warn_once(said)
    return found


def embedded(contrasts: list[LevelContrast]) -> list[NDArray[np.floating]]:
    """Scores of all cells on the components of each level, from one pass over them."""
    data = contrasts[0].data
    models = [each.model for each in contrasts]
    mean = np.mean([model.mean_ for model in models], axis=0)
    stacked = LinearMap(mean=mean, projection=np.hstack([m.projection_ for m in models]))
    scores = np.split(np.asarray(stacked.transform(data.matrix)), len(models), axis=1)
    centred = []
    for model, own in zip(models, scores, strict=True):
        shifted = own - (model.mean_ - mean) @ model.projection_
        if data.within is not None:
            known = (model.group_means_ - model.mean_) @ model.projection_
            shifted -= _fitted.centres(data.within, shifted, model.groups_, known)
        centred.append(data.as_precise(shifted))
    return centred


def table(contrasts: list[LevelContrast], names: NDArray[Any]) -> pd.DataFrame:
    """A row for each level and component; `names` are those of the features in use."""
    rows = {}
    for level, data, model in ((each.level, each.data, each.model) for each in contrasts):
        front, back = model.foreground_variance_, model.background_variance_
        for j, component in enumerate(model.components_):
            order = np.argsort(-np.abs(component), kind="stable")[:_TOP]
            rows[f"{level} {j + 1}"] = {
                "level": level,
                "component": j + 1,
                "alpha": float(model.alpha_),
                "contrastive_eigenvalue": model.contrastive_eigenvalues_[j],
                "foreground_variance": front[j],
                "background_variance": back[j],
                "ratio": front[j] / back[j] if back[j] > 0 else np.inf,
                **data.sizes,
                "top_genes": ", ".join(map(str, names[order[component[order] != 0]])),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def with_p_values(
    found: pd.DataFrame,
    adata: AnnData,
    contrasts: list[LevelContrast],
    model: CPCA,
    donor: str | None,
    n_permutations: int,
    random_state: int | None,
) -> pd.DataFrame:
    """The table with a p-value of each component, NaN where there are too few donors."""
    p_values, refused, said = [], {}, {}
    for each in contrasts:
        k = len(each.model.components_)
        try:
            sets = _relabelling.resampled(adata, each.data, donor)
            with collected() as said[each.level]:
                test = sets.permuted(model, n_permutations, random_state, False)
            p_values.append(test.p_values)
        except ValueError as error:
            p_values.append(np.full(k, np.nan))
            refused[each.level] = str(error)
    _warn_once(said)
    if len(refused) == len(contrasts):
        level, reason = next(iter(refused.items()))
        raise ValueError(f"no level can be tested; {level!r}: {reason}")
    if refused:
        level, reason = next(iter(refused.items()))
        warn(
            f"{len(refused)} level(s) have no p-value ({listed(list(refused))}); "
            f"{level!r}: {reason}"
        )
    by_level = np.stack(p_values)
    known = ~np.isnan(by_level[:, 0])
    adjusted = np.full_like(by_level, np.nan)
    adjusted[known] = false_discovery_control(by_level[known], axis=0)
    place = int(found.columns.get_loc("top_genes"))
    prefix = "" if donor is not None else "exploratory_"
    found.insert(place, f"{prefix}p_value", by_level.ravel())
    found.insert(place + 1, f"{prefix}p_adjusted", adjusted.ravel())
    return found


def _warn_once(said: dict[str, list[str]]) -> None:
    """What was said of each level, once; of texts that differ by numbers alone, the first."""
    alike: dict[str, dict[str, str]] = {}
    for level, messages in said.items():
        for message in messages:
            alike.setdefault(re.sub(r"[-+]?\d[\d.e+-]*", "#", message), {})[level] = message
    for texts in alike.values():
        first, message = next(iter(texts.items()))
        differ = f" (its numbers are those of {first!r})" if len({*texts.values()}) > 1 else ""
        warn(f"of {len(texts)} level(s), {listed(list(texts))}{differ}: {message}")


def _levels(adata: AnnData, by: str, labels: NDArray[Any]) -> list[str]:
    """Levels with cells, as text: categories in their order, others sorted."""
    there = {label for label in labels if label is not None}
    column = _select.in_memory(adata.obs, by)
    if isinstance(column.dtype, pd.CategoricalDtype):
        ordered = list(dict.fromkeys(map(text, column.cat.categories)))
        return [level for level in ordered if level in there]
    return sorted(there)


def _sets(
    parts: dict[str, _read.ContrastInput],
) -> Iterator[tuple[str, _read.ContrastInput, tuple[Any, Any, dict[str, Any]]]]:
    """Foreground, background and their groups of each level: rows in memory, or moments."""
    if next(iter(parts.values())).matrix.in_memory:
        for level, data in parts.items():
            yield level, data, (data.foreground, data.background, data.groups)
        return
    levels = list(parts.items())
    for start in range(0, len(levels), _AT_ONCE):
        some = levels[start : start + _AT_ONCE]
        rows = [each for _, data in some for each in _with_groups(data)]
        moments = SecondMoments.from_parts(rows)
        if some[0][1].within is not None:
            moments = [each.within for each in moments]
        for i, (level, data) in enumerate(some):
            yield level, data, (moments[2 * i], moments[2 * i + 1], {})


def _with_groups(data: _read.ContrastInput) -> list[Any]:
    """Foreground and background with the donor of each cell, if that is told."""
    sets: list[Any] = [data.foreground, data.background]
    if data.within is None:
        return sets
    masks = data.selection.foreground, data.selection.background
    return [rows_of(rows, groups=data.within[mask]) for rows, mask in zip(sets, masks, strict=True)]
