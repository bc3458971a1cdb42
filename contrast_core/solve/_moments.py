"""A foreground and a background as moments that belong together, in the form that is planned."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from contrast_core._validation import MatrixLike, check_same_features
from contrast_core.feedback import warn
from contrast_core.moments import (
    Form,
    Moments,
    SecondMoments,
    is_moments,
    product_moments,
    span_moments,
)
from contrast_core.rows import Rows, held, rows_of
from contrast_core.solve._plan import NAMES, SOLVERS, Plan, Task, make_plan

_SCALE_RATIO = 1e3  # total variances further apart than this are probably an oversight


def contrast_moments(
    X: MatrixLike | Rows | Moments,
    background: MatrixLike | Rows | Moments,
    *,
    n_components: object = 1,
    solver: str = "auto",
    contrasts: int = 1,
    automatic: bool = False,
    products: bool = True,
) -> tuple[Moments, Moments, Plan]:
    """Moments of foreground and background, checked to belong together, and how to solve them.

    Parameters
    ----------
    X, background : data or moments
        See `LinearContrast.fit`.
    n_components : int, default=1
        Number of components that will be asked for.
    solver : {"auto", "eigh", "gram", "lanczos"}, default="auto"
        See `contrast_core.CPCA`.
    contrasts, automatic, products
        See `Task`.

    Raises
    ------
    TypeError
        If only one of the two is moments already.
    ValueError
        If features differ, a dataset has fewer than two rows, data are not finite, `solver` is
        unknown, or moments are in another form than it needs or in different coordinates.
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} is unknown; expected one of {tuple(SOLVERS)}.")
    check_background_is_given(background)
    x: Any = X
    y: Any = background
    if is_moments(X) != is_moments(background):
        raise TypeError(
            f"X is {type(X).__name__} and background is {type(background).__name__}; give "
            "SecondMoments for both, or data for both."
        )
    given = is_moments(X)
    if not given:
        x, y = contrast_rows(X, background)
    else:
        _check_coordinates(x, y, solver)
        for moments, name in ((x, "X"), (y, "background")):
            _check_count(moments.n_samples, name)
        check_same_features(x.n_features, x.feature_names, y.n_features, y.feature_names)
    # Anything but a number is refused later, where the features are known.
    k = int(n_components) if isinstance(n_components, Integral) else 1
    options: dict[str, Any] = {
        "contrasts": contrasts,
        "automatic": automatic,
        "products": products,
        "form": SOLVERS[solver],
    }
    if given:
        plan = plan_for(x, y, k, **options)
        x, y = in_form(x, y, plan.form)
    else:
        plan = make_plan(
            Task(
                n_rows=_count(x) + _count(y),
                n_features=x.shape[1],
                n_components=k,
                entries=_entries(x, y),
                in_memory=x.in_memory and y.in_memory,
                **options,
            )
        )
        x, y = _moments_of((x, y), plan.form)
    _warn_of_scales(x, y)
    return x, y, plan


def plan_for(x: Moments, y: Moments, k: int, **options: Any) -> Plan:
    """How moments that are there already are solved; `options` are those of `Task`."""
    n_rows = x.n_samples + y.n_samples
    return make_plan(Task(n_rows, x.n_features, k, held=x.form, **options))


def contrast_rows(X: MatrixLike | Rows, background: MatrixLike | Rows) -> tuple[Rows, Rows]:
    """Rows of foreground and background, checked to belong together; nothing is read yet.

    Raises
    ------
    TypeError
        If moments are given.
    ValueError
        If features differ, or a dataset has fewer than two rows.
    """
    check_background_is_given(background)
    for data, name in ((X, "X"), (background, "background")):
        if is_moments(data):
            raise TypeError(
                f"{name} is {type(data).__name__}, but rows are needed here; give the data."
            )
    x, y = rows_of(X, "X"), rows_of(background, "background")
    check_same_features(x.shape[1], x.names, y.shape[1], y.names)
    for rows, name in ((x, "X"), (y, "background")):
        if not math.isnan(rows.shape[0]):
            _check_count(rows.shape[0], name)
    _check_same_place(x, y)
    return x, y


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


def check_background_is_given(background: object) -> None:
    """A contrast needs one."""
    if background is None:
        raise ValueError(
            "background=None was given; a contrastive method needs background rows with the "
            "features of X: fit(X, background=...)."
        )


def in_form(x: Moments, y: Moments, form: Form) -> tuple[Moments, Moments]:
    """The same moments, from products in a form with matrices."""
    if x.form != "products" or form == "products":
        return x, y
    parts: Any = (x, y)
    return _moments_of((parts[0].parts[0], parts[1].parts[0]), form)


def _moments_of(rows: tuple[Rows, Rows], form: Form) -> tuple[Moments, Moments]:
    x: Moments
    y: Moments
    match form:
        case "span":
            # Where each dataset begins must be known, as of a dask array it may not be.
            x, y = span_moments([part if part.shape[0] >= 0 else held(part) for part in rows])
        case "products":
            x, y = product_moments(rows[:1]), product_moments(rows[1:])
        case _:
            x, y = SecondMoments.from_parts(rows)
    for moments, name in ((x, "X"), (y, "background")):
        _check_count(moments.n_samples, name)
    return x, y


def _count(rows: Rows) -> int:
    """Rows, as many as could be where that is not known."""
    return 2**62 if math.isnan(rows.shape[0]) else int(rows.shape[0])


def _entries(x: Rows, y: Rows) -> int | None:
    """Stored entries, where both are sparse rows in memory."""
    if not (x.is_sparse and y.is_sparse and x.in_memory and y.in_memory):
        return None
    return sum(int(rows.load(check=False).nnz) for rows in (x, y))


def _check_count(n: float, name: str) -> None:
    if n < 2:
        raise ValueError(
            f"{name} has n_samples={n:g}, but a variance needs at least 2 rows (rows are samples, "
            "columns are features)."
        )


def _check_coordinates(x: Moments, y: Moments, solver: str) -> None:
    if x.form != y.form:
        raise ValueError(
            f"X is {type(x).__name__} and background is {type(y).__name__}; both must be moments "
            "of the same kind. Give the data of both."
        )
    if SOLVERS[solver] not in (None, x.form):
        raise ValueError(
            f"solver={solver!r} was asked for, but X and background are {type(x).__name__}, which "
            f"serve solver={NAMES[x.form]!r} only; give the data, or solver='auto'."
        )
    if x.n_features == y.n_features and not x.shares_coordinates(y):
        raise ValueError(
            f"X and background are {type(x).__name__} that were not made together, so their "
            "coordinates differ; take both from one fit, or give the data."
        )


def _warn_of_scales(x: Moments, y: Moments) -> None:
    total_x, total_y = x.total_variance, y.total_variance
    if total_x > 0 and total_y > 0 and not 1 / _SCALE_RATIO < total_x / total_y < _SCALE_RATIO:
        warn(
            f"the total variance of X is {total_x:.3g}, that of the background {total_y:.3g}; were "
            "both scaled alike? In a scikit-learn Pipeline, transform_input=['background'] makes "
            "the earlier steps transform the background too."
        )


def loaded_rows(X: MatrixLike | Rows, background: MatrixLike | Rows) -> tuple[Any, Any]:
    """`contrast_rows` in memory, ndarrays or CSR matrices of finite values, for what needs them."""
    x, y = contrast_rows(X, background)
    return x.load(), y.load()
