"""Tests of kernel cPCA, which is contrastive PCA in the feature space of a kernel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics.pairwise import rbf_kernel

from contrast_core import CPCA, KernelCPCA, contrast_path
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS

SQUARES = {"kernel": "poly", "degree": 2, "kernel_gamma": 1.0, "coef0": 1.0}


def planted(n: int = 60, m: int = 50, d: int = 6, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return a foreground and a background whose means are not 0, and new rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(3, 1, d) + 1.0
    Y = rng.normal(size=(m, d)) * np.linspace(1, 2, d) - 2.0
    return X, Y, rng.normal(size=(20, d))


def square_features(Z: np.ndarray) -> np.ndarray:
    """Map rows to the features of the kernel ``(x . y + 1) ** 2``."""
    i, j = np.triu_indices(Z.shape[1], 1)
    return np.hstack([Z**2, np.sqrt(2) * Z[:, i] * Z[:, j], np.sqrt(2) * Z, np.ones((len(Z), 1))])


def crossed_groups(seed: int, distance: float = 4.0, noise: float = 3.0) -> tuple[Any, Any, Any]:
    """Return two groups that differ in the squares of two features, and a background.

    Each group has large positive and negative values of its own feature. Eight more features are
    noise.
    """
    rng = np.random.default_rng(seed)
    n = 300
    labels = np.arange(n) % 2
    X, Y = noise * rng.normal(size=(2, n, 10))
    X[:, :2] = 0.4 * rng.normal(size=(n, 2))
    X[np.arange(n), labels] += distance * rng.choice([-1, 1], n)
    Y[:, :2] = rng.normal(size=(n, 2))
    return X, Y, labels


def separability(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the accuracy of a linear classifier of the scores."""
    return float(LinearDiscriminantAnalysis().fit(scores, labels).score(scores, labels))


@pytest.mark.parametrize("alpha", [0.0, 0.5, "auto"])
def test_a_linear_kernel_gives_the_results_of_cpca(alpha: Any) -> None:
    X, Y, new = planted()
    kernel = KernelCPCA(alpha=alpha, kernel="linear").fit(X, background=Y)
    linear = CPCA(alpha=alpha).fit(X, background=Y)
    assert (linear.contrastive_eigenvalues_ > 0).all()
    assert kernel.alpha_ == pytest.approx(linear.alpha_, rel=1e-9)
    for name in ("contrastive_eigenvalues_", "foreground_variance_", "background_variance_"):
        np.testing.assert_allclose(getattr(kernel, name), getattr(linear, name), rtol=1e-9)
    # The components are the same vectors in feature space, signs included.
    np.testing.assert_allclose(kernel.dual_coef_ @ kernel.X_fit_, linear.components_, atol=1e-9)
    for rows in (X, Y, new):
        np.testing.assert_allclose(kernel.transform(rows), linear.transform(rows), atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 10.0])
def test_a_polynomial_kernel_gives_the_results_of_cpca_on_explicit_features(alpha: float) -> None:
    X, Y, new = planted()
    kernel = KernelCPCA(3, alpha=alpha, **SQUARES).fit(X, background=Y)
    linear = CPCA(3, alpha=alpha).fit(square_features(X), background=square_features(Y))
    values = linear.contrastive_eigenvalues_
    np.testing.assert_allclose(kernel.contrastive_eigenvalues_, values, rtol=1e-9)
    for rows in (X, Y, new):
        ours, theirs = kernel.transform(rows), linear.transform(square_features(rows))
        ours *= np.sign((ours * theirs).sum(axis=0))
        np.testing.assert_allclose(ours, theirs, atol=1e-7 * np.abs(theirs).max())


@pytest.mark.filterwarnings("ignore:.*negative contrast")
def test_only_kernel_cpca_separates_groups_that_differ_in_squares() -> None:
    """Reproduce Example 2 (Fig. 8 and 9) of Abid et al."""
    X, Y, labels = crossed_groups(0)
    kernel_pca = KernelPCA(2, kernel="poly", degree=2, gamma=1, coef0=1).fit_transform(X)
    assert separability(kernel_pca, labels) < 0.7
    assert separability(CPCA(alpha=50.0).fit_transform(X, background=Y), labels) < 0.6
    for options in ({"alpha": 50.0}, {}):
        scores = KernelCPCA(**options, **SQUARES).fit_transform(X, background=Y)
        assert separability(scores, labels) > 0.99
        X, Y, labels = crossed_groups(1, noise=2.5)  # slightly less noise for the automatic alpha


def test_other_alphas_and_the_path_do_not_evaluate_the_kernel_again() -> None:
    X, Y, new = planted(15, 12)
    calls = []

    def counting(a: np.ndarray, b: np.ndarray, scale: float) -> float:
        calls.append(1)
        return float(np.exp(-scale * ((a - b) ** 2).sum()))

    parameters: dict[str, Any] = {"kernel": counting, "kernel_params": {"scale": 0.1}}
    fitted = KernelCPCA(alpha=0.5, **parameters).fit(X, background=Y)
    n_calls = len(calls)
    x, y = fitted.foreground_moments_, fitted.background_moments_
    path = contrast_path(x, background=y, alphas=[0.0, 1.0, 3.0])
    for alpha, eigenvalues in zip(path.alphas, path.eigenvalues, strict=True):
        np.testing.assert_allclose(fitted.at(alpha).contrastive_eigenvalues_, eigenvalues)
    assert len(calls) == n_calls
    named = KernelCPCA(kernel="rbf", kernel_gamma=0.1, alpha=0.5).fit(X, background=Y)
    np.testing.assert_allclose(fitted.transform(new), named.transform(new), atol=1e-10)


def test_an_infinite_alpha_leaves_no_background_variance() -> None:
    X, Y, _ = planted()
    fitted = KernelCPCA(alpha=np.inf, kernel_gamma=0.1).fit(X, background=Y)
    assert fitted.transform(Y).var(axis=0).max() < 1e-8 * fitted.transform(X).var(axis=0).min()


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@pytest.mark.parametrize("kernel", ["chi2", "cosine", "laplacian", "polynomial"])
def test_scores_of_scikit_learns_kernels_are_centred_with_the_stated_variances(kernel: Any) -> None:
    X, Y, new = (np.abs(part) for part in planted())
    fitted = KernelCPCA(alpha=1.0, kernel=kernel).fit(X, background=Y)
    assert fitted.transform(new).shape == (20, 2)
    np.testing.assert_allclose(fitted.transform(X).mean(axis=0), 0, atol=1e-9)
    variances = fitted.transform(X).var(axis=0)
    np.testing.assert_allclose(variances, fitted.foreground_variance_, rtol=1e-6)
    assert not hasattr(fitted, "inverse_transform")  # the pre-image of a score is not defined


def test_a_precomputed_kernel_gives_the_scores_of_the_kernel_given_by_name() -> None:
    X, Y, new = planted()
    Z = np.vstack([X, Y])
    named = KernelCPCA(alpha=1.0, kernel_gamma=0.1).fit(X, background=Y)
    given = KernelCPCA(alpha=1.0, kernel="precomputed").fit(
        rbf_kernel(X, Z, gamma=0.1), background=rbf_kernel(Y, Z, gamma=0.1)
    )
    ours, theirs = given.transform(rbf_kernel(new, Z, gamma=0.1)), named.transform(new)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-9)
    with pytest.raises(ValueError, match=r"has 110 rows .* and 60 columns"):
        KernelCPCA(kernel="precomputed").fit(rbf_kernel(X, X), background=rbf_kernel(Y, X))


X, Y, _ = planted()
POLY = {"kernel": "poly", "degree": 1000, "kernel_gamma": 1.0}
ASYMMETRIC = np.eye(4)[:2] + 0.1, np.eye(4)[[3, 2]]
REFUSED: list[tuple[dict[str, Any], tuple[Any, Any], str]] = [
    ({"alpha": "denoise"}, (X, Y), "alpha='denoise' is unknown; expected 'auto' or a"),
    ({"n_components": 109}, (X, Y), "n_components=109 is out of range"),
    ({"kernel": "sigmoid", "kernel_gamma": 1.0}, (X, Y), r"indefinite .* the largest is"),
    ({"kernel": "precomputed"}, ASYMMETRIC, "not symmetric"),
    (POLY, (X, Y), "NaN or infinite"),
    ({"kernel": lambda a, b: 1.0}, (X, Y), "does not tell the rows of a dataset apart"),
    ({"kernel": lambda a, b: np.ones(2)}, (X, Y), "for two rows; expected a function"),
]


@pytest.mark.parametrize(("parameters", "data", "message"), REFUSED)
def test_invalid_kernels_and_data_are_refused(parameters: Any, data: Any, message: str) -> None:
    estimator = KernelCPCA(**({"alpha": 1.0} | parameters))
    with pytest.raises((TypeError, ValueError), match=message):
        estimator.fit(data[0], background=data[1])
    assert not [name for name in vars(estimator) if name.endswith("_")]


def test_new_rows_are_transformed_in_batches() -> None:
    X, Y, new = planted()
    fitted = KernelCPCA(alpha=1.0).fit(X, background=Y)
    whole = fitted.transform(new)
    np.testing.assert_allclose(fitted.transform(rows_of(new, elements=7 * 110)), whole, atol=1e-13)
    kernel = X @ X.T
    fitted = KernelCPCA(1, alpha=0.5, kernel="precomputed").fit(kernel[:20], background=kernel[20:])
    with pytest.raises(ValueError, match="X has 7 features, but KernelCPCA is expecting 60 "):
        fitted.transform(np.ones((3, 7)))


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "poly"])
def test_repeated_entries_of_sparse_rows_are_summed(kernel: Any) -> None:
    X, Y, new = (np.where(np.abs(rows) < 1, 0.0, rows) for rows in planted())
    dense = KernelCPCA(alpha=1.0, kernel=kernel).fit(X, background=Y)
    doubled = partial(KINDS["duplicates"], folder=Path())
    for x, y in ((doubled(X), doubled(Y)), (sp.csc_array(X), Y)):
        sparse = KernelCPCA(alpha=1.0, kernel=kernel).fit(x, background=y)
        np.testing.assert_allclose(sparse.transform(doubled(new)), dense.transform(new), atol=1e-8)
