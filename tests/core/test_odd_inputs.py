"""Tests of unusual data: one function with every kind, the other functions with a few kinds.

Valid data must give the results of plain arrays. Invalid data must be refused by a check of this
package, whose message names the argument and shows what was given. NumPy's warnings are errors, and
the data stay unchanged.

The components do not change if data are multiplied by a power of two or shifted by a constant, also
if the values are extreme or hardly vary. A method may refuse data whose squares exceed the range of
float64, with an error that says so.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrast_core as cc
from tests.core.odd_inputs import (
    DATA,
    EVERYWHERE,
    MEASURES,
    REFUSED,
    SUBJECTS,
    TAKEN,
    K,
    Kind,
    Subject,
    X,
    Y,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning"),
    # scikit-learn gives this warning if only one of fit and transform gets a DataFrame.
    pytest.mark.filterwarnings("ignore:X (has feature names|does not have valid):UserWarning"),
]

# An error that is raised in these packages is raised on purpose, and not by accident.
ON_PURPOSE = ("/contrast_core/", "/scanpy_ext/")
# These functions of scikit-learn check that transform gets the features and names of the fit.
_CONTRACT = ("check_is_fitted", "_check_n_features", "_check_feature_names", "_get_feature_names")


def complaint(error: BaseException, words: str) -> str:
    """Describe what is wrong with an error, or return an empty string if the error is clear."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = any(package in last.filename for package in ON_PURPOSE) or last.name in _CONTRACT
    text = str(error)
    if not isinstance(error, TypeError | ValueError):
        return f"ends in {type(error).__name__}: {text}"
    if not (ours and (last.line or "").startswith("raise")):
        return f"is refused by {last.filename}:{last.lineno}: {text}"
    if not re.search(words, text):
        return f"is refused in other words than {words!r}: {text}"
    return "" if len(text) < 500 else f"is refused at length: {text}"


def content(data: Any) -> Any:
    """Return everything that data in memory hold, in a form that can be compared."""
    if sp.issparse(data):
        parts = ("data", "indices", "indptr", "coords", "offsets", "rows")
        found = [getattr(data, part) for part in parts if hasattr(data, part)]
        return data.format, str(dict(data.items())) if data.format == "dok" else repr(found)
    if hasattr(data, "detach"):
        return data.requires_grad, str(data.to_dense().detach().numpy().tolist())
    if hasattr(data, "columns"):
        return str(data.dtypes), data.to_csv()
    if hasattr(data, "__next__"):
        return None
    if hasattr(data, "dtype"):
        return str(getattr(data, "flags", "")), repr(np.asarray(data).tolist())
    return repr(np.asarray(data, dtype=object).tolist() if np.iterable(data) else data)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Callable[[], Path]:
    """Return a function that makes a new folder when it is called."""
    return lambda: request.getfixturevalue("tmp_path_factory").mktemp("data")


def with_odd(subject: Subject, slot: str, kind: Kind, folder: Callable[[], Path]) -> dict[str, Any]:
    """Return the arguments of a call, of which the one named `slot` is of an unusual kind."""
    data = {name: DATA[name].copy() for name in subject.slots}
    return data | {slot: kind.make(data[slot], folder)}


def cases(kinds: list[Kind]) -> list[Any]:
    """Return test cases: all kinds for one function of data, and a few kinds for the others."""
    return [
        pytest.param(subject, slot, kind, id=f"{subject.name}-{slot}-{kind.name}")
        for subject in SUBJECTS
        for slot in subject.slots
        for kind in kinds
        if kind.name not in subject.left_out
        if kind.name in EVERYWHERE or subject.name == "SecondMoments.from_data"
    ]


def assert_as_expected(found: list[Any], expected: list[Any], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        # For a tensor of half precision the result has half precision.
        single = isinstance(one, np.ndarray) and one.dtype.kind == "f" and one.dtype.itemsize < 8
        relative = max(tolerance, 4 * float(np.finfo(one.dtype).eps) if single else 0)
        atol = relative * float(np.abs(other).max(initial=0.0))
        np.testing.assert_allclose(np.asarray(one, dtype=np.float64), other, rtol=0, atol=atol)


@pytest.mark.parametrize(("subject", "slot", "kind"), cases(TAKEN))
def test_the_same_numbers_in_any_container_give_the_same_result(
    subject: Subject, slot: str, kind: Kind, folder: Callable[[], Path]
) -> None:
    data = with_odd(subject, slot, kind, folder)
    before = {name: content(each) for name, each in data.items()}
    expected = subject.call(**{name: DATA[name] for name in subject.slots})
    assert_as_expected(subject.call(**data), expected, subject.tolerance)
    assert {name: content(each) for name, each in data.items()} == before


@pytest.mark.parametrize(("subject", "slot", "kind"), cases(REFUSED))
def test_invalid_data_are_refused_with_a_message(
    subject: Subject, slot: str, kind: Kind, folder: Callable[[], Path]
) -> None:
    data = with_odd(subject, slot, kind, folder)
    before = {name: content(each) for name, each in data.items()}
    with pytest.raises(Exception, match=rf"\b({'|'.join(subject.slots)}|y)\b") as caught:
        subject.call(**data)
    assert not complaint(caught.value, kind.refused)
    assert {name: content(each) for name, each in data.items()} == before


SCALED: dict[str, Callable[[Any], Any]] = {
    "tiny": lambda v: v * 2.0**-1000,
    "subnormal": lambda v: v * 2.0**-1070,
    "huge": lambda v: v * 2.0**1016,
    "huge CSR": lambda v: sp.csr_matrix(v * 2.0**1016),
    "beyond float64": lambda v: v.astype("longdouble") * np.longdouble(2) ** 5000,
    "large float32": lambda v: (v * 2.0**120).astype(np.float32),
    "tiny float32": lambda v: (v * 2.0**-140).astype(np.float32),
}
SHIFTED: dict[str, Callable[[Any], Any]] = {
    "far from zero": lambda v: v + 2.0**27,
    "far from zero, by column": lambda v: v + 2.0 ** np.arange(20, 30, 2),
    "far from zero, in CSC": lambda v: sp.csc_array(v + 2.0**27),
    "beyond float64's whole numbers": lambda v: v.astype(np.int64) + 2**54,
    "beyond int64": lambda v: v.astype(np.uint64) + np.uint64(2**63),
}

# Every method is tested with these kinds. One method is tested with all other kinds, because all
# methods read rows in the same way.
FEW = ("tiny", "huge CSR", "large float32", "far from zero", "beyond int64")


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        pytest.param(subject, kind, id=f"{subject.name}-{kind}")
        for subject in SUBJECTS
        if subject.units
        for kind in (SCALED | SHIFTED if subject.origin else SCALED)
        if kind in FEW or subject.name == "CPCA by eigh"
    ],
)
def test_the_unit_and_the_origin_do_not_change_the_result(subject: Subject, kind: str) -> None:
    data = {name: DATA[name] for name in subject.slots}
    make = (SCALED | SHIFTED)[kind]
    try:
        found = subject.call(**{name: make(values) for name, values in data.items()})
    except Exception as error:
        assert not complaint(error, r"float64|squares|kernel|NaN or inf \(inf")
        assert kind not in ("large float32", "tiny float32")
        assert kind not in SHIFTED or "beyond" in kind
    else:
        for one, other in zip(found, subject.call(**data), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


DEGENERATE = {
    "one constant feature": lambda: (_constant(X, 1), _constant(Y, 1)),
    "a feature constant in Y": lambda: (X, _constant(Y, 1)),
    "X constant": lambda: (_constant(X, *range(5)), Y),
    "Y constant": lambda: (X, _constant(Y, *range(5))),
    "both constant": lambda: (_constant(X, *range(5)), _constant(Y, *range(5))),
    "two rows": lambda: (X[:2], Y[:2]),
    "equal rows": lambda: (X[[1] * 9], Y[[2] * 9]),
    "repeated rows": lambda: (np.repeat(X, 3, axis=0), np.repeat(Y, 3, axis=0)),
    "one row differs": lambda: (np.eye(24, 5) + 3, Y),
    "more features than rows": lambda: (X[:20].reshape(4, -1), Y[:20].reshape(4, -1)),
    "the same rows in reversed order": lambda: (X, X[::-1]),
    "repeated features": lambda: (X[:, [0, 0, 1, 2]], Y[:, [0, 0, 1, 2]]),
    "of rank one": lambda: (np.outer(X[:, 0], [1.0, 2, 3]), np.outer(Y[:, 0], [1.0, 2, 3])),
    "truth values": lambda: (X > 20, Y > 20),
    "a background far larger": lambda: (X, Y * 1e6),
}


def centred(rows: Any) -> Any:
    return rows - rows.mean(axis=0)


def covariance(rows: Any) -> Any:
    return centred(rows).T @ centred(rows) / len(rows)


def _constant(values: Any, *columns: int) -> Any:
    values = values.copy()
    values[:, list(columns)] = 7.0
    return values


def optimum(matrix: Any, *datasets: Any) -> Any:
    """Return the K largest eigenvalues of a matrix, restricted to the span of the centred rows.

    If the span has fewer than K dimensions, zeros are added.
    """
    together = np.vstack([centred(np.asarray(rows, dtype=float)) for rows in datasets])
    size, basis = np.linalg.svd(together, full_matrices=False)[1:]
    basis = basis[size > 1e-12 * size.max(initial=1e-300)]
    values = np.linalg.eigvalsh(basis @ matrix @ basis.T)[::-1][:K]
    return np.pad(values, (0, K - len(values)))


def variances_along(model: Any, matrix: Any) -> Any:
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(K), atol=1e-10)
    return np.einsum("ki,ij,kj->k", model.components_, matrix, model.components_)


def cpca_optimum(X: Any, Y: Any, solver: str) -> tuple[Any, Any, Any]:
    """Return the objective along the components, the fitted eigenvalues, and the exact optimum."""
    contrast = covariance(X) - 1.5 * covariance(Y)
    model = cc.CPCA(alpha=1.5, solver=solver).fit(X, background=Y)
    return variances_along(model, contrast), model.contrastive_eigenvalues_, optimum(contrast, X, Y)


def star_optimum(X: Any, Y: Any) -> tuple[Any, Any, Any]:
    """Return the same three arrays as `cpca_optimum`, for cPCA* with beta = 0.5.

    The method adds an identity matrix to the background's covariance, so the solution depends on
    the unit.
    """
    model = cc.CPCAStar(beta=0.5).fit(X, background=Y)
    within = (np.eye(X.shape[1]) + covariance(Y)) / 2
    root = np.linalg.inv(np.linalg.cholesky(within))
    found = np.einsum("ki,ij,kj->k", model.directions_, covariance(X), model.directions_)
    best = optimum(root @ covariance(X) @ root.T, np.eye(X.shape[1]), X)
    return found, model.generalized_eigenvalues_, best


def plus_optimum(X: Any, Y: Any) -> tuple[Any, Any, Any]:
    """Return the same three arrays as `cpca_optimum`, for PCA+."""
    model = cc.PCAPlus(exchangeable=False).fit(X, positive=Y)
    cross = centred(X).T @ centred(Y) / len(X)
    cross = (cross + cross.T) / 2
    return variances_along(model, cross), model.alignment_, optimum(cross, X, Y)


OPTIMA = {
    "CPCA by eigh": lambda X, Y: cpca_optimum(X, Y, "eigh"),
    "CPCA by gram": lambda X, Y: cpca_optimum(X, Y, "gram"),
    "CPCAStar": star_optimum,
    "PCAPlus": plus_optimum,
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("method", OPTIMA)
def test_the_objective_is_optimal_for_degenerate_data(method: str, kind: str) -> None:
    along_components, values, expected = OPTIMA[method](*(1.0 * v for v in DEGENERATE[kind]()))
    scale = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-8 * scale)
    np.testing.assert_allclose(along_components, expected, rtol=0, atol=1e-8 * scale)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("kind", DEGENERATE)
def test_results_for_degenerate_data_are_finite_or_the_data_are_refused(
    name: str, kind: str
) -> None:
    try:
        found = MEASURES[name](*(1.0 * v for v in DEGENERATE[kind]()))
    except Exception as error:
        assert not complaint(error, r"X|background|rows|component")
    else:
        assert all(np.isfinite(each).all() for each in found)
