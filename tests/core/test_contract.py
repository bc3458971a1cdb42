"""Tests that every linear estimator must pass, whatever its method."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from contrast_core import CLVM, KernelCPCA, PCAPlus, PCAPlusPlus, SecondMoments, SparseCPCA
from contrast_core.linalg import subspace_error
from contrast_core.rows import rows_of
from tests.core.estimators import CASES, Case, ReversedBackground

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

# Two computations of the same float64 moments differ by rounding errors only. The gaps between the
# planted eigenvalues are near 1, so the errors of the subspaces are hardly larger.
SAME = 1e-10


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def cases(wanted: Callable[[Case], bool]) -> Any:
    """Restrict a test to the estimators for which `wanted` is true."""
    return pytest.mark.parametrize("case", list(filter(wanted, CASES)), ids=lambda case: case.name)


def planted(n: int = 160, m: int = 120, d: int = 12, seed: int = 0) -> tuple[Any, Any]:
    """Return X and Y, which share two strong directions; X has two more.

    With m == n, each row of Y also contains the extra signal of the same row of X. X and Y are then
    positive pairs.
    """
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    extra = rng.normal(size=(n, 2)) * [3.0, 2.0] @ basis[:2]
    X = rng.normal(size=(n, 2)) * [5.0, 4.0] @ basis[2:4] + extra + 0.7 * rng.normal(size=(n, d))
    Y = rng.normal(size=(m, 2)) * [5.0, 4.0] @ basis[2:4] + 0.7 * rng.normal(size=(m, d))
    if n == m:
        Y = Y + extra
    return X + 1.0, Y - 1.0


def data_for(case: Case, d: int = 12, seed: int = 0) -> tuple[Any, Any]:
    return planted(160, 160 if case.other == "positive" else 120, d, seed)


def assert_unit(case: Case, components: Any, atol: float) -> None:
    """Check that components have unit length, and are orthogonal if the method promises that."""
    products = components @ components.T
    if not case.orthonormal:
        products = np.diag(np.diag(products))
    np.testing.assert_allclose(products, np.eye(len(components)), atol=atol)


def test_components_are_orthonormal_and_follow_the_sign_rule(case: Case) -> None:
    fitted = case.fit(*data_for(case), n_components=3)
    v = fitted.components_
    assert v.shape == (3, 12)
    assert_unit(case, v, 1e-12)
    assert (v[np.arange(3), np.abs(v).argmax(axis=1)] > 0).all()


@cases(lambda case: case.equivariant)
def test_rotating_the_data_rotates_the_subspace(case: Case) -> None:
    X, Y = data_for(case)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0]
    plain, rotated = case.fit(X, Y), case.fit(X @ rotation, Y @ rotation)
    assert subspace_error(rotated.components_, plain.components_ @ rotation) < SAME


# The strength of the other methods depends on the units of the data. Other tests cover them.
@cases(lambda case: case.scale_free)
def test_scaling_both_datasets_does_not_change_the_subspace(case: Case) -> None:
    X, Y = data_for(case)
    assert subspace_error(case.fit(8 * X, 8 * Y).components_, case.fit(X, Y).components_) < SAME


def test_neither_the_origin_nor_the_order_of_rows_changes_the_subspace(case: Case) -> None:
    X, Y = data_for(case)
    shift = np.arange(12.0)
    shifted = case.fit(X[::-1] + shift, Y[::-1] + shift)
    assert subspace_error(shifted.components_, case.fit(X, Y).components_) < SAME


def test_duplicated_rows_do_not_change_the_subspace(case: Case) -> None:
    X, Y = data_for(case)
    if case.other == "positive":
        # Duplicated pairs add no evidence, so n_effective gives the true number of pairs.
        doubled = case.make(2)
        knows = "n_effective" in inspect.signature(doubled.fit).parameters
        told = {"n_effective": 160} if knows else {}
        doubled.fit(np.tile(X, (2, 1)), positive=np.tile(Y, (2, 1)), **told)
    else:
        doubled = case.fit(np.tile(X, (3, 1)), np.tile(Y, (2 if case.size_free else 3, 1)))
    assert subspace_error(doubled.components_, case.fit(X, Y).components_) < SAME


def test_padding_with_constant_features_does_not_change_the_components(case: Case) -> None:
    X, Y = data_for(case)

    def pad(rows: Any, scale: float) -> Any:
        """Insert constant columns between the columns of `rows`."""
        return np.insert(rows, [0, 0, 5, 12], [0.0, -0.1, 1.0, scale * 1e3], axis=1)

    # The value of a constant feature may differ between foreground and background. It may not
    # differ between the two rows of a positive pair, because both are centred by the same mean.
    scale = 1.0 if case.other == "positive" else 2.0
    plain, padded = case.fit(X, Y), case.fit(pad(X, 1.0), pad(Y, scale))
    constant = [0, 1, 7, 15]
    assert np.abs(padded.components_[:, constant]).max() < 1e-10
    found = np.delete(padded.components_, constant, axis=1)
    assert subspace_error(found, plain.components_) < SAME


def test_data_with_fewer_rows_than_features_are_fitted(case: Case) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 60)) * np.linspace(3, 1, 60)
    Y = rng.normal(size=(15, 60))
    if case.other == "positive":
        Y = X + 0.5 * rng.normal(size=(20, 60))
    fitted = case.fit(X, Y)
    assert_unit(case, fitted.components_, 1e-10)
    assert np.isfinite(fitted.transform(X)).all()


# The other methods need fewer components than features; their own tests cover them.
@cases(lambda case: case.full_rank_k)
def test_one_feature_and_all_components_are_valid(case: Case) -> None:
    X, Y = data_for(case)
    one = case.fit(X[:, :1], Y[:, :1], n_components=1)
    np.testing.assert_allclose(one.components_, [[1.0]])
    full = case.fit(X[:, :4], Y[:, :4], n_components=4)
    np.testing.assert_allclose(full.components_ @ full.components_.T, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(full.denoise(X[:, :4]), X[:, :4], atol=1e-9)


def test_the_projection_and_its_complement_add_up_to_the_data(case: Case) -> None:
    X, Y = data_for(case)
    fitted = case.fit(X, Y)
    projected = fitted.denoise(X)
    np.testing.assert_allclose(projected + fitted.remove_components(X), X + fitted.mean_, atol=1e-9)
    np.testing.assert_allclose(fitted.denoise(projected), projected, atol=1e-9)
    removed = fitted.remove_components(X) - fitted.mean_
    along = fitted.components_.T if case.orthogonal else fitted.projection_
    np.testing.assert_allclose(removed @ along, 0, atol=1e-9)


def test_dataframes_keep_names_and_columns_in_another_order_are_refused(case: Case) -> None:
    X, Y = (pd.DataFrame(a, columns=list("abcdefghijkl")) for a in data_for(case))
    fitted = case.fit(X, Y)
    assert list(fitted.feature_names_in_) == list("abcdefghijkl")
    with pytest.raises(ValueError, match=r"another order \(column 0 is 'b', in X it is 'a'\)"):
        case.fit(X, Y[list("bacdefghijkl")])
    with pytest.raises(ValueError, match=r"lacks 1 of X's features \(a\)"):
        case.fit(X, Y.rename(columns={"a": "z"}))
    named = fitted.set_output(transform="pandas").transform(X)
    assert list(named.columns) == list(fitted.get_feature_names_out())
    assert len(named.columns) == 2


def test_bad_input_is_refused_and_leaves_the_estimator_unfitted(case: Case) -> None:
    X, Y = data_for(case)
    bad = X.copy()
    bad[0, 1] = np.inf if case.missing else np.nan
    for rows, message in [
        (bad, r"X contains NaN or inf \((NaN|inf) first met in feature 1\).*SimpleImputer"),
        (X[:, :9], "has 12 features but X has 9; both need the same features in the same order"),
        (X[:1], "n_samples=1"),
    ]:
        estimator = case.make(2)
        with pytest.raises(ValueError, match=message):
            estimator.fit(rows, **{case.other: Y})
        assert not [name for name in vars(estimator) if name.endswith("_")]
    for k in (case.least - 1, 13):
        with pytest.raises(ValueError, match=f"{case.counted}={k} is out of range"):
            case.fit(X, Y, n_components=k)


@cases(lambda case: case.moments)
def test_moments_give_the_same_fit_as_data(case: Case) -> None:
    X, Y = data_for(case)
    from_data = case.fit(X, Y)
    x, y = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    from_moments = case.fit(x, y)
    np.testing.assert_array_equal(from_moments.components_, from_data.components_)
    with pytest.raises(TypeError, match="SecondMoments for both, or data for both"):
        case.fit(x, Y)
    with pytest.raises(TypeError, match="fit_transform got SecondMoments"):
        case.make(2).fit_transform(x, **{case.other: y})


@cases(lambda case: not case.constant_other)
def test_a_constant_background_is_refused(case: Case) -> None:
    X, Y = data_for(case)
    with pytest.raises(ValueError, match="the background is constant"):
        case.fit(X, np.full_like(Y, 0.1))


# scikit-learn's own checks, which give neither a background nor positive pairs


class NoisyPairs:
    """Mixin for scikit-learn's checks, which pass no positive pairs.

    The positive rows are the rows of X plus half of the rows of X in reversed order.
    """

    def fit(self, X: Any, y: object = None) -> Any:
        rows = rows_of(X).load()
        return super().fit(X, positive=rows + 0.5 * rows[::-1])  # type: ignore[misc]

    def fit_transform(self, X: Any, y: object = None) -> Any:
        return self.fit(X).transform(X)


class CheckedCLVM(ReversedBackground, CLVM):
    pass


class CheckedSparseCPCA(ReversedBackground, SparseCPCA):
    pass


class CheckedKernelCPCA(ReversedBackground, KernelCPCA):
    pass


class CheckedPCAPlus(NoisyPairs, PCAPlus):
    pass


class CheckedPCAPlusPlus(NoisyPairs, PCAPlusPlus):
    pass


@parametrize_with_checks(
    [
        CheckedCLVM(n_shared=0, n_salient=1),
        CheckedSparseCPCA(1, alpha=1.0),
        CheckedKernelCPCA(1),
        CheckedPCAPlus(1),
        CheckedPCAPlusPlus(1),
    ]
)
def test_the_estimators_pass_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)
