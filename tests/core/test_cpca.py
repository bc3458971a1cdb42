"""Tests of CPCA: its subspace, the default alpha, published effects, and degenerate data."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import silhouette_score

from contrast_core import CPCA, ContrastWarning, CPCAStar, SecondMoments
from contrast_core.datasets import digits_on_photos, load_mouse_protein
from contrast_core.linalg import subspace_error
from tests.core.test_contract import planted

EPS = np.finfo(np.float64).eps
ALPHAS = [0.0, 0.3, 2.0, 30.0, 1000.0]


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("form", [np.float64, np.float32, sp.csr_matrix])
def test_the_subspace_agrees_with_a_dense_decomposition(alpha: float, form: Any) -> None:
    X, Y = planted(700, 600, 40)
    X, Y = (np.where(np.abs(a) < 0.5, 0.0, a).astype(np.float32).astype(float) for a in (X, Y))
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True) - alpha * np.cov(Y.T, bias=True))
    norm, gap = np.abs(values).max(), values[-2] - values[-3]
    fitted = CPCA(alpha=alpha).fit(form(X), background=form(Y))
    error = subspace_error(fitted.components_, vectors[:, -2:].T)
    assert error <= max(1e-8, 100 * EPS * norm / gap)
    np.testing.assert_array_equal(fitted.at(3.0).at(alpha).components_, fitted.components_)
    x, y = ((rows @ fitted.components_.T).var(axis=0) for rows in (X, Y))
    np.testing.assert_allclose(fitted.foreground_variance_, x, rtol=1e-6)
    np.testing.assert_allclose(fitted.background_variance_, y, rtol=1e-6)
    np.testing.assert_allclose(fitted.contrastive_eigenvalues_, x - alpha * y, rtol=1e-5)


def test_the_automatic_contrast_scales_with_the_units_of_the_data() -> None:
    X, Y = planted()
    alpha = CPCA().fit(X, background=Y).alpha_
    assert CPCA().fit(3 * X, background=Y).alpha_ == pytest.approx(9 * alpha)
    assert CPCA().fit(3 * X, background=3 * Y).alpha_ == pytest.approx(alpha)
    # For "denoise", alpha is half of the automatic alpha for two components.
    denoising = CPCA(1, alpha="denoise").fit(X, background=Y)
    assert denoising.alpha_ == pytest.approx(alpha / 2)


def test_mice_with_down_syndrome_are_separated_from_the_others() -> None:
    """Reproduce Fig. 2 of Abid et al. 2018, with an alpha that is chosen without labels."""
    mice = load_mouse_protein()
    cpca = CPCA().fit(mice.foreground, background=mice.background)
    scores, pca_scores = (c.transform(mice.foreground) for c in (cpca, cpca.at(0.0)))
    assert silhouette_score(scores / scores.std(axis=0), mice.labels) >= 0.41
    assert silhouette_score(pca_scores / pca_scores.std(axis=0), mice.labels) < 0.08


def test_digits_on_photographs_are_separated() -> None:
    """Reproduce Fig. 1 of Abid et al. 2018 with 5,000 digits and 5,000 crops of 784 pixels."""
    digits = digits_on_photos(5000, random_state=0)
    cpca = CPCA().fit(digits.foreground, background=digits.background)
    scores, pca_scores = (c.transform(digits.foreground) for c in (cpca, cpca.at(0.0)))
    assert silhouette_score(scores, digits.labels) >= 0.55
    assert silhouette_score(pca_scores, digits.labels) < 0.05


def test_the_foreground_as_its_own_background_has_no_contrast() -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    with pytest.warns(ContrastWarning, match="2 of 2 components have no contrast at alpha=1"):
        CPCA(alpha=1.0).fit(X, background=X)


def test_values_beyond_the_range_of_float64_are_refused() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 40, 6))
    with pytest.raises(ValueError, match=r"alpha=1e\+308 times the variances .* smaller alpha"):
        CPCA(alpha=1e308).fit(X, background=Y)
    with pytest.raises(ValueError, match=r"overflows float64; multiply all data .* near 1\.$"):
        CPCA().fit(1e200 * X, background=1e200 * Y)
    with pytest.raises(TypeError, match="expected a real number for each row"):
        CPCA().fit(X, background=Y, sample_weight=np.ones(40) + 1j)


def test_the_ridge_counts_features_that_vary_in_either_dataset() -> None:
    """Check the ridge: a quarter of the background's mean variance per feature.

    Features that vary in neither dataset do not count. One of the six features is constant here.
    """
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(80, 6)) * [3, 1, 1, 2, 1, 1], rng.normal(size=(90, 6))
    Y[:, 3:] = X[:, 5:] = 7.0
    found = CPCA(2).fit(X, background=Y).alpha_
    C_X, C_Y = np.cov(X.T, bias=True), np.cov(Y.T, bias=True)
    ridged, alpha = C_Y + np.trace(C_Y) / 4 / 5 * np.eye(6), 0.0
    for _ in range(100):
        leading = np.linalg.eigh(C_X - alpha * ridged)[1][:, -2:]
        alpha = np.trace(leading.T @ C_X @ leading) / np.trace(leading.T @ ridged @ leading)
    assert found == pytest.approx(alpha)


# Tests with constant features, and with directions in which neither dataset varies.
negative_contrast = pytest.mark.filterwarnings("ignore:.*negative contrast")


def data(n: int = 60, m: int = 50, d: int = 6, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    spread = np.linspace(2.0, 0.5, d)
    return rng.normal(size=(n, d)) * spread, rng.normal(size=(m, d)) * spread[::-1]


@negative_contrast
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_collinear_features_are_recognised_at_any_scale(scale: float) -> None:
    """Use eight features with two linear dependences; one feature has another unit."""
    x, y = data()
    mixing = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 6)))[0].T
    units = np.array([scale, 1, 1, 1, 1, 1, 1, 1])
    wide = [rows @ mixing for rows in (x, y)]
    plain = CPCA(6, alpha=5.0).fit(x, background=y)
    found = CPCA(6, alpha=5.0).fit(wide[0], background=wide[1])
    expected = plain.contrastive_eigenvalues_
    np.testing.assert_allclose(found.contrastive_eigenvalues_, expected, atol=1e-10)
    assert subspace_error(found.components_, mixing) < 1e-9
    units_differ = (
        pytest.warns(ContrastWarning, match="hardly depends on") if scale > 1 else nullcontext()
    )
    with (
        units_differ,
        pytest.warns(ContrastWarning, match="last 1 of 7 components are arbitrary, because nei"),
    ):
        seven = CPCA(7, alpha=5.0).fit(wide[0] * units, background=wide[1] * units)
    null = seven.components_[-1]
    assert np.abs((wide[0] * units) @ null).max() < 1e-8 * max(scale, 1.0) * np.abs(wide[0]).max()
    assert (seven.foreground_variance_[:6] + seven.background_variance_[:6] > 0).all()
    np.testing.assert_allclose(seven.components_ @ seven.components_.T, np.eye(7), atol=1e-10)


@negative_contrast
def test_a_feature_with_a_tiny_variance_is_not_constant() -> None:
    x, y = (rows * [1, 1, 1, 1, 1, 1e-9] for rows in data())
    found = CPCA(6, alpha=5.0).fit(x, background=y)
    assert np.abs(found.components_[:, 5]).max() > 0.99


def test_an_infinite_alpha_keeps_directions_in_which_only_the_foreground_varies() -> None:
    x, y = data()
    x = np.hstack([x, np.zeros((60, 3))])
    y = np.hstack([y[:, :4], np.zeros((50, 5))])
    found = CPCA(2, alpha=np.inf).fit(x, background=y)
    np.testing.assert_allclose(found.components_[:, [0, 1, 2, 3, 6, 7, 8]], 0.0, atol=1e-12)
    expected = np.linalg.eigvalsh(np.cov(x[:, 4:6].T, bias=True))[::-1]
    np.testing.assert_allclose(found.contrastive_eigenvalues_, expected)
    with pytest.raises(ValueError, match=r"have 2 such directions, but n_components=3"):
        CPCA(3, alpha=np.inf).fit(x, background=y)


@negative_contrast
def test_more_components_than_directions_with_variance_cause_a_warning() -> None:
    x, y = (np.insert(rows, [0, 3, 6], 0.0, axis=1) for rows in data())
    for method in (CPCA(8), CPCA(8, alpha=1.0), CPCAStar(8), CPCAStar(8, beta=1.0)):
        with pytest.warns(ContrastWarning, match="last 2 of 8 components are arbitrary"):
            found = method.fit(x, background=y)
        np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(8), atol=1e-12)
        np.testing.assert_array_equal(found.foreground_variance_[6:], 0.0)
        # The first constant features are the first directions without variance.
        np.testing.assert_allclose(found.components_[6:, [0, 4]], np.eye(2), atol=1e-12)
        assert np.isfinite(getattr(found, "directions_", found.components_)).all()
    with pytest.warns(ContrastWarning, match="last 2 of 2 components"):
        CPCA(2, alpha=1.0).fit(np.ones((9, 4)), background=np.ones((9, 4)))


def test_moments_of_one_row_are_refused() -> None:
    many, one = (SecondMoments(n, np.zeros(3), np.eye(3)) for n in (9, 1))
    for x, y, name in ((one, many, "X"), (many, one, "background")):
        with pytest.raises(ValueError, match=f"{name} has n_samples=1, but a variance needs"):
            CPCA(1).fit(x, background=y)
