"""Tests with far more features than rows.

The problems are solved in the span of the rows, or by products of the rows with a few columns.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import (
    CPCA,
    PCPCA,
    ContrastWarning,
    CPCAStar,
    SecondMoments,
    SparseCPCA,
    contrast_path,
    linalg,
)
from contrast_core.linalg import subspace_error
from contrast_core.moments import Form, SpanMoments
from contrast_core.solve import (
    LIMITS,
    SOLVERS,
    Plan,
    ProblemSize,
    make_plan,
    solve_contrasts,
    with_fallback,
)
from tests.core.kinds import dense
from tests.core.planned import moments_in

D, N, M = 500, 34, 26  # numbers of features, of foreground rows and of background rows
ALPHAS = [0.0, 0.7, 4.0, 100.0, 1000.0]


def wide_data(mean: float = 0.0) -> tuple[Any, Any]:
    """Return a foreground with one signal, and a stronger signal in foreground and background."""
    rng = np.random.default_rng(0)
    signal, nuisance = rng.normal(size=(2, D)) * (rng.random((2, D)) < 0.1)
    x = rng.normal(size=(N, D)) + np.outer(rng.normal(size=N), 3 * signal)
    y = rng.normal(size=(M, D))
    x += np.outer(rng.normal(size=N), 6 * nuisance)
    y += np.outer(rng.normal(size=M), 6 * nuisance)
    return x + mean, y + mean


def thinned(rows: Any) -> Any:
    return np.where(np.abs(rows) > 1.6, rows, 0.0)


# Each kind is made from dense rows. "far" has a mean of 100 standard deviations.
ROWS: dict[str, Callable[[Any], Any]] = {
    "dense": np.asarray,
    "far": lambda rows: rows + 100.0,
    "far, float32": lambda rows: (rows + 100.0).astype(np.float32),
    "CSR": lambda rows: sp.csr_matrix(thinned(rows)),
    "CSR, float32": lambda rows: sp.csr_matrix(thinned(rows).astype(np.float32)),
    "CSC": lambda rows: sp.csc_array(thinned(rows)),
}


def sparse_data() -> tuple[Any, Any]:
    x, y = map(ROWS["CSR"], wide_data())
    return x, y


@cache
def moments(kind: str = "dense") -> tuple[SecondMoments, SecondMoments]:
    """Return the moments in feature space."""
    x, y = (SecondMoments.from_data(dense(ROWS[kind](rows))) for rows in wide_data())
    return x, y


@cache
def exact(kind: str, alpha: float) -> CPCA:
    return CPCA(3, alpha=alpha).fit(moments(kind)[0], background=moments(kind)[1])


@cache
def allowed(kind: str, alpha: float, k: int) -> float:
    """Return the largest accepted subspace error of k components at this contrast."""
    values = np.linalg.eigvalsh(moments(kind)[0].covariance - alpha * moments(kind)[1].covariance)
    norm = np.abs(values[[0, -1]]).max()
    return float(max(1e-8, 100 * np.finfo(float).eps * norm / (values[-k] - values[-k - 1])))


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("kind", ROWS)
def test_results_agree_with_the_covariance_in_feature_space(solver: Any, kind: str) -> None:
    x, y = map(ROWS[kind], wide_data())
    for alpha in ALPHAS:
        wide = CPCA(3, alpha=alpha, solver=solver, random_state=0).fit(x, background=y)
        wanted = exact(kind, alpha)
        assert (wide.form_, wanted.form_) == (SOLVERS[solver], "dense")
        assert subspace_error(wide.components_, wanted.components_) <= allowed(kind, alpha, 3)
        # The signs are equal too.
        np.testing.assert_allclose(wide.components_, wanted.components_, atol=1e-6)
        np.testing.assert_allclose(wide.components_ @ wide.components_.T, np.eye(3), atol=1e-12)
        for name in ("contrastive_eigenvalues_", "foreground_variance_", "background_variance_"):
            np.testing.assert_allclose(getattr(wide, name), getattr(wanted, name), rtol=1e-6)
        np.testing.assert_allclose(wide.mean_, wanted.mean_, rtol=1e-14, atol=1e-13)
        np.testing.assert_allclose(wide.transform(y), wanted.transform(y), atol=1e-5)
    variances = wide.foreground_moments_.variances
    np.testing.assert_allclose(variances, moments(kind)[0].variances, atol=1e-12)
    copy = pickle.loads(pickle.dumps(wide))
    assert subspace_error(copy.at(1.0).components_, wide.at(1.0).components_) < 1e-8


def test_the_path_in_the_span_agrees_with_the_path_in_feature_space() -> None:
    x, y = wide_data()
    wide = contrast_path(x, background=y, alphas=[*ALPHAS, np.inf])
    dense = contrast_path(moments()[0], background=moments()[1], alphas=[*ALPHAS, np.inf])
    assert isinstance(wide.foreground, SpanMoments)
    np.testing.assert_allclose(wide.components, dense.components, atol=1e-6)
    np.testing.assert_allclose(wide.eigenvalues, dense.eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(wide.affinity, dense.affinity, atol=1e-8)
    assert subspace_error(wide.at(4.0).components_, wide.components[2]) < 1e-8


@pytest.mark.parametrize("sparse", [False, True])
def test_every_method_in_the_span_agrees_with_feature_space(sparse: bool) -> None:
    x, y = sparse_data() if sparse else wide_data()
    reference = SecondMoments.from_data(x), SecondMoments.from_data(y)
    for method in (
        *(CPCA(), CPCA(alpha="denoise"), CPCA(alpha=np.inf)),
        *(PCPCA(), PCPCA(gamma=0.2), CPCAStar(), CPCAStar(beta=0.3)),
        SparseCPCA(1, alpha=1.0, penalty=0.4),
        SparseCPCA(1, alpha=1.0, n_features_to_select=20),
    ):
        wide = method.fit(x, background=y)
        assert isinstance(wide.foreground_moments_, SpanMoments)
        dense = type(method)(**method.get_params()).fit(reference[0], background=reference[1])
        assert subspace_error(wide.components_, dense.components_) < 1e-8
        for name, value in vars(dense).items():
            if isinstance(value, float | np.ndarray):
                np.testing.assert_allclose(getattr(wide, name), value, rtol=1e-7, atol=1e-6)


def test_directions_without_variance_come_after_those_with_negative_contrast() -> None:
    """Use foreground rows in the span of the background rows.

    With the strength 50, all eigenvalues are then negative.
    """
    x, y = wide_data()
    x = x.mean(axis=0) + np.random.default_rng(1).normal(size=(20, M)) @ (y - y.mean(axis=0)) / 20
    # More components can be asked for than there are directions with variance.
    with pytest.warns(
        ContrastWarning, match="last 65 of 90 components are arbitrary|25 of 90 components have"
    ):
        wide = CPCA(90, alpha=50.0, solver="gram").fit(x, background=y)
    assert (wide.contrastive_eigenvalues_[: M - 1] < 0).all()
    assert (wide.background_variance_[: M - 1] > 0).all()
    np.testing.assert_array_equal(wide.contrastive_eigenvalues_[M - 1 :], 0.0)
    np.testing.assert_allclose(wide.components_ @ wide.components_.T, np.eye(90), atol=1e-10)
    for rows in (x, y):
        assert np.abs((rows - rows.mean(axis=0)) @ wide.components_[M - 1 :].T).max() < 1e-8


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [30, 58, 59, 90])
def test_more_components_than_rows_can_be_requested(k: int, sparse: bool) -> None:
    x, y = sparse_data() if sparse else wide_data()
    wide = CPCA(k, alpha=0.5, solver="gram").fit(x, background=y)
    dense = CPCA(k, alpha=0.5, solver="eigh").fit(x, background=y)
    np.testing.assert_allclose(
        wide.contrastive_eigenvalues_, dense.contrastive_eigenvalues_, atol=1e-9
    )
    rank = min(k, N + M - 2)
    assert subspace_error(wide.components_[:rank], dense.components_[:rank]) < 1e-7
    for fitted in (wide, dense):
        np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(k), atol=1e-10)


def test_nearly_dependent_rows_do_not_make_components_less_precise() -> None:
    """Check that components stay orthonormal.

    Without a correction, the inner products in feature space would be wrong by 1e-4.
    """
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(n, 1)) * rng.normal(size=D) for n in (N, M))
    x, y = (rows + 1e-6 * rng.normal(size=rows.shape) for rows in (x, y))
    components = CPCA(3, alpha=1.0, solver="gram").fit(x, background=y).components_
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-12)
    space = moments_in("span", x, y)[0].space  # type: ignore[attr-defined]
    rows = rng.normal(size=(3, space.factor.rank))
    lifted = space.lift(rows)
    np.testing.assert_allclose(lifted @ lifted.T, rows @ rows.T, rtol=0, atol=1e-10)


def test_a_failed_iteration_falls_back_to_a_matrix() -> None:
    """Use a spectrum without a clear gap after the third eigenvalue, and a small budget."""
    x, y = sparse_data()
    few = replace(LIMITS, columns_each=0, entry_columns=0.1, products=8, iterated=0, wide=0)
    made: list[Form] = []

    def solve(plan: Plan) -> Any:
        made.append(plan.form)
        return solve_contrasts(*moments_in(plan.form, x, y), [1.0], 3, plan)

    task = ProblemSize(N + M, D, 3, entries=x.nnz + y.nnz)
    [found] = with_fallback(make_plan(task, few), solve)
    assert made == ["products", "span"]
    assert found.solver == "eigh"
    reference = CPCA(3, alpha=1.0, solver="gram").fit(x, background=y)
    assert subspace_error(found.components, reference.components_) < 1e-8
    with pytest.raises(linalg.NotConvergedError, match=r"alpha=1: .* used 8 prod.* solver='gram'"):
        with_fallback(make_plan(task._replace(form="products"), few), solve)
    with pytest.raises(linalg.NotConvergedError, match="null space"):
        CPCA(alpha=np.inf, solver="lanczos").fit(x, background=y)


def test_all_directions_of_a_multiple_eigenvalue_are_found() -> None:
    """Use a triple eigenvalue: a single start vector would find only one of its directions."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(D, 12)))[0].T
    scale = np.array([5.0, 5.0, 5.0, 3.0] + [1.0] * 8)
    x = np.vstack([basis * scale[:, None], -basis * scale[:, None]])
    y = np.vstack([basis, -basis])
    found = CPCA(3, alpha=1.0, solver="lanczos", random_state=0).fit(x, background=y)
    assert subspace_error(found.components_, basis[:3]) < 1e-8


def test_invalid_combinations_of_solvers_and_moments_are_refused() -> None:
    x, y = wide_data()
    dense = SecondMoments.from_data(x[:, :50]), SecondMoments.from_data(y[:, :50])
    with pytest.raises(ValueError, match="only be used with solver='eigh' or 'auto'"):
        CPCA(solver="gram").fit(dense[0], background=dense[1])
    a, b = (CPCA(alpha=1.0).fit(x, background=rows) for rows in (y, y[1:]))
    given = a.foreground_moments_
    with pytest.raises(ValueError, match="not made together"):
        CPCA().fit(given, background=b.background_moments_)
    with pytest.raises(ValueError, match="both must be moments of the same kind"):
        CPCA().fit(given, background=dense[1])
    with pytest.raises(TypeError, match="X is SpanMoments and background is ndarray"):
        CPCA().fit(given, background=y)
    with pytest.raises(TypeError, match="fit_transform got SpanMoments"):
        CPCA().fit_transform(given, background=a.background_moments_)
