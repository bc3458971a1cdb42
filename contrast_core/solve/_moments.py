"""Compute the moments of a foreground and a background in the form that the plan chooses.

Problem: users give data or moments of many kinds, but solvers need two covariances in the same
coordinates. This module checks that both datasets have the same features, are on the same device,
and have enough rows. It warns if their scales differ by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray, MatrixLike, check_same_features
from contrast_core.feedback import warn
from contrast_core.moments import (
    Form,
    Moments,
    ProductMoments,
    SecondMoments,
    check_mix,
    is_moments,
    mixed,
    product_moments,
    span_moments,
)
from contrast_core.rows import Rows, load_into_memory
from contrast_core.solve._contrast import check_range
from contrast_core.solve._design import Design, background_names, listed_backgrounds
from contrast_core.solve._plan import NAMES, SOLVERS, Plan, ProblemSize, make_plan

_PLAIN = Design()  # neither labels nor weights
_SCALE_RATIO = 1e3  # a larger ratio of the total variances is probably an oversight


def contrast_moments(
    X: MatrixLike | Rows | Moments,
    background: MatrixLike | Rows | Moments,
    *,
    n_components: object = 1,
    solver: str = "auto",
    contrasts: int = 1,
    automatic: bool = False,
    products: bool = True,
    design: Design = _PLAIN,
    one_scale: bool = False,
    optional: bool = False,
) -> tuple[Moments, Moments, Plan]:
    """Return moments of both datasets in the same coordinates, and the plan for solving them.

    Parameters
    ----------
    X, background : data or moments
        See `CPCA.fit`.
    n_components : int, default=1
        Number of components that will be computed.
    solver : {"auto", "eigh", "gram", "lanczos"}, default="auto"
        See `contrast_core.CPCA`.
    contrasts, automatic, products
        See `ProblemSize`. Products are not used for rows with labels or weights, or for several
        backgrounds.
    design : Design
        Labels and weights of rows, and the weights of several backgrounds.
    one_scale : bool, default=False
        Whether both datasets are known to have the same units. If True, there is no warning about
        total variances that differ by orders of magnitude.
    optional : bool, default=False
        Whether the background may be None. If it is None, the moments of the foreground are
        returned in the place of the background's moments.

    Raises
    ------
    TypeError
        If only one of the two is given as moments, or labels or weights are given with moments.
    ValueError
        If features differ, a dataset has fewer than two rows, data are not finite, `solver` is
        unknown, or the moments are in different coordinates or in a form that the solver cannot
        use.
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} is unknown; expected one of {tuple(SOLVERS)}.")
    check_background_is_given(background, optional)
    backgrounds, several = ([], False) if background is None else listed_backgrounds(background)
    names = background_names(len(backgrounds), several)[: len(backgrounds)]
    given = is_moments(X)
    for each in backgrounds:
        if is_moments(each) != given:
            raise TypeError(
                f"X is {type(X).__name__} and background is {type(each).__name__}; give "
                "SecondMoments for both, or data for both."
            )
    simple = not (several or design.labels_rows)
    # An n_components that is not an integer is refused later, when the number of features is known.
    k = int(n_components) if isinstance(n_components, Integral) else 1
    options: dict[str, Any] = {
        "contrasts": contrasts,
        "automatic": automatic,
        "products": products and simple,
        "form": SOLVERS[solver],
    }
    parts: Any = (X, *backgrounds)
    if given:
        if design.labels_rows:
            raise TypeError(
                f"X is {type(X).__name__}, so groups (within) and weights cannot be given to fit. "
                "Give them when the moments are computed: SecondMoments.from_data(X, groups=..., "
                "sample_weight=...). Then fit to the moments or, for the variation within groups, "
                "to their attribute `within`."
            )
        for part, name in zip(parts, ("X", *names), strict=True):
            _check_coordinates(parts[0], part, solver)
            _check_count(part.n_samples, name)
            check_same_features(
                *(parts[0].n_features, parts[0].feature_names),
                *(part.n_features, part.feature_names),
                background_name=name,
            )
        plan = plan_for(parts[0], mixed(parts[1:] or parts, None), k, **options)
        if simple:
            parts = in_form(parts[0], parts[-1], plan.form)
    else:
        parts = design_rows(X, background, design, optional=optional)
        if not simple and SOLVERS[solver] == "products":
            raise ValueError(
                f"solver={solver!r} takes neither within nor weights nor several backgrounds; use "
                "'auto', 'eigh' or 'gram'."
            )
        plan = make_plan(_task(parts, k, **options))
        parts = _moments_of(parts, plan.form)
    x, y = parts[0], mixed(parts[1:] or parts, design.background_mix)
    check_range(x, "X")
    check_range(y, "the background")
    if not one_scale:
        _warn_of_scales(x, y)
    return x, y, plan


def plan_for(x: Moments, y: Moments, k: int, **options: Any) -> Plan:
    """Return the plan for moments that exist already; `options` are fields of `ProblemSize`.

    `ProductMoments` keep the rows, so another form may be planned for them. For example, a matrix
    that is too costly for a single contrast may pay off for many contrasts.
    """
    if isinstance(x, ProductMoments) and isinstance(y, ProductMoments) and x.rows and y.rows:
        return make_plan(_task((*x.rows, *y.rows), k, **options))
    n_rows = x.n_samples + y.n_samples
    return make_plan(ProblemSize(math.ceil(n_rows), x.n_features, k, given=x.form, **options))


def _task(parts: Sequence[Rows], k: int, **options: Any) -> ProblemSize:
    """Return the `ProblemSize` that describes an eigenproblem of these rows."""
    entries = _entries(parts)
    return ProblemSize(
        n_rows=sum(map(_count, parts)),
        n_features=parts[0].shape[1],
        n_components=k,
        entries=entries,
        in_memory=all(part.in_memory for part in parts),
        **options,
    )


def contrast_rows(X: MatrixLike | Rows, background: MatrixLike | Rows) -> tuple[Rows, Rows]:
    """Return rows of foreground and background with the same features, without reading them.

    Raises
    ------
    TypeError
        If moments are given.
    ValueError
        If features differ, a dataset has fewer than two rows, or several backgrounds are given.
    """
    check_background_is_given(background)
    listed, several = listed_backgrounds(background)
    if several:
        raise ValueError(
            f"{len(listed)} backgrounds were given, but only one is allowed here. Stack their rows "
            "into one background."
        )
    _check_rows(X, [background])
    x, y = design_rows(X, background, _PLAIN)
    return x, y


def design_rows(
    X: MatrixLike | Rows,
    background: Any,
    design: Design,
    *,
    missing: bool = False,
    optional: bool = False,
) -> tuple[Rows, ...]:
    """Return rows of foreground and backgrounds with the same features, labelled and weighted.

    The rows are not read yet. If values may be `missing`, NaN is accepted.
    """
    check_background_is_given(background, optional)
    x, backgrounds = design.foreground(X, missing), []
    if background is not None:
        backgrounds = design.backgrounds(*listed_backgrounds(background), missing)
    for y in backgrounds:
        check_same_features(x.shape[1], x.names, y.shape[1], y.names, background_name=y.name)
        _check_same_place(x, y)
    for rows in (x, *backgrounds):
        if not math.isnan(rows.shape[0]):
            used = rows.shape[0] if rows.weights is None else np.count_nonzero(rows.weights)
            _check_count(int(used), rows.name)
    return x, *backgrounds


def _check_same_place(x: Rows, y: Rows) -> None:
    """Raise an error unless both are tensors on the same device, or neither is a tensor."""
    if x.device == y.device:
        return
    first, second = (
        "not a tensor" if rows.device is None else f"a tensor on {rows.device}" for rows in (x, y)
    )
    if x.device is None or y.device is None:
        raise TypeError(
            f"X is {first} and {y.name} is {second}. Give both as tensors on the same device, give "
            "neither as a tensor, or give SecondMoments of each."
        )
    raise ValueError(
        f"X is {first} and {y.name} is {second}; both are expected on the same device. Move one "
        "of them with .to(device), or give SecondMoments of each."
    )


def check_background_is_given(background: object, optional: bool = False) -> None:
    """Raise ValueError if there is no background, unless it is optional."""
    if background is None and not optional:
        raise ValueError(
            "background=None was given; a contrastive method needs background rows with the "
            "features of X: fit(X, background=...)."
        )


def in_form(x: Moments, y: Moments, form: Form) -> tuple[Moments, Moments]:
    """Convert `ProductMoments` into a form with matrices; return other moments unchanged."""
    if x.form != "products" or form == "products":
        return x, y
    parts: Any = (x, y)
    x, y = _moments_of([rows for part in parts for rows in part.rows], form)
    return x, y


def _moments_of(rows: Sequence[Rows], form: Form) -> tuple[Moments, ...]:
    """Return the moments of each dataset in the given form.

    If rows have groups, their covariance is taken about the means of the groups.
    """
    all_moments: Sequence[Any]
    match form:
        case "span":
            # This form needs the number of rows of each dataset. A dask array that does not know
            # its number of rows is loaded.
            all_moments = span_moments(
                [part if part.shape[0] >= 0 else load_into_memory(part) for part in rows]
            )
        case "products":
            all_moments = product_moments(rows)
        case _:
            all_moments = SecondMoments.from_parts(rows)
            all_moments = [
                moments if part.groups is None else moments.within
                for moments, part in zip(all_moments, rows, strict=True)
            ]
    for moments, part in zip(all_moments, rows, strict=True):
        _check_count(moments.n_samples, part.name)
    return tuple(all_moments)


def _count(rows: Rows) -> int:
    """Return the number of rows; an unknown number counts as huge, so no Gram matrix is planned."""
    return 2**62 if math.isnan(rows.shape[0]) else int(rows.shape[0])


def _entries(parts: Sequence[Rows]) -> int | None:
    """Return the number of stored entries, or None unless all rows are sparse and in memory."""
    if not all(part.is_sparse and part.in_memory for part in parts):
        return None
    return sum(part.n_entries for part in parts)


def _check_count(n: float, name: str) -> None:
    # A float is a total weight, from which the number of rows cannot be known.
    if isinstance(n, int) and n < 2:
        raise ValueError(
            f"{name} has n_samples={n}, but a variance needs at least 2 rows (rows are samples, "
            "columns are features)."
        )


def _check_coordinates(x: Moments, y: Moments, solver: str) -> None:
    if x.form != y.form:
        raise ValueError(
            f"X is {type(x).__name__} and background is {type(y).__name__}; both must be moments "
            "of the same kind. Give moments of the same kind, or the data of both."
        )
    if SOLVERS[solver] not in (None, x.form):
        raise ValueError(
            f"solver={solver!r} was asked for, but X and background are {type(x).__name__}, which "
            f"can only be used with solver={NAMES[x.form]!r} or 'auto'. Give the data instead, or "
            "change the solver."
        )
    if x.n_features == y.n_features and not x.shares_coordinates(y):
        raise ValueError(
            f"X and background are {type(x).__name__} that were not made together, so their "
            "coordinates differ. Take both from one fit, or give the data."
        )


def _warn_of_scales(x: Moments, y: Moments) -> None:
    total_x, total_y = x.total_variance, y.total_variance
    if total_x > 0 and total_y > 0 and not 1 / _SCALE_RATIO < total_x / total_y < _SCALE_RATIO:
        warn(
            f"the total variance of X is {total_x:.3g}, but the total variance of the background "
            f"is {total_y:.3g}. Check that both were scaled alike. In a scikit-learn Pipeline, "
            "transform_input=['background'] makes the earlier steps transform the background too."
        )


class LoadedRows(NamedTuple):
    """Rows of a foreground and a background in memory, and the weights of the rows.

    The rows are ndarrays or CSR matrices of finite values. The weights are None if all rows have
    the same weight. Several backgrounds are stacked into one matrix. Each of them is centred by its
    own mean and has its share of the total weight, and `backgrounds` holds the index of each row's
    background.
    """

    foreground: Any
    background: Any
    weights: FloatArray | None
    background_weights: FloatArray | None
    backgrounds: NDArray[np.intp] | None


def loaded_rows(X: MatrixLike | Rows, background: Any, design: Design = _PLAIN) -> LoadedRows:
    """Load the rows of foreground and background, with their weights."""
    listed, several = listed_backgrounds(background)
    _check_rows(X, listed)
    x, *others = design_rows(X, background, design)
    shares = np.ones(len(others))
    if design.background_mix is not None:
        shares = check_mix(design.background_mix, len(others))
    if not several:
        return LoadedRows(x.load(), others[0].load(), x.weights, others[0].weights, None)
    parts, weights = [], []
    for share, rows in zip(shares, others, strict=True):
        dense = np.array(rows.load(dense=True), dtype=np.float64)
        own = np.ones(len(dense)) if rows.weights is None else rows.weights / rows.weights.max()
        weights.append(share * own / own.sum())
        parts.append(dense - own @ dense / own.sum())
    which = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return LoadedRows(x.load(), np.vstack(parts), x.weights, np.concatenate(weights), which)


def _check_rows(X: Any, backgrounds: Sequence[Any]) -> None:
    """Raise TypeError if moments were given instead of rows."""
    for data, name in ((X, "X"), *((each, "background") for each in backgrounds)):
        if is_moments(data):
            raise TypeError(
                f"{name} is {type(data).__name__}, but rows are needed here; give the data."
            )
