"""Tests of PCA+ and PCA++ with many features, for which a covariance matrix would be large.

The moments then have another form: "span" is a matrix in a basis of the span of the rows, and
"products" stands for products of the rows with a few columns, without a matrix.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import ContrastWarning, PCAPlus, PCAPlusPlus, SecondMoments
from contrast_core.linalg import NotConvergedError, subspace_error
from contrast_core.moments import PairMoments
from contrast_core.rows import rows_of
from contrast_core.solve import LIMITS, Limits, Plan
from tests.core.kinds import watch_toarray
from tests.core.planned import pairs_by

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

# Numbers of pairs and of features. Each pair has two rows: WIDE has more features than rows, and
# TALL has as many features as rows.
WIDE, TALL = (40, 800), (225, 450)
SIGNAL, BACKGROUND = (60.0, 30.0), (300.0, 150.0)


# With these limits, the form is "products".
PRODUCTS = replace(LIMITS, iterated=100, columns_each=5, reading=0)
# Each case has the numbers of pairs and features, and the limits by which the form is chosen. The
# solver "gram" uses the form "span".
CASES = {
    "gram": (WIDE, LIMITS),
    "products": (TALL, PRODUCTS),
    "wide products": ((260, 900), PRODUCTS),
}


each_case = pytest.mark.parametrize(("shape", "limits"), CASES.values(), ids=CASES)


def pairs(
    shape: tuple[int, int], *, mean: float = 0.0, n_loaded: int = 300, density: float = 1.0
) -> tuple[Any, Any]:
    """Return the two views of pairs, whose means differ.

    Two signals are shared by both views. Two others, the background, are independent in each view.
    """
    (n, d), rng = shape, np.random.default_rng(0)
    directions = np.zeros((5, d))
    directions[:, :n_loaded] = np.linalg.qr(rng.normal(size=(n_loaded, 5)))[0].T
    scale = np.sqrt(1 + d / n)
    signal = scale * rng.normal(size=(n, 2)) * np.sqrt(SIGNAL) @ directions[:2]

    def view() -> Any:
        own = scale * rng.normal(size=(n, 2)) * np.sqrt(BACKGROUND) @ directions[2:4]
        noise = np.where(rng.random((n, d)) < density, rng.normal(size=(n, d)), 0.0)
        rows = signal + own + noise / np.sqrt(density) + mean
        rows[:, -7] = mean  # a constant feature
        return rows

    return view(), view() + 6 * scale * directions[4]


def sparse_pairs(shape: tuple[int, int]) -> tuple[Any, Any]:
    X, positive = (sp.csr_array(rows) for rows in pairs(shape, n_loaded=200, density=0.5))
    return X, positive


@cache
def reference(shape: tuple[int, int], sparse: bool = False) -> PairMoments:
    """Return the moments of the pairs as matrices of features x features."""
    return PairMoments.from_data(*(sparse_pairs(shape) if sparse else pairs(shape)))


def assert_agrees(found: PCAPlusPlus, wanted: PCAPlusPlus) -> None:
    assert found.truncation_ == wanted.truncation_
    assert subspace_error(found.components_, wanted.components_) < 1e-7
    np.testing.assert_array_equal(found.detectable_, wanted.detectable_)
    np.testing.assert_allclose(found.mean_, wanted.mean_, atol=1e-12)
    np.testing.assert_allclose(
        found.generalized_eigenvalues_, wanted.generalized_eigenvalues_, atol=1e-8
    )
    for name in ("components_", "directions_", "patterns_"):
        scale = np.abs(getattr(wanted, name)).max()
        np.testing.assert_allclose(
            getattr(found, name), getattr(wanted, name), rtol=0, atol=1e-6 * scale
        )


@each_case
def test_the_shape_of_the_data_decides_the_form_of_the_moments(
    shape: tuple[int, int], limits: Limits
) -> None:
    assert pairs_by(limits, *pairs(shape)).plan(3).form == ("span" if shape == WIDE else "products")
    for n, form in ((45, "dense"), (44, "span")):
        X, positive = pairs((n, 90), n_loaded=90)
        for method in (PCAPlus(), PCAPlusPlus()):
            assert method.fit(X, positive=positive).form_ == form


@each_case
@pytest.mark.parametrize("exchangeable", [True, False])
@pytest.mark.parametrize(
    "kind", ["dense", "sparse", pytest.param("sparse and dense", marks=pytest.mark.slow)]
)
def test_the_span_and_products_agree_with_the_covariance(
    shape: tuple[int, int], limits: Limits, exchangeable: bool, kind: str
) -> None:
    sparse = kind != "dense"
    X, positive = sparse_pairs(shape) if sparse else pairs(shape)
    if kind == "sparse and dense":
        positive = positive.toarray()
    # Blocks of 64 rows give several blocks and a remainder.
    views = pairs_by(limits, *(rows_of(rows, elements=64 * shape[1]) for rows in (X, positive)))
    for truncation in ("auto",) if sparse else ("auto", 3, 0.7):
        form: Any = {"truncation": truncation, "exchangeable": exchangeable}
        wanted = PCAPlusPlus(**form).fit(reference(shape, sparse))
        found = PCAPlusPlus(**form).fit(views)
        assert found.form_ == ("span" if shape == WIDE else "products")
        assert_agrees(found, wanted)
        for weighted in (True, False):
            scores = wanted.set_params(weighted=weighted).transform(X)
            again = found.set_params(weighted=weighted).transform(X)
            np.testing.assert_allclose(again, scores, atol=1e-6 * np.abs(scores).max())
    exact = PCAPlus(2, exchangeable=exchangeable).fit(reference(shape, sparse))
    aligned = PCAPlus(2, exchangeable=exchangeable).fit(views)
    assert subspace_error(aligned.components_, exact.components_) < 1e-7
    np.testing.assert_allclose(aligned.components_, exact.components_, atol=1e-6)
    np.testing.assert_allclose(aligned.alignment_, exact.alignment_, rtol=1e-10)
    np.testing.assert_allclose(aligned.mean_, exact.mean_, atol=1e-12)


@each_case
def test_pairs_of_low_rank_are_recognised(shape: tuple[int, int], limits: Limits) -> None:
    planned = partial(pairs_by, limits)
    (n, d), rng = shape, np.random.default_rng(3)
    mixing = rng.normal(size=(9, d))
    X, positive = (rng.normal(size=(n, 9)) * np.geomspace(9, 1, 9) @ mixing for _ in range(2))
    for truncation in ("auto", 9):
        wanted = PCAPlusPlus(truncation=truncation).fit(PairMoments.from_data(X, positive))
        assert_agrees(PCAPlusPlus(truncation=truncation).fit(planned(X, positive)), wanted)
    for name in ("n_components", "truncation"):
        with pytest.raises(ValueError, match=rf"{name}=12 asks for 12 .* S has only 9 among"):
            PCAPlusPlus(**{name: 12}).fit(planned(X, positive))
    constant = np.ones((n, d))
    for truncation in ("auto", 4):
        with pytest.raises(ValueError, match=rf"asks for \d directions .* S has only 0 among {d}"):
            PCAPlusPlus(truncation=truncation).fit(planned(constant, constant))


@each_case
def test_neither_dense_rows_nor_a_covariance_are_formed(
    shape: tuple[int, int], limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, positive = sparse_pairs((300 if shape == WIDE else 225, shape[1]))
    X, positive = (rows_of(rows, elements=64 * shape[1]) for rows in (X, positive))
    shapes = watch_toarray(monkeypatch)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a covariance was formed")

    monkeypatch.setattr(SecondMoments, "_unchecked", refuse)
    PCAPlusPlus().fit(pairs_by(limits, X, positive))
    PCAPlus().fit(pairs_by(limits, X, positive))
    largest = max((n_rows * n_columns for n_rows, n_columns in shapes), default=0)
    assert largest <= max(64 * shape[1], 600 * 256)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 3), ({"n_components": 5}, 5), ({"truncation": 20}, 20), ({"truncation": 0.9}, 3)],
)
def test_the_solver_is_planned_for_the_eigenpairs_that_are_asked_for(
    options: dict[str, Any], expected: int
) -> None:
    planned, asked = pairs_by(LIMITS, *pairs(WIDE)), []

    def plan(k: int) -> Plan:
        asked.append(k)
        return planned.plan(k)

    PCAPlusPlus(**options).fit(planned._replace(plan=plan))
    PCAPlus(4).fit(planned._replace(plan=plan))
    assert asked == [expected, 4]


@pytest.mark.parametrize("truncation", [40, 0.9])
def test_without_a_gap_the_covariance_is_formed(truncation: Any) -> None:
    """Check data whose last kept eigenvalue is close to the next one.

    The search by products needs a gap between these two eigenvalues to converge.
    """
    planned = partial(pairs_by, PRODUCTS)
    X, positive = pairs(TALL)
    wanted = PCAPlusPlus(truncation=truncation).fit(reference(TALL))
    assert_agrees(PCAPlusPlus(truncation=truncation).fit(planned(X, positive)), wanted)
    aligned = PCAPlus(60).fit(planned(X, positive))
    exact = PCAPlus(60).fit(reference(TALL))
    np.testing.assert_allclose(aligned.alignment_, exact.alignment_, rtol=1e-10)
    assert subspace_error(aligned.components_, exact.components_) < 1e-7
    planned = partial(pairs_by, replace(PRODUCTS, matrix=100, products=100))
    with pytest.raises(NotConvergedError, match=r"of 450 rows and 450 features: .* need a gap"):
        PCAPlusPlus(10, truncation=truncation).fit(planned(X, positive))
    with pytest.raises(NotConvergedError, match=r"PCA\+ of 225 pairs and 450 features: .* a gap"):
        PCAPlus(60).fit(planned(X, positive))


def test_directions_without_variance_come_after_negative_alignments() -> None:
    """Use views of opposite sign, for which every alignment is negative or zero."""
    X, _ = pairs(WIDE)
    found = PCAPlus(3, exchangeable=False).fit(X, positive=-X)
    assert (found.alignment_ < 0).all()
    dense = PCAPlus(3, exchangeable=False).fit(PairMoments.from_data(X, -X))
    np.testing.assert_allclose(found.alignment_, dense.alignment_, rtol=1e-6)
    np.testing.assert_allclose(found.components_, dense.components_, atol=1e-5)
    with pytest.warns(ContrastWarning, match="last 11 of 50 components are arbitrary"):
        more = PCAPlus(50, exchangeable=False).fit(X, positive=-X)
    np.testing.assert_allclose(more.components_ @ more.components_.T, np.eye(50), atol=1e-10)
    np.testing.assert_allclose(more.components_[39:] @ (X - X.mean(axis=0)).T, 0, atol=1e-8)
