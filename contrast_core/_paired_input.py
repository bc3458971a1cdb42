"""A foreground and a background, as moments or rows that belong together."""

from __future__ import annotations

from typing import Any

from contrast_core._validation import MatrixLike, check_same_features
from contrast_core.feedback import warn
from contrast_core.moments import (
    Moments,
    SecondMoments,
    check_moments_pair,
    is_moments,
    wide_moments,
)
from contrast_core.rows import Rows, rows_of

_SCALE_RATIO = 1e3  # total variances further apart than this are probably an oversight


def paired_moments(
    X: MatrixLike | Moments,
    background: MatrixLike | Moments,
    *,
    n_components: object = 1,
    solver: str = "auto",
    **wide: Any,
) -> tuple[Moments, Moments]:
    """Moments of foreground and background, checked to belong together.

    Parameters
    ----------
    X, background : data or moments
        See `LinearContrast.fit`.
    n_components : int, default=1
        Number of components that will be asked for.
    solver : {"auto", "eigh", "gram", "lanczos"}, default="auto"
        See `contrast_core.CPCA`.
    **wide
        What else `contrast_core.moments.wide_moments` is told.

    Raises
    ------
    TypeError
        If only one of the two is moments already.
    ValueError
        If features differ, a dataset has fewer than two rows, data are not finite, or they are not
        what `solver` needs.
    """
    _check_background_is_given(background)
    if is_moments(X) != is_moments(background):
        raise TypeError(
            f"X is {type(X).__name__} and background is {type(background).__name__}; give "
            "SecondMoments for both, or data for both."
        )
    x: Any
    y: Any
    if is_moments(X):
        x, y = check_moments_pair(X, background, solver, n_components)
    else:
        first, second = rows_of(X, "X"), rows_of(background, "background")
        _check_same_place(first, second)
        if first.place == "device" and first.shape[0] + second.shape[0] < first.shape[1]:
            # They are smaller than the covariance that would come to the host otherwise.
            first, second = (rows_of(r.load(), r.name) for r in (first, second))
        moments = wide_moments(first, second, solver=solver, n_components=n_components, **wide)
        x, y = moments or SecondMoments.from_parts([first, second])
    for moments, name in ((x, "X"), (y, "background")):
        if moments.n_samples < 2:
            raise ValueError(
                f"{name} has n_samples={moments.n_samples}, but a variance needs at least 2 rows."
            )
    check_same_features(x.n_features, x.feature_names, y.n_features, y.feature_names)
    total_x, total_y = x.total_variance, y.total_variance
    if total_x > 0 and total_y > 0 and not 1 / _SCALE_RATIO < total_x / total_y < _SCALE_RATIO:
        warn(
            f"the total variance of X is {total_x:.3g}, that of the background {total_y:.3g}; were "
            "both scaled alike? In a scikit-learn Pipeline, transform_input=['background'] makes "
            "the earlier steps transform the background too.",
        )
    return x, y


def paired_rows(X: MatrixLike, background: MatrixLike) -> tuple[Any, Any]:
    """Rows of foreground and background, checked to belong together; sparse ones become CSR.

    For what needs rows, where moments do not do.

    Raises
    ------
    TypeError
        If moments are given.
    ValueError
        If features differ, a dataset has fewer than two rows, or data are not finite.
    """
    _check_background_is_given(background)
    pair = []
    for data, name in ((X, "X"), (background, "background")):
        if is_moments(data):
            raise TypeError(
                f"{name} is {type(data).__name__}, but rows are needed here; give the data."
            )
        pair.append(rows_of(data, name, min_rows=2))
    x, y = pair
    check_same_features(x.shape[1], x.names, y.shape[1], y.names)
    return x.load(), y.load()


def _check_same_place(x: Rows, y: Rows) -> None:
    """Both are tensors on one device, or neither is a tensor."""
    if x.device == y.device:
        return
    first, second = ("no tensor" if r.device is None else f"a tensor on {r.device}" for r in (x, y))
    if x.device is None or y.device is None:
        raise TypeError(
            f"X is {first} and {y.name} is {second}; give both as tensors on one device or "
            "neither, or SecondMoments of each."
        )
    raise ValueError(
        f"X is {first} and {y.name} is {second}; both are expected on one device. Move one with "
        ".to(device), or give SecondMoments of each."
    )


def _check_background_is_given(background: object) -> None:
    if background is None:
        raise ValueError(
            "background=None was given; a contrastive method needs background rows with the "
            "features of X: fit(X, background=...)."
        )
