"""Far more features than rows: the span of the rows, or products with them, instead of D x D."""

from __future__ import annotations

import pickle
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
    contrast_path,
    linalg,
)
from contrast_core.linalg import _proved, subspace_error
from contrast_core.moments import Form, SpanMoments, product_moments
from contrast_core.rows import rows_of
from contrast_core.solve import (
    LIMITS,
    SOLVERS,
    Plan,
    Task,
    make_plan,
    solve_contrasts,
    with_fallback,
)
from tests.core.planned import EAGER, moments_in, plan_in

D, N, M = 1600, 34, 26
ALPHAS = [0.0, 0.7, 4.0, 100.0, 1000.0]


def wide_data(mean: float = 0.0) -> tuple[Any, Any]:
    """Two signals: one that only the foreground has, a stronger one that both have."""
    rng = np.random.default_rng(0)
    signal, nuisance = rng.normal(size=(2, D)) * (rng.random((2, D)) < 0.1)
    x = rng.normal(size=(N, D)) + np.outer(rng.normal(size=N), 3 * signal)
    y = rng.normal(size=(M, D))
    x += np.outer(rng.normal(size=N), 6 * nuisance)
    y += np.outer(rng.normal(size=M), 6 * nuisance)
    return x + mean, y + mean


def sparse_data() -> tuple[Any, Any]:
    x, y = wide_data()
    x, y = (sp.csr_matrix(np.where(np.abs(rows) > 1.6, rows, 0.0)) for rows in (x, y))
    return x, y


@cache
def moments() -> tuple[SecondMoments, SecondMoments]:
    x, y = wide_data()
    return SecondMoments.from_data(x), SecondMoments.from_data(y)


@cache
def exact(alpha: float, k: int = 3) -> CPCA:
    return CPCA(k, alpha=alpha).fit(moments()[0], background=moments()[1])


@cache
def sparse_reference(dtype: Any) -> CPCA:
    x, y = (rows.toarray().astype(dtype) for rows in sparse_data())
    return CPCA(alpha=2.0, solver="eigh").fit(x, background=y)


@cache
def allowed(alpha: float, k: int) -> float:
    """The accuracy that every result must have."""
    values = np.linalg.eigvalsh(moments()[0].covariance - alpha * moments()[1].covariance)
    norm = np.abs(values[[0, -1]]).max()
    return float(max(1e-8, 100 * np.finfo(float).eps * norm / (values[-k] - values[-k - 1])))


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_it_agrees_with_the_covariance_in_feature_space(solver: Any, alpha: float) -> None:
    x, y = wide_data()
    wide = CPCA(3, alpha=alpha, solver=solver, random_state=0).fit(x, background=y)
    dense = exact(alpha)
    assert (wide.form_, dense.form_) == (SOLVERS[solver], "dense")
    assert subspace_error(wide.components_, dense.components_) <= allowed(alpha, 3)
    np.testing.assert_allclose(wide.components_, dense.components_, atol=1e-6)  # signs too
    np.testing.assert_allclose(wide.components_ @ wide.components_.T, np.eye(3), atol=1e-12)
    for name in ("contrastive_eigenvalues_", "foreground_variance_", "background_variance_"):
        np.testing.assert_allclose(getattr(wide, name), getattr(dense, name), rtol=1e-6)
    np.testing.assert_allclose(wide.mean_, dense.mean_, atol=1e-13)
    np.testing.assert_allclose(wide.transform(y), dense.transform(y), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["gram", "lanczos"])
def test_a_mean_far_from_zero_costs_no_precision(solver: Any, dtype: Any) -> None:
    """Mean over sd of 100."""
    x, y = (rows.astype(dtype) for rows in wide_data(mean=100.0))
    reference = SecondMoments.from_data(x), SecondMoments.from_data(y)
    for alpha in ALPHAS[1::2]:
        wide = CPCA(alpha=alpha, solver=solver, random_state=0).fit(x, background=y)
        dense = CPCA(alpha=alpha).fit(reference[0], background=reference[1])
        assert subspace_error(wide.components_, dense.components_) <= allowed(alpha, 2)


@pytest.mark.parametrize("alpha", ["auto", "denoise", np.inf])
def test_every_contrast_is_available(alpha: Any) -> None:
    x, y = wide_data()
    wide = CPCA(alpha=alpha).fit(x, background=y)
    dense = CPCA(alpha=alpha, solver="eigh").fit(x, background=y)
    assert wide.form_ == "span"
    assert wide.alpha_ == pytest.approx(dense.alpha_, rel=1e-9)
    assert subspace_error(wide.components_, dense.components_) < 1e-8


def test_the_automatic_contrast_by_products() -> None:
    x, y = wide_data()
    implicit = CPCA(solver="lanczos", random_state=0).fit(x, background=y)
    assert implicit.alpha_ == pytest.approx(CPCA().fit(x, background=y).alpha_, rel=1e-6)


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("index, dtype", [(np.int32, np.float32), (np.int64, np.float64)])
def test_sparse_agrees_with_dense(solver: Any, kind: Any, index: Any, dtype: Any) -> None:
    x, y = (kind(rows.astype(dtype)) for rows in sparse_data())
    for rows in (x, y):
        rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    sparse = CPCA(alpha=2.0, solver=solver, random_state=0).fit(x, background=y)
    dense = sparse_reference(dtype)
    assert subspace_error(sparse.components_, dense.components_) <= 1e-8
    np.testing.assert_allclose(sparse.foreground_variance_, dense.foreground_variance_, rtol=1e-6)
    variances = sparse.foreground_moments_.variances
    np.testing.assert_allclose(variances, dense.foreground_moments_.variances, atol=1e-12)


def test_sparse_rows_are_never_dense_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    for kind in (sp.csr_matrix, sp.csc_matrix):
        plain = kind.toarray

        def watched(self: Any, *args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            nonlocal largest
            largest = max(largest, self.shape[1])
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(kind, "toarray", watched)
    x, y = (rows_of(rows, elements=1) for rows in sparse_data())
    for solver in ("gram", "lanczos"):
        CPCA(alpha=1.0, solver=solver, random_state=0).fit(x, background=y)
    assert 0 < largest <= 256


def test_the_path_agrees() -> None:
    x, y = wide_data()
    wide = contrast_path(x, background=y, alphas=[*ALPHAS, np.inf])
    dense = contrast_path(moments()[0], background=moments()[1], alphas=[*ALPHAS, np.inf])
    assert isinstance(wide.foreground, SpanMoments)
    for alpha, a, b in zip(ALPHAS, wide.components, dense.components, strict=False):
        assert subspace_error(a, b) <= allowed(alpha, 2)
    np.testing.assert_allclose(wide.components, dense.components, atol=1e-6)
    np.testing.assert_allclose(wide.eigenvalues, dense.eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(wide.affinity, dense.affinity, atol=1e-8)
    again = wide.at(4.0)
    assert subspace_error(again.components_, wide.components[2]) < 1e-8


def test_a_path_by_products() -> None:
    x, y = wide_data()
    x, y = moments_in("products", x, y)
    path = contrast_path(x, background=y, alphas=ALPHAS)
    for alpha, found in zip(ALPHAS, path.components, strict=True):
        assert subspace_error(found, exact(alpha, 2).components_) <= allowed(alpha, 2)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_other_methods_agree(sparse: bool) -> None:
    x, y = sparse_data() if sparse else wide_data()
    reference = SecondMoments.from_data(x), SecondMoments.from_data(y)
    for method in (PCPCA(), PCPCA(gamma=0.2), CPCAStar(), CPCAStar(beta=0.3)):
        wide = method.fit(x, background=y)
        assert isinstance(wide.foreground_moments_, SpanMoments)
        dense = type(method)(**method.get_params()).fit(reference[0], background=reference[1])
        assert subspace_error(wide.components_, dense.components_) < 1e-8
        np.testing.assert_allclose(wide.components_, dense.components_, atol=1e-6)
        for name in ("noise_variance_", "gamma_", "gamma_max_", "beta_", "loadings_"):
            if hasattr(dense, name):
                np.testing.assert_allclose(
                    getattr(wide, name), getattr(dense, name), rtol=1e-7, atol=1e-7
                )
        if isinstance(dense, CPCAStar):
            np.testing.assert_allclose(
                wide.generalized_eigenvalues_, dense.generalized_eigenvalues_, rtol=1e-8
            )
            np.testing.assert_allclose(wide.directions_, dense.directions_, atol=1e-6)


def test_directions_without_variance_come_after_negative_ones() -> None:
    """Foreground rows within the span of the background's: all eigenvalues are negative."""
    x, y = wide_data()
    x = x.mean(axis=0) + np.random.default_rng(1).normal(size=(20, M)) @ (y - y.mean(axis=0)) / 20
    with pytest.warns(ContrastWarning, match="5 of 5 components have negative contrast"):
        wide = CPCA(5, alpha=50.0, solver="gram").fit(x, background=y)
    assert (wide.contrastive_eigenvalues_ < 0).all()
    assert (wide.background_variance_ > 0).all()
    # The same moments serve more components than there are.
    with pytest.warns(
        ContrastWarning, match="last 65 of 90 components are directions|25 of 90 components have"
    ):
        more = CPCA(90, alpha=50.0).fit(
            wide.foreground_moments_, background=wide.background_moments_
        )
    np.testing.assert_allclose(more.components_ @ more.components_.T, np.eye(90), atol=1e-10)
    np.testing.assert_array_equal(more.contrastive_eigenvalues_[M - 1 :], 0.0)
    assert subspace_error(more.components_[:5], wide.components_) < 1e-8
    for rows in (x, y):
        centred = rows - rows.mean(axis=0)
        assert np.abs(centred @ more.components_[M - 1 :].T).max() < 1e-8


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [58, 59, 200])
def test_more_components_than_rows(k: int, sparse: bool) -> None:
    x, y = sparse_data() if sparse else wide_data()
    wide = CPCA(k, alpha=0.5, solver="gram").fit(x, background=y)
    dense = CPCA(k, alpha=0.5, solver="eigh").fit(x, background=y)
    np.testing.assert_allclose(
        wide.contrastive_eigenvalues_, dense.contrastive_eigenvalues_, atol=1e-9
    )
    rank = N + M - 2
    assert subspace_error(wide.components_[:rank], dense.components_[:rank]) < 1e-7
    for fitted in (wide, dense):
        np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(k), atol=1e-10)


def test_degenerate_rows() -> None:
    """Duplicate rows, rows of both datasets alike, constant features."""
    x, y = wide_data()
    x = np.vstack([x, x[:10], y[:5]])
    x[:, :300], y[:, :300] = 7.0, 7.0
    wide = CPCA(alpha=2.0, solver="gram").fit(x, background=y)
    dense = CPCA(alpha=2.0, solver="eigh").fit(x, background=y)
    assert subspace_error(wide.components_, dense.components_) < 1e-8
    assert np.abs(wide.components_[:, :300]).max() < 1e-10
    assert wide.foreground_moments_.variances[:300].max() == 0
    twice = CPCA(alpha=2.0, solver="gram").fit(np.vstack([x, x]), background=np.vstack([y, y]))
    assert subspace_error(twice.components_, dense.components_) < 1e-8


def test_nearly_dependent_rows_cost_the_components_nothing() -> None:
    """What is lifted to the features is off by 1e-4 there, until its products are restored."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(n, 1)) * rng.normal(size=D) for n in (N, M))
    x, y = (rows + 1e-6 * rng.normal(size=rows.shape) for rows in (x, y))
    components = CPCA(3, alpha=1.0, solver="gram").fit(x, background=y).components_
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-12)
    space = moments_in("span", x, y)[0].space  # type: ignore[attr-defined]
    rows = rng.normal(size=(3, space.factor.rank))
    lifted = space.lift(rows)
    np.testing.assert_allclose(lifted @ lifted.T, rows @ rows.T, rtol=0, atol=1e-10)


def test_a_constant_dataset() -> None:
    x, y = wide_data()
    flat = np.ones_like(y)
    wide = CPCA(alpha=1.0, solver="gram").fit(x, background=flat)
    assert subspace_error(wide.components_, CPCA(alpha=0.0).fit(x, background=y).components_) < 1e-8
    with pytest.warns(ContrastWarning, match="last 2 of 2 components are directions in which nei"):
        both = CPCA(alpha=1.0, solver="gram").fit(np.ones_like(x), background=flat)
    np.testing.assert_allclose(both.components_ @ both.components_.T, np.eye(2), atol=1e-12)


def test_the_choice_by_shape() -> None:
    x, y = wide_data()
    for n_features in (1600, 900, 61):
        few = CPCA().fit(x[:, :n_features], background=y[:, :n_features])
        assert few.form_ == "span"
    assert CPCA().fit(x[:, :60], background=y[:, :60]).form_ == "dense"
    sparse_x, sparse_y = sparse_data()
    assert CPCA().fit(sparse_x, background=sparse_y).form_ == "span"
    assert CPCA(alpha=0.0).fit(sparse_x, background=sparse_y).form_ == "span"


def test_a_path_after_a_fit_by_products_takes_the_matrix_that_is_worth_it() -> None:
    """Of rows that are still at hand, and with the components of each contrast by itself."""
    x, y = sparse_data()
    rows = [rows_of(part) for part in (x, y)]
    products = product_moments(rows)
    fitted = CPCA(3, alpha=1.0).fit(products[0], background=products[1])
    assert fitted.form_ == "span"
    by_products = CPCA(3, alpha=1.0, solver="lanczos").fit(x, background=y)
    path = by_products.set_params(solver="auto").path([1.0, 3.0])
    assert [one.form_ for one in path] == ["span", "span"]
    for one in path:
        alone = CPCA(3, alpha=one.alpha_, solver="eigh").fit(x, background=y)
        assert subspace_error(one.components_, alone.components_) < 1e-8
    assert by_products.at(2.0).form_ == "span"


def test_a_failed_iteration_falls_back() -> None:
    """Without a gap after the third eigenvalue: 8 columns are not enough, nor are many."""
    x, y = sparse_data()
    few = replace(LIMITS, columns_each=0, entry_columns=0.1, products=8, sparse_rows=1)
    made: list[Form] = []

    def solve(plan: Plan) -> Any:
        made.append(plan.form)
        return solve_contrasts(*moments_in(plan.form, x, y), [1.0], 3, plan)

    task = Task(N + M, D, 3, entries=x.nnz + y.nnz)
    found = with_fallback(make_plan(task, few), solve)
    assert made == ["products", "span"]
    assert found.solvers == ("eigh",)
    reference = CPCA(3, alpha=1.0, solver="gram").fit(x, background=y)
    assert subspace_error(found.components[0], reference.components_) < 1e-8
    with pytest.raises(linalg.NotConvergedError, match=r"alpha=1: .* used 8 prod.* solver='gram'"):
        with_fallback(make_plan(task._replace(form="products"), few), solve)
    with pytest.raises(linalg.NotConvergedError, match="null space"):
        CPCA(alpha=np.inf, solver="lanczos").fit(x, background=y)


def test_a_multiple_eigenvalue_is_found_whole() -> None:
    """One start vector sees one direction of a tied space; a block sees more."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(D, 12)))[0].T
    scale = np.array([5.0, 5.0, 5.0, 3.0] + [1.0] * 8)
    x = np.vstack([basis * scale[:, None], -basis * scale[:, None]])
    y = np.vstack([basis, -basis])
    found = CPCA(3, alpha=1.0, solver="lanczos", random_state=0).fit(x, background=y)
    assert subspace_error(found.components_, basis[:3]) < 1e-8


def test_wrong_combinations_say_so() -> None:
    x, y = wide_data()
    with pytest.raises(ValueError, match="solver='svd' is unknown"):
        CPCA(solver="svd").fit(x, background=y)  # type: ignore[arg-type]
    dense = SecondMoments.from_data(x[:, :50]), SecondMoments.from_data(y[:, :50])
    with pytest.raises(ValueError, match="serve solver='eigh' only; give the data"):
        CPCA(solver="gram").fit(dense[0], background=dense[1])
    a, b = (CPCA(alpha=1.0).fit(x, background=rows) for rows in (y, y[1:]))
    with pytest.raises(ValueError, match="not made together"):
        CPCA().fit(a.foreground_moments_, background=b.background_moments_)
    with pytest.raises(ValueError, match="both must be moments of the same kind"):
        CPCA().fit(a.foreground_moments_, background=dense[1])
    with pytest.raises(TypeError, match="X is SpanMoments and background is ndarray"):
        CPCA().fit(a.foreground_moments_, background=y)
    with pytest.raises(TypeError, match="fit_transform got SpanMoments"):
        CPCA().fit_transform(a.foreground_moments_, background=a.background_moments_)
    with pytest.raises(ValueError, match="background has 1599 features but X has 1600"):
        CPCA().fit(x, background=y[:, 1:])
    with pytest.raises(ValueError, match="n_components=1601 is out of range"):
        CPCA(1601).fit(x, background=y)
    with pytest.raises(TypeError, match="n_components must be an integer"):
        CPCA("two").fit(x, background=y)  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("sparse", [False, True])
def test_bad_values_are_named(solver: Any, sparse: bool) -> None:
    x, y = wide_data()
    y[3, 1234] = np.nan
    rows = (sp.csr_array(x), sp.csr_array(y)) if sparse else (x, y)
    with pytest.raises(ValueError, match=r"background contains NaN or inf"):
        CPCA(alpha=1.0, solver=solver).fit(rows[0], background=rows[1])


def test_a_fit_pickles() -> None:
    x, y = sparse_data()
    for solver in ("gram", "lanczos"):
        fitted = CPCA(alpha=1.0, solver=solver, random_state=0).fit(x, background=y)
        copy = pickle.loads(pickle.dumps(fitted))
        assert subspace_error(copy.at(2.0).components_, fitted.at(2.0).components_) < 1e-8


def test_the_seed_decides() -> None:
    x, y = wide_data()
    first, second = (
        CPCA(alpha=1.0, solver="lanczos", random_state=5).fit(x, background=y) for _ in range(2)
    )
    np.testing.assert_array_equal(first.components_, second.components_)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 4.0])
def test_what_the_proof_refuses_is_left_to_lapack(
    alpha: float, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[float] = []
    prove = _proved.bound_by_inertia

    def seen(*args: Any) -> Any:
        beta, n_factors = prove(*args)
        proofs.append(beta)
        return (np.inf if blind else beta), n_factors

    monkeypatch.setattr(_proved, "bound_by_inertia", seen)
    x, y = moments_in("span", *wide_data(mean=5.0))
    plan = plan_in("span", replace(EAGER, path_contrasts=99))
    found = solve_contrasts(x, y, [alpha], 1, plan)
    assert found.solvers == ("eigh" if blind else "eigsh",)
    assert proofs
    assert np.isfinite(proofs).all()
    reference = exact(alpha, 1)
    assert subspace_error(found.components[0], reference.components_) < 1e-8
    np.testing.assert_allclose(found.values[0], reference.contrastive_eigenvalues_, atol=1e-8)
    for name in ("foreground_variance", "background_variance"):
        np.testing.assert_allclose(
            getattr(found, name)[0], getattr(reference, f"{name}_"), atol=1e-8
        )
