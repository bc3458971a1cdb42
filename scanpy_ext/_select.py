"""Selection of cells and genes by masks, columns and levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.feedback import shown, warn

from ._arguments import check_anndata, is_among, listed, text

Level: TypeAlias = str | float | bool
Levels: TypeAlias = Level | Iterable[Level]
Mask: TypeAlias = "str | Sequence[bool] | NDArray[np.bool_] | pd.Series[bool]"
BoolArray: TypeAlias = NDArray[np.bool_]


class Default(Enum):
    """Marker for an argument that was not given, if None is a valid value of the argument."""

    DEFAULT = "default"


DEFAULT = Default.DEFAULT
_NAN_TEXTS = ("nan", "NaN", "<NA>")


class Selection(NamedTuple):
    """Masks of the two sets of cells, and the arguments that chose them (storable in `.uns`).

    If the background is another AnnData, `other` is that AnnData.
    """

    foreground: BoolArray
    background: BoolArray
    params: dict[str, Any]
    other: AnnData | None = None


def cells(
    adata: AnnData,
    groupby: str | None,
    reference: Levels | None,
    groups: Levels | None,
    foreground: Mask | None,
    background: Mask | AnnData | None,
) -> Selection:
    """Return the foreground and background cells, chosen by levels of a column or by masks."""
    if foreground is None and background is None:
        return _by_level(adata, groupby, reference, groups)
    by_level = {"groupby": groupby, "reference": reference, "groups": groups}
    if given := [name for name, value in by_level.items() if value is not None]:
        raise ValueError(
            f"got masks (foreground, background) together with {', '.join(given)}. "
            "Choose the cells by one of the two: groupby and reference, or two masks."
        )
    return _by_mask(adata, foreground, background)


def genes(adata: AnnData, mask_var: Mask | Default | None) -> tuple[BoolArray, str | None]:
    """Return the mask of the genes in use, and the name of the column that holds it, or None."""
    if mask_var is DEFAULT:
        mask_var = "highly_variable" if "highly_variable" in adata.var.columns else None
    if mask_var is None:
        return np.ones(adata.n_vars, dtype=bool), None
    features = boolean_mask(adata, mask_var, axis="var", argument="mask_var")
    return features, mask_var if isinstance(mask_var, str) else None


def boolean_mask(
    adata: AnnData, mask: Mask, *, axis: Literal["obs", "var"], argument: str
) -> BoolArray:
    """Return a boolean array, from values or from the name of a column of `.obs` or `.var`.

    ValueError is raised if no value is True.
    """
    frame: pd.DataFrame = getattr(adata, axis)
    if isinstance(mask, str):
        what = f"{argument}: adata.{axis}[{mask!r}]"
        if mask not in frame.columns:
            boolean = [str(one) for one in frame if frame[one].dtype in ("bool", "boolean")]
            raise ValueError(
                f"{argument}: adata.{axis} has no column {mask!r}. "
                f"Its boolean columns are {listed(boolean)}."
            )
        values = in_memory(frame, mask)
    else:
        what = argument
        if np.shape(mask) != (len(frame),):
            raise ValueError(
                f"{argument} has shape {np.shape(mask)}, but adata.{axis} has {len(frame)} rows. "
                "Expected one True or False for each."
            )
        if isinstance(mask, pd.Series) and not mask.index.equals(frame.index):
            raise ValueError(
                f"{argument} is a Series whose index is not adata.{axis}_names. Give it in that "
                "order and with that index, or as an array."
            )
        values = pd.Series(mask)
    truths = values.convert_dtypes()  # anndata.concat can make boolean columns object columns
    if truths.dtype != "boolean":
        raise TypeError(
            f"{what} has dtype {values.dtype}, but a mask must be boolean. "
            f"Make one by a comparison, such as adata.{axis}[...] == value."
        )
    selected: BoolArray = truths.fillna(False).to_numpy(dtype=bool)
    if not selected.any():
        raise ValueError(f"{what} selects nothing: no value is True.")
    return selected


def column(
    adata: AnnData, name: str, argument: str, *, nan_texts: Sequence[str] = _NAN_TEXTS
) -> pd.Series[Any]:
    """Return the levels of a column of `adata.obs` as text, None where there is no value.

    ValueError is raised if a value is one of `nan_texts`, into which `astype(str)` turns missing
    values.
    """
    if not is_among(name, adata.obs.columns):
        raise ValueError(
            f"{argument}: adata.obs has no column {shown(name)}. "
            f"Its columns are {listed([str(column) for column in adata.obs.columns])}."
        )
    column = in_memory(adata.obs, name)
    try:
        codes, found = pd.factorize(column)
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in column})
        raise TypeError(
            f"{argument}: adata.obs[{name!r}] holds values of type {', '.join(kinds)}, which "
            "cannot be compared; expected text, numbers or categories."
        ) from error
    levels = np.array([*map(text, found.array), None], dtype=object)
    for word in set(nan_texts).intersection(levels):
        n_cells = int((levels[codes] == word).sum())
        raise ValueError(
            f"{argument}: {n_cells} cells of adata.obs[{name!r}] have the text {word!r}, which "
            "astype(str) writes for missing values. Make these values missing again: "
            f"adata.obs[{name!r}] = adata.obs[{name!r}].astype(object).replace({word!r}, None)."
        )
    return pd.Series(levels[codes], dtype=object)


def in_memory(frame: Any, name: str) -> pd.Series[Any]:
    """Return a column of `.obs` or `.var`, which is read from the file if the AnnData is lazy."""
    column = frame[name]
    return column if isinstance(column, pd.Series) else frame[[name]].to_memory()[name]


def donor_column(adata: AnnData, name: str, argument: str) -> pd.Series[Any]:
    """Return the donor, animal or batch of each cell as text, None where there is no value.

    ValueError is raised if a value is the text "None" or another text of missing values. There is a
    warning if each cell has a level of its own, because the column then does not hold donors.
    """
    labels = column(adata, name, argument, nan_texts=(*_NAN_TEXTS, "None"))
    n_levels, n_cells = labels.nunique(), int(labels.notna().sum())
    if n_levels == n_cells > 1:
        warn(
            f"{argument}: adata.obs[{name!r}] has a different level in each of its {n_cells} "
            "cells. Name the column of the donors (animals, cultures) that the cells come from."
        )
    return labels


def known_labels(
    adata: AnnData, name: str, argument: str, used: BoolArray | slice = slice(None)
) -> NDArray[np.str_]:
    """Return the donor or batch of every cell in `used`, as text.

    ValueError is raised if a cell has none.
    """
    labels = np.asarray(donor_column(adata, name, argument), dtype=object)[used]
    missing = int(sum(label is None for label in labels))
    if missing:
        which = "cells" if isinstance(used, slice) else "foreground or background cells"
        raise ValueError(
            f"{argument}: {missing} {which} have no value in adata.obs[{name!r}]. Leave these "
            "cells out, or fill in their values."
        )
    return labels.astype(str)


def check_donor(donor: object, groupby: object, name: str = "donor") -> None:
    """Raise ValueError if the same column holds the donors and the conditions."""
    if isinstance(donor, str) and isinstance(groupby, str) and donor == groupby:
        raise ValueError(
            f"{name} and groupby are both {donor!r}. Give as {name}= the column of the animals, "
            "cultures or people that the cells come from, and as groupby= the column of their "
            "conditions."
        )


def _by_mask(
    adata: AnnData, foreground: Mask | None, background: Mask | AnnData | None
) -> Selection:
    given: dict[str, Any] = {"foreground": foreground, "background": background}
    if hasattr(background, "obs_names"):
        check_anndata(background, "background")
        del given["background"]
        if foreground is None:
            given["foreground"] = np.ones(adata.n_obs, dtype=bool)
    if missing := [name for name, mask in given.items() if mask is None]:
        raise ValueError(f"{missing[0]} is missing: give both masks, foreground and background.")
    masks = {
        name: boolean_mask(adata, mask, axis="obs", argument=name) for name, mask in given.items()
    }
    params = {name: mask for name, mask in given.items() if isinstance(mask, str)}
    _check_sets(masks)
    if "background" in masks:
        return Selection(**masks, params=params)
    nothing = np.zeros(adata.n_obs, dtype=bool)
    return Selection(masks["foreground"], nothing, params, cast("AnnData", background))


def _by_level(
    adata: AnnData, groupby: str | None, reference: Levels | None, groups: Levels | None
) -> Selection:
    if groupby is None:
        raise ValueError(
            "no cells were chosen. Give groupby= and reference= (a column of adata.obs and the "
            "level that is the background), or the masks foreground= and background=."
        )
    labels = column(adata, groupby, "groupby", nan_texts=_NAN_TEXTS if groups is None else ())
    levels = list(labels.dropna().unique())
    if reference is None:
        raise ValueError(
            f"reference is missing: which level of adata.obs[{groupby!r}] is the background? "
            f"Its levels are {listed(levels)}."
        )

    def find(wanted: Levels, argument: str) -> list[str]:
        """Return the levels that were given, one or several, without duplicates."""
        several = isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes)
        given: Any = wanted if several else [wanted]
        asked = list(dict.fromkeys(map(text, given)))
        unknown = [each for each in asked if each not in levels]
        if unknown or not asked:
            what = f"no cell has the level {shown(unknown[0])}" if unknown else "no level was given"
            raise ValueError(
                f"{argument}: {what} of adata.obs[{groupby!r}]. "
                f"The levels with cells are {listed(levels)}."
            )
        return asked

    references = find(reference, "reference")
    named = ", ".join(map(repr, references))
    others = [level for level in levels if level not in references]
    chosen = others if groups is None else find(groups, "groups")
    in_background = labels.isin(references).to_numpy(dtype=bool)
    in_foreground = labels.isin(chosen).to_numpy(dtype=bool) | in_background
    sets = {
        f"the foreground (adata.obs[{groupby!r}] in groups)": in_foreground,
        f"the background (adata.obs[{groupby!r}] == {named})": in_background,
    }
    _check_sets(sets)
    texts = np.array(references, dtype=object)
    params = {
        "groupby": groupby,
        "reference": texts if len(texts) > 1 else texts[0],
        "groups": np.array(chosen, dtype=object),
    }
    return Selection(in_foreground, in_background, params)


def _check_sets(masks: dict[str, BoolArray]) -> None:
    """Raise ValueError if a set has fewer than two cells, or two sets have the same cells."""
    for what, mask in masks.items():
        if mask.sum() < 2:
            raise ValueError(f"{what} has {mask.sum()} cell(s); a covariance needs at least 2.")
    first, *others = masks.values()
    if any((first == other).all() for other in others):
        raise ValueError(
            "foreground and background are the same cells: there is nothing to contrast. The "
            "background must be other cells, such as controls or another condition."
        )
