"""What input is accepted, and what the user reads when it is not."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    import scipy.sparse

FloatArray: TypeAlias = NDArray[np.float64]
MatrixLike: TypeAlias = "ArrayLike | scipy.sparse.spmatrix | scipy.sparse.sparray"

_CHUNK_ELEMENTS = 2**22  # 32 MB of float64: large enough for BLAS, small beside the data


class ContrastWarning(UserWarning):
    """The result means something, but probably not what was wanted."""


def check_rows(X: MatrixLike, name: str, *, min_rows: int = 0) -> Any:
    """Return `X` as a 2-D numeric ndarray or CSR matrix, without copying where possible.

    Finiteness is checked later, chunk by chunk, while the rows are read.
    """
    from sklearn.utils.validation import check_array

    rows = check_array(
        X,
        accept_sparse="csr",
        accept_large_sparse=True,
        dtype="numeric",
        ensure_all_finite=False,
        ensure_min_samples=0,
        input_name=name,
    )
    if rows.shape[0] < min_rows:
        raise ValueError(
            f"{name} has n_samples={rows.shape[0]}, but at least {min_rows} is needed (rows are "
            "samples, columns are features)."
        )
    return rows


def iter_chunks(rows: Any, name: str, *, check: bool = True, dense: bool = True) -> Iterator[Any]:
    """Yield finite blocks of rows, in the data's own dtype, of bounded size.

    CSR rows as dense ones or, with ``dense=False``, as they are.
    """
    step = rows_per_chunk(rows.shape[1])
    for start in range(0, rows.shape[0], step):
        chunk = rows[start : start + step]
        if dense and hasattr(chunk, "toarray"):
            chunk = chunk.toarray()
        if check:
            check_finite(chunk, name)
        yield chunk


def rows_per_chunk(n_features: int) -> int:
    """How many rows `iter_chunks` yields at once."""
    return max(256, _CHUNK_ELEMENTS // max(1, n_features))


def check_finite(chunk: Any, name: str) -> None:
    """Raise if a block, dense or sparse, holds NaN or infinity, with the way out."""
    sparse = hasattr(chunk, "tocoo")
    values = chunk.data if sparse else chunk
    if values.dtype.kind not in "fc":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # as scikit-learn: most data are, and it needs no memory
            return
    bad = ~np.isfinite(values)
    if not bad.any():  # the sum overflows
        return
    kind = "NaN" if np.isnan(values).any() else "inf"
    feature = int(chunk.tocoo().coords[1][bad].min() if sparse else bad.any(axis=0).argmax())
    raise ValueError(
        f"{name} contains NaN or inf ({kind} first met in feature {feature}); complete, finite "
        "data is expected. Drop or impute those entries; for data with missing values, "
        "probabilistic contrastive PCA (PCPCA; Li, Jones and Engelhardt 2020, Sec. 7) is the "
        "method that models them."
    )


def feature_names_of(X: Any) -> tuple[str, ...] | None:
    """Column names of a DataFrame-like `X` (strings only), else None."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = tuple(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def check_same_features(
    n_foreground: int,
    names_foreground: tuple[str, ...] | None,
    n_background: int,
    names_background: tuple[str, ...] | None,
    *,
    background_name: str = "background",
) -> None:
    """Both datasets must have the same features in the same order."""
    advice = "both need the same features in the same order."
    if n_foreground != n_background:
        raise ValueError(
            f"{background_name} has {n_background} features but X has {n_foreground}; {advice}"
        )
    if names_foreground is None or names_background is None:
        return
    if names_foreground == names_background:
        return
    missing = sorted(set(names_foreground) - set(names_background))
    if missing:
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise ValueError(
            f"{background_name} lacks {len(missing)} of X's features ({shown}); {advice}"
        )
    first = next(
        i for i, (x, y) in enumerate(zip(names_foreground, names_background, strict=True)) if x != y
    )
    raise ValueError(
        f"{background_name} has X's features in another order (column {first} is "
        f"{names_background[first]!r}, in X it is {names_foreground[first]!r}); {advice} "
        f"With DataFrames: {background_name}[X.columns]."
    )


def check_n_components(n_components: object, n_features: int) -> int:
    """An integer from 1 to the number of features."""
    if isinstance(n_components, bool) or not isinstance(n_components, Integral):
        raise TypeError(
            f"n_components must be an integer, got {n_components!r} "
            f"({type(n_components).__name__})."
        )
    if not 1 <= int(n_components) <= n_features:
        raise ValueError(
            f"n_components={n_components} is out of range: with {n_features} features it must be "
            f"from 1 to {n_features}."
        )
    return int(n_components)


def check_alpha(alpha: object, *, name: str = "alpha") -> float:
    """A contrast strength: a number from 0 to infinity, both included."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real):
        raise TypeError(
            f"{name} must be a number from 0 to inf, got {alpha!r} ({type(alpha).__name__})."
        )
    value = float(alpha)
    if math.isnan(value) or value < 0:
        raise ValueError(f"{name}={value:g} is out of range: it must be from 0 to inf.")
    return value


def check_beta(beta: object) -> float:
    """A contrast strength of cPCA*: a number from 0 to 1, both included."""
    if isinstance(beta, bool) or not isinstance(beta, Real):
        raise TypeError(f"beta must be a number from 0 to 1, got {beta!r} ({type(beta).__name__}).")
    value = float(beta)
    if not 0 <= value <= 1:
        raise ValueError(f"beta={value:g} is out of range: it must be from 0 to 1.")
    return value
