"""Tests of extreme values and of data with little variance: a correct result, or an error.

The components do not change if data are multiplied by a power of two or shifted by a constant. The
expected result is therefore the result for the plain data. A method may refuse data whose squares
exceed the range of float64, with an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrast_core as cc
from tests.core.odd_subjects import DATA, MEASURES, SUBJECTS, K, Subject, X, Y
from tests.core.test_odd_inputs import complaint

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

SCALED: dict[str, Callable[[Any], Any]] = {
    "tiny": lambda v: v * 2.0**-1000,
    "subnormal": lambda v: v * 2.0**-1070,
    "huge": lambda v: v * 2.0**1016,
    "huge CSR": lambda v: sp.csr_matrix(v * 2.0**1016),
    "beyond float64": lambda v: v.astype("longdouble") * np.longdouble(2) ** 5000,
    "large of float32": lambda v: (v * 2.0**120).astype(np.float32),
    "tiny of float32": lambda v: (v * 2.0**-140).astype(np.float32),
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
FEW = ("tiny", "huge CSR", "large of float32", "far from zero", "beyond int64")


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
        assert kind not in ("large of float32", "tiny of float32")
        assert kind not in SHIFTED or "beyond" in kind
    else:
        for one, other in zip(found, subject.call(**data), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


VARIES = {
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
    "the same pairs backwards": lambda: (X, X[::-1]),
    "features twice": lambda: (X[:, [0, 0, 1, 2]], Y[:, [0, 0, 1, 2]]),
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
    """Return the K largest eigenvalues in the span of the datasets, padded with zeros."""
    together = np.vstack([centred(np.asarray(rows, dtype=float)) for rows in datasets])
    size, basis = np.linalg.svd(together, full_matrices=False)[1:]
    basis = basis[size > 1e-12 * size.max(initial=1e-300)]
    values = np.linalg.eigvalsh(basis @ matrix @ basis.T)[::-1][:K]
    return np.pad(values, (0, K - len(values)))


def variances_along(model: Any, matrix: Any) -> Any:
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(K), atol=1e-10)
    return np.einsum("ki,ij,kj->k", model.components_, matrix, model.components_)


def cpca_optimum(X: Any, Y: Any, solver: str) -> tuple[Any, Any, Any]:
    contrast = covariance(X) - 1.5 * covariance(Y)
    model = cc.CPCA(alpha=1.5, solver=solver).fit(X, background=Y)
    return variances_along(model, contrast), model.contrastive_eigenvalues_, optimum(contrast, X, Y)


def star_optimum(X: Any, Y: Any) -> tuple[Any, Any, Any]:
    """Return the solution of cPCA* with beta = 0.5.

    The method adds an identity matrix to the covariance, so the solution depends on the unit.
    """
    model = cc.CPCAStar(beta=0.5).fit(X, background=Y)
    within = (np.eye(X.shape[1]) + covariance(Y)) / 2
    root = np.linalg.inv(np.linalg.cholesky(within))
    found = np.einsum("ki,ij,kj->k", model.directions_, covariance(X), model.directions_)
    return (
        found,
        model.generalized_eigenvalues_,
        optimum(root @ covariance(X) @ root.T, np.eye(X.shape[1]), X),
    )


def plus_optimum(X: Any, Y: Any) -> tuple[Any, Any, Any]:
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


@pytest.mark.parametrize("kind", VARIES)
@pytest.mark.parametrize("method", OPTIMA)
def test_the_objective_is_optimal_for_data_with_little_variance(method: str, kind: str) -> None:
    along_components, values, expected = OPTIMA[method](*(1.0 * v for v in VARIES[kind]()))
    scale = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-8 * scale)
    np.testing.assert_allclose(along_components, expected, rtol=0, atol=1e-8 * scale)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("kind", VARIES)
def test_measures_of_data_with_little_variance_are_finite_or_refused(name: str, kind: str) -> None:
    try:
        found = MEASURES[name](*(1.0 * v for v in VARIES[kind]()))
    except Exception as error:
        assert not complaint(error, r"X|background|rows|component")
    else:
        assert all(np.isfinite(each).all() for each in found)
