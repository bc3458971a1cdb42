"""Tests of sparse cPCA: the elastic net, its path, and a penalty chosen by cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, lars_path_gram

from contrast_core import CPCA, SecondMoments, SparseCPCA, cross_validated_penalty
from contrast_core.datasets import make_sparse_groups
from contrast_core.linalg import sparse_components
from contrast_core.linalg._sparse_components import _ElasticNet, _least_angle, _Matrix
from contrast_core.rows import rows_of
from contrast_core.spectral._penalty import _folds
from tests.core.test_contract import planted


def positive_eigenpairs(X: Any, Y: Any, alpha: float) -> tuple[Any, Any]:
    """Return the positive eigenvalues of the contrast, descending, and eigenvectors as rows."""
    contrast = np.cov(X.T, bias=True) - alpha * np.cov(Y.T, bias=True)
    values, vectors = np.linalg.eigh(contrast)
    positive = values > 1e-10
    return values[positive][::-1], vectors[:, positive][:, ::-1].T


def test_a_cross_validated_penalty_keeps_the_true_features_and_few_others() -> None:
    data = make_sparse_groups(random_state=1)
    given: dict[str, Any] = {"background": data.background}
    choice = cross_validated_penalty(
        SparseCPCA(2), data.foreground, penalties=[0.2, 0.4, 0.6, 0.9], random_state=0, **given
    )
    selected = (choice.fitted.components_ != 0).any(axis=0)
    assert selected[:30].sum() >= 25
    assert selected[30:].sum() <= 15
    assert choice.penalty == choice.penalties[choice.contrasts.mean(axis=0).argmax()]
    again = SparseCPCA(2, penalty=choice.penalty).fit(data.foreground, **given)
    np.testing.assert_array_equal(again.components_, choice.fitted.components_)


def test_a_feature_that_has_to_enter_an_elastic_net_is_not_overlooked() -> None:
    """Solve a problem of one feature, and then a problem for which these features do not suffice.

    The second feature is correlated negatively with the first and positively with the target.
    """
    C = np.array([[1.0, -0.4], [-0.4, 1.0]])
    first, second = (np.linalg.solve(C, correlations) for correlations in ([1, 0.0], [1, 0.25]))

    def solver() -> Any:
        return _ElasticNet(_Matrix(np.linalg.cholesky(C).T, 0.1, {}), 0.3, None)

    used = solver()
    assert np.count_nonzero(used.solve(first)) == 1
    found = used.solve(second)
    assert np.count_nonzero(found) == 2
    np.testing.assert_allclose(found, solver().solve(second), atol=1e-9)


@pytest.mark.parametrize("ridge", [1e-3, 1.0])
@pytest.mark.parametrize("penalty", [0.1, 0.3])
def test_every_component_is_an_elastic_net_solution(ridge: float, penalty: float) -> None:
    """Repeat the alternation of Zou et al. 2006, with the elastic net of scikit-learn.

    It starts like `sparse_components`, from the leading eigenvectors. The ridge penalty is written
    as extra rows of the regression.
    """
    X, Y = planted()
    values, vectors = positive_eigenpairs(X, Y, 0.5)
    gram = (vectors.T * values) @ vectors
    found = sparse_components(values, vectors, 3, ridge=ridge, penalty=penalty)
    assert found.converged
    np.testing.assert_allclose(found.penalties, penalty)
    levels = penalty * values[:3] * np.abs(vectors[:3]).max(axis=1)
    scale = np.sqrt(ridge * values[0])
    root = np.vstack([np.sqrt(values)[:, None] * vectors, scale * np.eye(12)])
    targets, unit = vectors[:3].T, np.zeros((12, 3))
    for _ in range(3000):
        before, sparse = unit, np.empty((12, 3))
        for j, level in enumerate(levels):
            net = ElasticNet(alpha=level / len(root), l1_ratio=1.0, fit_intercept=False, tol=1e-13)
            seen = np.concatenate([np.sqrt(values) * (vectors @ targets[:, j]), np.zeros(12)])
            sparse[:, j] = net.fit(root, seen).coef_
        unit = sparse / np.linalg.norm(sparse, axis=0)
        if np.abs(unit - before).max() < 1e-9:
            break
        left, _, right = np.linalg.svd(gram @ sparse, full_matrices=False)
        targets = left @ right
    np.testing.assert_allclose(unit.T, found.components, atol=1e-5)


@pytest.mark.parametrize("copies", [False, True])
def test_selecting_a_number_of_features_agrees_with_least_angle_regression(copies: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(6, 15))
        if copies:
            root[:, 10:] = root[:, :5]
        gram = root.T @ root + 0.1 * np.eye(15)
        correlations = root.T @ rng.normal(size=6)
        for count in (1, 4, 9):
            found, level = _least_angle(correlations, _Matrix(root, 0.1, {}), count)
            assert (found != 0).sum() <= count
            rest = correlations - gram @ found
            inside = found != 0
            np.testing.assert_allclose(rest[inside], level * np.sign(found[inside]), rtol=1e-9)
            if not copies:
                path = lars_path_gram(correlations, gram, n_samples=1, method="lasso")[2]
                reached = (path != 0).sum(axis=0)
                more = [*np.flatnonzero(reached > count), path.shape[1]][0]
                expected = path[:, more - 1]
                np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_slightly_smaller_penalty_selects_one_more_feature() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 12)) * rng.uniform(0.5, 2, 12)
        X[:, 1] -= 0.7 * X[:, 0]
        values, rows = positive_eigenpairs(X, X, 0.0)
        for count in (2, 4, 7):
            found = sparse_components(values, rows, 1, ridge=0.1, penalty=0.0, count=count)
            penalty = (1 - 1e-5) * float(found.penalties[0])
            below = sparse_components(values, rows, 1, ridge=0.1, penalty=penalty)
            n_kept = [int((each.components != 0).sum()) for each in (found, below)]
            assert n_kept == [count, count + 1]


def test_without_a_penalty_the_components_are_those_of_cpca() -> None:
    X, Y = planted()
    dense = CPCA(3, alpha=0.5).fit(X, background=Y).components_
    for sparsity in ({"penalty": 0.0}, {"n_features_to_select": 12}):
        sparse = SparseCPCA(3, alpha=0.5, **sparsity).fit(X, background=Y)
        np.testing.assert_allclose(sparse.components_, dense, atol=1e-10)


def test_the_path_goes_from_all_features_to_one() -> None:
    X, Y = planted()
    fitted = SparseCPCA(2, alpha=0.5).fit(X, background=Y)
    path = fitted.sparsity_path()
    counts = [12, 8, 4, 2, 1]
    assert [(one.components_ != 0).sum(axis=1).tolist() for one in path] == [[n, n] for n in counts]
    for one, n in zip(path, counts, strict=True):
        alone = SparseCPCA(2, alpha=0.5, n_features_to_select=n).fit(X, background=Y)
        np.testing.assert_allclose(one.components_, alone.components_, atol=1e-12)
        assert one.foreground_moments_ is fitted.foreground_moments_
        assert one.n_features_to_select == n
    dense, one_feature = path[0].foreground_variance_, path[-1].foreground_variance_
    assert dense.sum() > one_feature.sum()
    np.testing.assert_allclose(fitted.transform(Y).var(axis=0), fitted.background_variance_)
    assert [len(fitted.sparsity_path([3, 3, 7])), fitted.penalty] == [2, None]


def test_the_contrast_of_a_fold_is_measured_along_orthonormalised_components() -> None:
    X, Y = planted()
    choice = cross_validated_penalty(
        SparseCPCA(2), X, background=Y, penalties=[0.2, 0.5], n_folds=3, random_state=0
    )
    alpha, rng = SparseCPCA(2).fit(X, background=Y).alpha_, np.random.default_rng(0)
    number = [rng.permutation(len(rows)) % 3 for rows in (X, Y)]
    for fold, penalty in np.ndindex(3, 2):
        train, test = (
            [rows[(n == fold) == held] for rows, n in zip((X, Y), number, strict=True)]
            for held in (False, True)
        )
        model = SparseCPCA(2, alpha=alpha, penalty=choice.penalties[penalty])
        V = np.linalg.qr(model.fit(train[0], background=train[1]).components_.T)[0]
        x, y = ((rows @ V).var(axis=0).sum() for rows in test)
        np.testing.assert_allclose(choice.contrasts[fold, penalty], x - alpha * y, rtol=1e-6)


def test_tied_penalties_give_the_sparsest_fit_and_shared_donors_stay_in_one_fold() -> None:
    X, Y = planted()
    given = {"background": Y[:, :1], "penalties": [0, 0.5, 0.9], "random_state": 0}
    tied = cross_validated_penalty(SparseCPCA(1, alpha=0.1), X[:, :1], **given)
    assert tied.penalty == 0.9
    donors = np.arange(160) // 8, np.arange(120) // 6
    for in_x, in_y in _folds(rows_of(X), rows_of(Y), *donors, 4, np.random.default_rng(0)):
        assert not set(donors[0][in_x]) & set(donors[1][~in_y])
        assert not set(donors[1][in_y]) & set(donors[0][~in_x])
    smallest = _folds(rows_of(X), rows_of(Y[:10]), None, None, 5, np.random.default_rng(0))
    assert [int(in_y.sum()) for _, in_y in smallest] == [2] * 5


X, Y = planted()
MOMENTS = SecondMoments.from_data(X), SecondMoments.from_data(Y)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n_components": 9, "alpha": 3.0}, r"n_components=9, but at alpha=3 .* positive eigenvalues"),
    ({"alpha": np.inf}, "alpha=inf was given"),
    ({"penalty": 0.1, "n_features_to_select": 3}, "were both given"),
    ({"ridge": 1e300}, r"ridge=1e\+300 is out of range: it must be above 0, up to"),
]


@pytest.mark.parametrize(("parameters", "message"), REFUSED)
def test_invalid_parameters_are_refused(parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseCPCA(**parameters).fit(X, background=Y)


@pytest.mark.parametrize(
    ("estimator", "data", "options", "error", "message"),
    [
        (CPCA(2), (X, Y), {}, TypeError, "estimator is a CPCA; expected a SparseCPCA"),
        (SparseCPCA(2), MOMENTS, {}, TypeError, "rows are needed"),
        (SparseCPCA(2), (X, Y), {"units": np.arange(160)}, ValueError, "without background_units"),
        (SparseCPCA(2), (X, Y[:9]), {}, ValueError, "background has 1 rows in one of 5 folds"),
    ],
)
def test_invalid_cross_validation_is_refused(
    estimator: Any, data: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cross_validated_penalty(estimator, data[0], background=data[1], **options)
