"""Selection of cells and genes by masks, columns and levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.feedback import warn

from ._arguments import check_anndata, is_among, is_anndata, listed, quoted, text

Level: TypeAlias = str | float | bool
Levels: TypeAlias = Level | Iterable[Level]
Mask: TypeAlias = "str | Sequence[bool] | NDArray[np.bool_] | pd.Series[bool]"
BoolArray: TypeAlias = NDArray[np.bool_]


class Default(Enum):
    """Marker for an argument that was not given, if None is a valid value of the argument."""

    value_ = "default"

    def __repr__(self) -> str:
        return "<default>"


DEFAULT = Default.value_
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
    """Return the foreground and background cells, by a column and its levels or by two masks."""
    if foreground is None and background is None:
        return _by_level(adata, groupby, reference, groups)
    by_level = {
        "groupby": groupby is not None,
        "reference": reference is not None,
        "groups": groups is not None,
    }
    if given := [name for name, was_given in by_level.items() if was_given]:
        raise ValueError(
            f"got masks (foreground, background) together with {', '.join(given)}. "
            "Choose the cells by one of the two: groupby and reference, or two masks."
        )
    return _by_mask(adata, foreground, background)


def genes(adata: AnnData, mask_var: Mask | Default | None) -> tuple[BoolArray, str | None]:
    """Return the mask of the genes in use, and the name of its column if it is a column."""
    if mask_var is DEFAULT:
        mask_var = "highly_variable" if "highly_variable" in adata.var.columns else None
    if mask_var is None:
        return np.ones(adata.n_vars, dtype=bool), None
    features = boolean_mask(adata, mask_var, axis="var", argument="mask_var")
    return features, mask_var if isinstance(mask_var, str) else None


def boolean_mask(
    adata: AnnData, mask: Mask, *, axis: Literal["obs", "var"], argument: str
) -> BoolArray:
    """Return a mask, or the boolean column that it names, as an array with at least one True."""
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
    if values.dtype == object and values.dropna().map(lambda one: isinstance(one, bool)).all():
        values = values.astype("boolean")  # concatenating several AnnData leaves such columns
    if values.dtype == "boolean":
        values = values.fillna(False)
    elif values.dtype != "bool":
        raise TypeError(
            f"{what} has dtype {values.dtype}, but a mask must be boolean. "
            f"Make one by a comparison, such as adata.{axis}[...] == value."
        )
    selected: BoolArray = values.to_numpy(dtype=bool)
    if not selected.any():
        raise ValueError(f"{what} selects nothing: no value is True.")
    return selected


def column(
    adata: AnnData, name: str, argument: str, *, nan_texts: Sequence[str] = _NAN_TEXTS
) -> pd.Series[Any]:
    """Return the levels of a column of `adata.obs` as text, None where there is no value.

    Refuses `nan_texts`, the texts that missing values turn into.
    """
    if not is_among(name, adata.obs.columns):
        raise ValueError(
            f"{argument}: adata.obs has no column {quoted(name)}. "
            f"Its columns are {listed([str(column) for column in adata.obs.columns])}."
        )
    column = in_memory(adata.obs, name)
    check_no_nan_text(column, argument, nan_texts)
    try:
        column.unique()
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in column})
        raise TypeError(
            f"{argument}: adata.obs[{name!r}] holds {', '.join(kinds)}, which cannot be told "
            "apart; expected text, numbers or categories."
        ) from error
    if isinstance(column.dtype, pd.CategoricalDtype):  # there are fewer categories than cells
        levels = np.array([*map(text, column.cat.categories), None], dtype=object)
        return pd.Series(levels[column.cat.codes.to_numpy()], dtype=object)
    texts = np.array([text(level) for level in column.array], dtype=object)
    texts[column.isna().to_numpy()] = None
    return pd.Series(texts, dtype=object)


def in_memory(frame: Any, name: str) -> pd.Series[Any]:
    """Return a column of `.obs` or `.var`, which is read from the file if the AnnData is lazy."""
    column = frame[name]
    return column if isinstance(column, pd.Series) else frame[[name]].to_memory()[name]


def donor_column(adata: AnnData, name: str, argument: str) -> pd.Series[Any]:
    """Return the donor, animal or batch of each cell as text, None where there is no value.

    Refuses the text "None", which is not a donor's name, and warns if every cell is its own donor.
    """
    labels = column(adata, name, argument, nan_texts=(*_NAN_TEXTS, "None"))
    n_levels, n_cells = labels.nunique(), int(labels.notna().sum())
    if n_levels == n_cells > 1:
        warn(
            f"{argument}: adata.obs[{name!r}] has another level in each of its {n_cells} cells. "
            "Name the column of the donors (animals, cultures) that the cells come from."
        )
    return labels


def known_labels(
    adata: AnnData, name: str, argument: str, used: BoolArray | slice = slice(None)
) -> NDArray[np.str_]:
    """Return the donor or batch of every cell, or of those in use, as text."""
    labels = np.asarray(donor_column(adata, name, argument), dtype=object)[used]
    missing = int(sum(label is None for label in labels))
    if missing:
        which = "cells" if isinstance(used, slice) else "foreground or background cells"
        raise ValueError(
            f"{argument}: {missing} {which} have no value in adata.obs[{name!r}]. Drop these "
            "cells, or name them."
        )
    return labels.astype(str)


def check_donor(donor: object, groupby: object) -> None:
    """Raise ValueError if the donors are the conditions."""
    if isinstance(donor, str) and isinstance(groupby, str) and donor == groupby:
        raise ValueError(
            f"donor and groupby are both {donor!r}: donor= is the column of the animals, cultures "
            "or people that the cells come from, groupby= that of their condition."
        )


def check_no_nan_text(column: pd.Series[Any], argument: str, texts: Sequence[str]) -> None:
    """Raise ValueError if missing values were turned into text, which would count as a level."""
    turned = column.isin(texts).to_numpy(dtype=bool)
    if turned.any():
        word = str(column[turned].iloc[0])
        raise ValueError(
            f"{argument}: {int(turned.sum())} cells of adata.obs[{column.name!r}] have the text "
            f"{word!r}, as missing values become by astype(str). Make them missing again: "
            f"adata.obs[{column.name!r}] = adata.obs[{column.name!r}].astype(object)"
            f".replace({word!r}, None)."
        )


def _by_mask(
    adata: AnnData, foreground: Mask | None, background: Mask | AnnData | None
) -> Selection:
    if is_anndata(background):
        check_anndata(background, "background")
        chosen = np.ones(adata.n_obs, dtype=bool)
        if foreground is not None:
            chosen = boolean_mask(adata, foreground, axis="obs", argument="foreground")
        _check_two(chosen, "foreground")
        named = {"foreground": foreground} if isinstance(foreground, str) else {}
        return Selection(chosen, np.zeros(adata.n_obs, dtype=bool), named, background)
    if foreground is None or background is None:
        missing = "foreground" if foreground is None else "background"
        raise ValueError(f"{missing} is missing: give both masks, foreground and background.")
    given: dict[str, Any] = {"foreground": foreground, "background": background}
    masks = {
        name: boolean_mask(adata, mask, axis="obs", argument=name) for name, mask in given.items()
    }
    for name, mask in masks.items():
        _check_two(mask, name)
    _check_differ(**masks)
    params = {name: mask for name, mask in given.items() if isinstance(mask, str)}
    return Selection(**masks, params=params)


def _by_level(
    adata: AnnData,
    groupby: str | None,
    reference: Levels | None,
    groups: Levels | None,
) -> Selection:
    if groupby is None:
        raise ValueError(
            "no cells were chosen. Give groupby= and reference= (a column of adata.obs and the "
            "level that is the background), or the masks foreground= and background=."
        )
    labels = column(adata, groupby, "groupby", nan_texts=_NAN_TEXTS if groups is None else ())
    levels = list(dict.fromkeys(labels.dropna()))
    kind = in_memory(adata.obs, groupby).dtype
    is_categorical = isinstance(kind, pd.CategoricalDtype)
    categories = [*map(text, kind.categories)] if is_categorical else levels
    levels = [each for each in categories if each in levels]
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
        if not asked:
            raise ValueError(
                f"{argument} is empty: name levels of adata.obs[{groupby!r}], or leave it out."
            )
        for each in asked:
            if each not in levels:
                problem = "is a category without cells" if each in categories else "is not a level"
                raise ValueError(
                    f"{argument}: {each!r} {problem} of adata.obs[{groupby!r}]. "
                    f"The levels with cells are {listed(levels)}."
                )
        return asked

    references = find(reference, "reference")
    named = ", ".join(map(repr, references))
    chosen = [level for level in levels if level not in references]
    if groups is not None:
        chosen = find(groups, "groups")
    elif not chosen:
        raise ValueError(
            f"adata.obs[{groupby!r}] has cells of one level only, the reference {named}: nothing "
            "is left for the foreground."
        )

    in_background = labels.isin(references).to_numpy(dtype=bool)
    in_foreground = labels.isin(chosen).to_numpy(dtype=bool) | in_background
    _check_two(in_foreground, f"the foreground (adata.obs[{groupby!r}] in groups)")
    _check_two(in_background, f"the background (adata.obs[{groupby!r}] == {named})")
    _check_differ(in_foreground, in_background)
    texts = np.array(references, dtype=object)
    params = {
        "groupby": groupby,
        "reference": texts if len(texts) > 1 else texts[0],
        "groups": np.array(chosen, dtype=object),
    }
    return Selection(in_foreground, in_background, params)


def _check_differ(foreground: BoolArray, background: BoolArray) -> None:
    if (foreground == background).all():
        raise ValueError(
            "foreground and background are the same cells: there is nothing to contrast. The "
            "background is what is to be left out: controls, another condition."
        )


def _check_two(mask: BoolArray, what: str) -> None:
    if mask.sum() < 2:
        raise ValueError(f"{what} has {mask.sum()} cell; a covariance needs at least 2.")
