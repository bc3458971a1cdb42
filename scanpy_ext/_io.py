"""AnnData to arrays and back: which cells, which genes, and where the results go."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from contrast_core import ContrastWarning

if TYPE_CHECKING:
    from anndata import AnnData

    from ._keys import Keys

Level: TypeAlias = str | float | bool
Mask: TypeAlias = "str | Sequence[bool] | NDArray[np.bool_] | pd.Series[bool]"
BoolArray: TypeAlias = NDArray[np.bool_]


class Default(Enum):
    """Marks an argument that was not given, where None is a choice of its own."""

    value_ = "default"

    def __repr__(self) -> str:
        return "<default>"


DEFAULT = Default.value_


class Selection(NamedTuple):
    """The two sets of cells, and how they were asked for (fit for `.uns`)."""

    foreground: BoolArray
    background: BoolArray
    params: dict[str, Any]


@dataclass(frozen=True)
class ContrastInput:
    """What a method needs from an AnnData, read and checked.

    Attributes
    ----------
    matrix
        All cells and the genes in use, (n_obs, n_features): dense or CSR, as it was.
    selection
        The foreground and background cells.
    features
        The genes in use, a mask of shape (n_vars,).
    params
        How the input was asked for, fit for `.uns`.
    """

    matrix: Any
    selection: Selection
    features: BoolArray
    params: dict[str, Any]

    @property
    def foreground(self) -> Any:
        """The foreground cells, (n, n_features)."""
        return self.matrix[self.selection.foreground]

    @property
    def background(self) -> Any:
        """The background cells, (m, n_features)."""
        return self.matrix[self.selection.background]

    @property
    def sizes(self) -> dict[str, int]:
        """How many cells the two sets have, fit for `.uns`."""
        return {
            "n_foreground": int(self.selection.foreground.sum()),
            "n_background": int(self.selection.background.sum()),
        }

    def loadings(self, components: NDArray[np.floating]) -> NDArray[np.floating]:
        """Components (k, n_features) as loadings (n_vars, k), zero for genes not in use."""
        loadings = np.zeros((self.features.size, components.shape[0]), components.dtype)
        loadings[self.features] = components.T
        return loadings


def read(
    adata: AnnData,
    *,
    groupby: str | None,
    reference: Level | None,
    groups: Level | Iterable[Level] | None,
    include_reference: bool,
    foreground: Mask | None,
    background: Mask | None,
    n_comps: int,
    layer: str | None,
    mask_var: Mask | Default | None,
) -> ContrastInput:
    """Select cells and genes, check them, and read the matrix once."""
    if foreground is None and background is None:
        selection = _select_by_level(adata, groupby, reference, groups, include_reference)
    else:
        by_level = {
            "groupby": groupby is not None,
            "reference": reference is not None,
            "groups": groups is not None,
            "include_reference=False": not include_reference,
        }
        if given := [name for name, was_given in by_level.items() if was_given]:
            raise ValueError(
                f"got masks (foreground, background) together with {', '.join(given)}. "
                "Choose the cells by one of the two: groupby and reference, or two masks."
            )
        selection = _select_by_mask(adata, foreground, background)

    matrix, features, params = read_matrix(adata, layer=layer, mask_var=mask_var, n_comps=n_comps)
    return ContrastInput(matrix, selection, features, selection.params | params)


def read_matrix(
    adata: AnnData, *, layer: str | None, mask_var: Mask | Default | None, n_comps: int
) -> tuple[Any, BoolArray, dict[str, Any]]:
    """All cells and the genes in use, checked; the mask of the genes; and both fit for `.uns`."""
    features, mask_name = _select_features(adata, mask_var)
    n_features = int(features.sum())
    if isinstance(n_comps, bool) or not isinstance(n_comps, (int, np.integer)):
        raise TypeError(f"n_comps={n_comps!r}: expected a whole number.")
    if not 1 <= n_comps <= n_features:
        raise ValueError(
            f"n_comps={n_comps}, but it must be from 1 to {n_features} (genes in use)."
        )

    matrix = _matrix(adata, layer)
    if n_features < features.size:
        matrix = matrix[:, features]
    if sp.issparse(matrix):
        matrix = matrix.tocsr()  # rows are selected next; a no-op for CSR
    _check_finite(matrix, "adata.X" if layer is None else f"adata.layers[{layer!r}]")
    params = storable(n_comps=int(n_comps), n_features=n_features, layer=layer, mask_var=mask_name)
    return matrix, features, params


def warn_of_counts(matrix: Any, *, stacklevel: int) -> None:
    """Warn if the values are whole numbers, as counts are and their logarithms are not."""
    values = matrix.data[: 10**6] if sp.issparse(matrix) else matrix[:1000]
    if values.size and values.max() > 1 and np.array_equal(values, np.rint(values)):
        warnings.warn(
            f"the values look like raw counts (whole numbers, up to {values.max():g}). Give log-"
            "normalised counts: sc.pp.normalize_total(adata, target_sum=1e4); sc.pp.log1p(adata).",
            ContrastWarning,
            stacklevel=stacklevel + 1,
        )


def write(
    adata: AnnData,
    *,
    uns: Mapping[str, Mapping[str, Any]],
    copy: bool,
    obsm: Mapping[str, NDArray[np.floating]] = MappingProxyType({}),
    varm: Mapping[str, NDArray[np.floating]] = MappingProxyType({}),
    obsp: Mapping[str, sp.csr_matrix] = MappingProxyType({}),
    stale: Iterable[Keys] = (),
) -> AnnData | None:
    """Write finished results, into a copy (returned) or into `adata` itself (None is returned).

    A view becomes an AnnData of its own, with anndata's warning, as under `sc.pp.pca`.
    The `stale` slots of an earlier call are removed.
    """
    target = adata.copy() if copy else adata
    # Looked up anew for each entry: the first one written turns a view into a new object.
    for key, array in obsm.items():
        target.obsm[key] = array
    for key, array in varm.items():
        target.varm[key] = array
    for key, array in obsp.items():
        target.obsp[key] = array
    for key, entry in uns.items():
        target.uns[key] = dict(entry)
    for keys in stale:
        target.obsm.pop(keys.obsm, None)
        target.varm.pop(keys.varm, None)
    return target if copy else None


def storable(**arguments: Any) -> dict[str, Any]:
    """The arguments that an h5ad or zarr file can hold: those that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def boolean_mask(
    adata: AnnData, mask: Mask, *, axis: Literal["obs", "var"], argument: str
) -> BoolArray:
    """A mask, or the boolean column that it names, as an array with at least one True."""
    frame: pd.DataFrame = getattr(adata, axis)
    if isinstance(mask, str):
        what = f"{argument}: adata.{axis}[{mask!r}]"
        if mask not in frame.columns:
            boolean = [str(name) for name in frame if frame[name].dtype in ("bool", "boolean")]
            raise ValueError(
                f"{argument}: adata.{axis} has no column {mask!r}. "
                f"Its boolean columns are {listed(boolean)}."
            )
        values = frame[mask]
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


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names for an error message, cut short when there are many."""
    if not names:
        return "(none)"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def _select_by_mask(adata: AnnData, foreground: Mask | None, background: Mask | None) -> Selection:
    if foreground is None or background is None:
        missing = "foreground" if foreground is None else "background"
        raise ValueError(f"{missing} is missing: give both masks, foreground and background.")
    given = {"foreground": foreground, "background": background}
    masks = {
        name: boolean_mask(adata, mask, axis="obs", argument=name) for name, mask in given.items()
    }
    for name, mask in masks.items():
        _check_two(mask, name)
    params = {name: mask for name, mask in given.items() if isinstance(mask, str)}
    return Selection(**masks, params=params)


def _select_by_level(
    adata: AnnData,
    groupby: str | None,
    reference: Level | None,
    groups: Level | Iterable[Level] | None,
    include_reference: bool,
) -> Selection:
    if groupby is None:
        raise ValueError(
            "no cells were chosen. Give groupby= and reference= (a column of adata.obs and the "
            "level that is the background), or the masks foreground= and background=."
        )
    if groupby not in adata.obs.columns:
        raise ValueError(
            f"groupby: adata.obs has no column {groupby!r}. "
            f"Its columns are {listed([str(name) for name in adata.obs.columns])}."
        )
    column = adata.obs[groupby]
    levels = list(column.dropna().unique())
    if isinstance(column.dtype, pd.CategoricalDtype):
        levels = [level for level in column.cat.categories if level in set(levels)]

    if reference is None:
        raise ValueError(
            f"reference is missing: which level of adata.obs[{groupby!r}] is the background? "
            f"Its levels are {listed([text(level) for level in levels])}."
        )
    reference = _find_level(column, levels, reference, "reference")
    if groups is None:
        chosen = [level for level in levels if level != reference]
        if not chosen:
            raise ValueError(
                f"adata.obs[{groupby!r}] has cells of one level only, the reference "
                f"{text(reference)!r}: nothing is left for the foreground."
            )
    else:
        asked = [groups] if isinstance(groups, Level) or not _iterable(groups) else list(groups)
        chosen = list(dict.fromkeys(_find_level(column, levels, g, "groups") for g in asked))
        if not chosen:
            raise ValueError(
                f"groups is empty: name levels of adata.obs[{groupby!r}], or leave it out."
            )
        if reference in chosen and not include_reference:
            raise ValueError(
                f"groups names the reference {text(reference)!r}, but include_reference=False "
                "keeps it out of the foreground. Drop one of the two."
            )

    background = (column == reference).to_numpy(dtype=bool, na_value=False)
    foreground = column.isin(chosen).to_numpy(dtype=bool)
    if include_reference:
        foreground = foreground | background
    _check_two(foreground, f"the foreground (adata.obs[{groupby!r}] in groups)")
    _check_two(background, f"the background (adata.obs[{groupby!r}] == {text(reference)!r})")
    params = {
        "groupby": groupby,
        "reference": text(reference),
        "groups": np.array([text(level) for level in chosen], dtype=object),
        "include_reference": bool(include_reference),
    }
    return Selection(foreground, background, params)


def _find_level(column: pd.Series[Any], levels: list[Any], wanted: Any, argument: str) -> Any:
    """The level equal to `wanted`, or written like it: 0, 0.0 and "0" find each other."""
    for same in (lambda level: level == wanted, lambda level: text(level) == text(wanted)):
        if found := [level for level in levels if same(level)]:
            return found[0]
    unused = isinstance(column.dtype, pd.CategoricalDtype) and text(wanted) in map(
        text, column.cat.categories
    )
    problem = "is a category without cells" if unused else "is not a level"
    raise ValueError(
        f"{argument}: {text(wanted)!r} {problem} of adata.obs[{column.name!r}]. "
        f"The levels with cells are {listed([text(level) for level in levels])}."
    )


def text(level: Any) -> str:
    # A column of whole numbers turns to floats when it has gaps: 1.0 still stands for "1".
    if isinstance(level, (float, np.floating)) and float(level).is_integer():
        return str(int(level))
    return str(level)


def _iterable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


def _check_two(mask: BoolArray, what: str) -> None:
    if mask.sum() < 2:
        raise ValueError(f"{what} has {mask.sum()} cell; a covariance needs at least 2.")


def _select_features(
    adata: AnnData, mask_var: Mask | Default | None
) -> tuple[BoolArray, str | None]:
    if mask_var is DEFAULT:
        mask_var = "highly_variable" if "highly_variable" in adata.var.columns else None
    if mask_var is None:
        return np.ones(adata.n_vars, dtype=bool), None
    features = boolean_mask(adata, mask_var, axis="var", argument="mask_var")
    return features, mask_var if isinstance(mask_var, str) else None


def _matrix(adata: AnnData, layer: str | None) -> Any:
    if layer is not None and layer not in adata.layers:
        raise ValueError(
            f"layer: adata.layers has no {layer!r}. Its layers are {listed(list(adata.layers))}."
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError("adata.X is None: name the layer to use, layer=...")
    if sp.issparse(matrix) and matrix.format in ("csr", "csc"):
        return matrix
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix)
    kind = type(matrix)
    raise TypeError(
        f"the matrix is a {kind.__module__}.{kind.__qualname__}; expected a numpy array or a CSR "
        "or CSC matrix in memory. Load a backed or lazy AnnData first with adata.to_memory()."
    )


def _check_finite(matrix: Any, what: str) -> None:
    values = matrix.data if sp.issparse(matrix) else matrix
    # The sum is finite only if every value is, and needs no second array as large as the data.
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(
            f"{what} has {bad} NaN or infinite values in the genes in use. Leave these genes out "
            "with mask_var=, or remove or impute the values first."
        )
