"""Tests of Gibbs posteriors: draws against exact densities, diagnostics, and refused requests."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from contrast_core import CPCA, PCPCA, ContrastWarning, SecondMoments, load, save
from contrast_core._posterior import _inference_data, draw_matrices
from contrast_core.datasets import make_toy
from contrast_core.spectral import _cpca_posterior
from tests.core.planned import rotation, symmetric
from tests.core.samples import quiet

arviz = pytest.importorskip("arviz", reason="arviz is not installed (extra posterior)")
pytest.importorskip("nutpie", reason="nutpie is not installed (extra posterior)")


def moments(values: Any, n: float = 50, scale: float = 1.0) -> tuple[SecondMoments, SecondMoments]:
    """Return moments whose difference has the given eigenvalues and random eigenvectors."""
    mean, background = np.zeros(len(values)), scale * np.eye(len(values))
    foreground = scale * symmetric(values) + background
    return SecondMoments(n, mean, foreground), SecondMoments(n, mean, background)


def flat(found: Any, name: str) -> Any:
    """Return the draws of all chains as one array."""
    values = found.posterior[name].to_numpy()
    return values.reshape(-1, *values.shape[2:])


def assert_mean(draws: Any, exact: float) -> None:
    """Check that the mean of draws (chains, draws) is within 5 Monte Carlo errors of `exact`."""
    error = draws.std() / np.sqrt(float(arviz.ess(draws, method="mean")))
    assert abs(draws.mean() - exact) < 5 * error


def assert_distribution(draws: Any, cdf: Any) -> None:
    """Check the Kolmogorov-Smirnov distance between draws (chains, draws) and a CDF.

    Every fifth draw is nearly independent, so this fails with a probability of one in a million.
    """
    some = draws[:, ::5].ravel()
    assert stats.kstest(some, cdf).statistic < np.sqrt(np.log(2e6) / (2 * len(some)))


# Sampling of matrices


@pytest.mark.slow
def test_gram_matrices_of_normal_draws_have_the_wishart_distribution() -> None:
    """Draw standard normal 3 x 2 matrices; the Gram matrix is Wishart with 3 degrees of freedom."""

    def normal(matrix: Any, others: Any) -> Any:
        return -0.5 * (matrix**2).sum(), -matrix, np.empty(0)

    start, rng = (np.eye(3, 2), np.ones((3, 1)), np.empty(0)), np.random.default_rng(0)
    found = draw_matrices(normal, *start, draws=1000, chains=4, rng=rng)
    grams = np.swapaxes(found.matrices, -1, -2) @ found.matrices
    assert_mean(np.trace(grams, axis1=-2, axis2=-1), 6.0)
    assert_mean(np.linalg.det(grams), 6.0)
    assert_distribution(np.trace(grams, axis1=-2, axis2=-1), stats.chi2(6).cdf)


# PCPCA


def exact_pcpca(values: Any, weight: float, gamma: float, floor: float) -> dict[str, float]:
    """Compute posterior means for two features and one component, by summing over a grid.

    The eigenvalues of the contrast are `values`. The weight is the learning rate times the number
    of rows, and `floor` is the smallest noise variance.
    """
    angles = (np.arange(60) + 0.5) * np.pi / 60
    lengths = np.exp(np.linspace(-3, 4, 160))
    noises = floor + np.exp(np.linspace(-6, 5, 160))
    theta, r, s2 = np.meshgrid(angles, lengths, noises, indexing="ij")
    along = values[0] * np.cos(theta) ** 2 + values[1] * np.sin(theta) ** 2
    total = r**2 + s2
    left = along / total + (sum(values) - along) / s2
    log = -0.5 * weight * ((1 - gamma) * np.log(total * s2) + left)
    # The Jacobians of polar coordinates and of the logarithmic grids are added.
    log += 2 * np.log(r) + np.log(s2 - floor)
    density = np.exp(log - log.max())
    density /= density.sum()
    return {
        "noise": float((density * s2).sum()),
        "length": float((density * r).sum()),
        "turn": float((density * np.cos(2 * theta)).sum()),
    }


@quiet
@pytest.mark.slow
@pytest.mark.parametrize(("n", "gamma", "rate"), [(20, 0.3, 1.0), (60, 0.6, 0.7)])
def test_pcpca_draws_have_the_means_of_the_exact_density(n: int, gamma: float, rate: float) -> None:
    mean, values = np.zeros(2), np.array([2.0, 0.8])
    y = SecondMoments(n, mean, np.diag([1.0, 0.5]))
    x = SecondMoments(n, mean, symmetric(values) + gamma * y.covariance)
    model = PCPCA(1, gamma=0.1).fit(x, background=y)
    found = model.posterior(gamma=gamma, learning_rate=rate, noise_floor=0.05, random_state=0)
    exact = exact_pcpca(values, rate * n, gamma, 0.05)
    along = found.posterior["components"].to_numpy()[:, :, 0] @ rotation(2)
    loadings = found.posterior["loadings"].to_numpy()[..., 0]
    assert_mean(found.posterior["noise_variance"].to_numpy(), exact["noise"])
    assert_mean(np.linalg.norm(loadings, axis=-1), exact["length"])
    assert_mean(2 * along[..., 0] ** 2 - 1, exact["turn"])
    assert found.posterior.attrs["noise_floor"] == 0.05


@pytest.mark.slow
def test_the_posterior_axis_of_the_toy_data_agrees_with_the_closed_form() -> None:
    toy = make_toy(300, 300)
    model = PCPCA(1, gamma=0.85).fit(toy.foreground, background=toy.background)
    found = model.posterior(random_state=0)
    without_background = PCPCA(1, gamma=0.0).fit(toy.foreground, background=toy.background)
    floor = 0.01 * without_background.noise_variance_
    assert found.posterior.attrs["noise_floor"] == pytest.approx(floor)
    assert float(arviz.rhat(found.posterior["components"])["components"].max()) < 1.01
    axis = flat(found, "components")[:, 0].mean(axis=0)
    assert axis @ model.components_[0] / np.linalg.norm(axis) > np.cos(np.pi / 36)
    # The signs are chosen so that every draw points to the side of the closed form.
    assert (flat(found, "components")[:, 0] @ model.components_[0] > 0).all()
    assert (flat(found, "loadings")[:, :, 0] @ model.components_[0] > 0).all()
    weights = flat(found, "feature_weights")
    np.testing.assert_array_equal(weights.max(axis=-1), 1.0)
    summary = arviz.summary(found, var_names=["loadings", "noise_variance"])
    assert list(summary.index) == ["loadings[0, 0]", "loadings[1, 0]", "noise_variance"]


@pytest.mark.slow
def test_draws_are_reproducible_and_scale_with_the_data() -> None:
    values = np.array([3.0, 1.0, 0.5, 0.3])
    options: dict[str, Any] = {"draws": 30, "chains": 2}
    results = []
    for scale, seed in ((1.0, 0), (1.0, 0), (2.0**-14, 0), (2.0**17, 0), (1.0, 1)):
        x, y = moments(values, 200, scale)
        model = PCPCA(2, gamma=0.2).fit(x, background=y)
        with pytest.warns(ContrastWarning, match="may not have converged"):  # the draws are few
            found = model.posterior(random_state=seed, **options)
        results.append(
            (flat(found, "loadings") / np.sqrt(scale), flat(found, "noise_variance") / scale)
        )
    for other in results[1:4]:
        for first, again in zip(results[0], other, strict=True):
            np.testing.assert_allclose(again, first, rtol=1e-9, atol=1e-12)
    assert not np.allclose(results[0][0], results[4][0])


def test_an_improper_posterior_is_refused_with_the_largest_gamma() -> None:
    x, y = moments(np.array([4.0, 2.0, 0.6, 0.5]), 20)
    model = PCPCA(2, gamma=0.1).fit(x, background=y)
    for gamma, rate in ((0.75, 1.0), (0.9, 1.0), (0.5, 0.5)):  # the limit is 1 - 5 / (20 rate)
        with pytest.raises(
            ValueError, match=rf"not proper.*Use a gamma below {1 - 0.25 / rate:.4g}"
        ):
            model.posterior(gamma=gamma, learning_rate=rate)
    with pytest.raises(ValueError, match="No gamma is valid: use more rows"):
        model.posterior(learning_rate=0.25)


def test_a_posterior_at_the_noise_floor_causes_a_warning_before_sampling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy = make_toy(60, 60)
    model = PCPCA(1).fit(toy.foreground, background=toy.background)
    # Without this function, sampling fails with a TypeError as soon as it begins.
    monkeypatch.setattr("contrast_core._posterior._sampling.draw_matrices", None)
    above = (model.gamma_max_ + 1 - 2 / 60) / 2
    for options, message in (
        ({"gamma": above}, r"-\d\.\d+, is not above noise_floor.*lies at the floor"),
        ({"noise_floor": 5.0}, "not above noise_floor=5: the posterior then lies at the floor"),
    ):
        with (
            pytest.warns(ContrastWarning, match=message),
            pytest.raises(TypeError, match="NoneType"),
        ):
            model.posterior(**options)
    with pytest.raises(TypeError, match="NoneType"):  # no warning, because nothing is wrong
        model.posterior()


# CPCA


def bingham_cdf(exponents: Any) -> tuple[Any, Any]:
    """Return a grid, and the CDF of v_1^2 for the density exp(sum e_i v_i^2) on the sphere."""
    # The height of a uniform point on the sphere is uniform.
    heights = (np.arange(4000) + 0.5) / 4000
    around = (np.arange(720) + 0.5) * 2 * np.pi / 720
    second = (1 - heights[:, None] ** 2) * np.cos(around) ** 2
    third = (1 - heights[:, None] ** 2) * np.sin(around) ** 2
    log = exponents[0] * heights[:, None] ** 2 + exponents[1] * second + exponents[2] * third
    density = np.exp(log - log.max()).sum(axis=1)
    return heights**2, np.cumsum(density) / density.sum()


@pytest.mark.slow
@quiet
@pytest.mark.parametrize(("k", "rate"), [(1, 0.02), (1, 1.0), (2, 0.1)])
def test_bingham_draws_have_the_exact_density_on_the_sphere(k: int, rate: float) -> None:
    """Compare the draws of a unit vector with the Bingham distribution.

    For k = 1 the vector is the component. For k = 2 it is the normal vector of the plane, for which
    the exponents have the opposite sign.
    """
    values = np.array([2.0, 1.0, 0.4])
    x, y = moments(values)
    model = CPCA(k, alpha=1.0).fit(x, background=y)
    found = model.posterior(learning_rate=rate, random_state=0)
    bases = found.posterior["components"].to_numpy()
    v = bases[:, :, 0] if k == 1 else np.cross(bases[:, :, 0], bases[:, :, 1])
    squares = (v @ rotation(3)) ** 2
    exponents = 50 * rate * values * (1 if k == 1 else -1)
    for i in range(3):
        grid, cdf = bingham_cdf(np.roll(exponents, -i))
        assert_mean(squares[..., i], float(np.diff(cdf, prepend=0.0) @ grid))
        assert_distribution(squares[..., i], partial(np.interp, xp=grid, fp=cdf))


@pytest.mark.parametrize("n_features", [5, 40])
def test_the_sampler_is_given_the_gradient_of_the_log_density(n_features: int) -> None:
    rng = np.random.default_rng(0)
    exponents, matrix = -3 * rng.random(n_features), rng.normal(size=(n_features, 2))
    target, nothing = _cpca_posterior._target(exponents, 2), np.empty(0)

    def density(entries: Any) -> float:
        return target(entries.reshape(n_features, 2), nothing)[0]

    expected = optimize.approx_fprime(matrix.ravel(), density)
    np.testing.assert_allclose(target(matrix, nothing)[1].ravel(), expected, rtol=1e-4, atol=1e-4)


def test_the_default_learning_rate_agrees_with_its_formula() -> None:
    values = np.array([4.0, 1.0, 0.5, 0.3])
    covariance = symmetric(values)
    background = np.cov(np.random.default_rng(0).normal(size=(4, 9)))

    def rate(C: Any, alpha: float, k: int = 1) -> float:
        x = SecondMoments(50, np.zeros(4), C)
        y = SecondMoments(80, np.zeros(4), background * C[0, 0])
        model = CPCA(k, alpha=alpha).fit(x, background=y)
        with pytest.warns(ContrastWarning, match="may not have converged"):
            return float(model.posterior(10, chains=2).posterior.attrs["learning_rate"])

    # Without contrast, it is the learning rate of probabilistic PCA.
    np.testing.assert_allclose(
        rate(covariance, 0.0), 0.5 * (1 / values[1:].mean() - 1 / values[0]), rtol=1e-9
    )
    np.testing.assert_allclose(
        rate(2.0**10 * covariance, 0.7), rate(covariance, 0.7) / 2.0**10, rtol=1e-9
    )
    # With contrast, the rate is the sum of the eigenvalue gaps divided by twice the sum of the
    # sampling variances of the contrast's off-diagonal entries for normal data.
    other = background * covariance[0, 0]
    contrast, vectors = np.linalg.eigh(covariance - 0.7 * other)
    x, y = (vectors.T @ C @ vectors for C in (covariance, other))
    pairs = [(i, j) for i in (3, 2) for j in (1, 0)]
    variances = [
        x[i, i] * x[j, j] + x[i, j] ** 2 + 0.49 * 50 / 80 * (y[i, i] * y[j, j] + y[i, j] ** 2)
        for i, j in pairs
    ]
    gaps = [contrast[i] - contrast[j] for i, j in pairs]
    np.testing.assert_allclose(rate(covariance, 0.7, k=2), sum(gaps) / (2 * sum(variances)))


def test_chains_that_have_not_converged_cause_a_warning() -> None:
    rng = np.random.default_rng(0)
    good, none = rng.normal(size=(4, 500, 3)), np.zeros((4, 500), dtype=bool)
    _inference_data.check_converged({"a": good, "b": good[..., 0]}, none)
    few = none.copy()
    few[1, 3:23] = True
    _inference_data.check_converged({"a": good}, few)
    apart = good.copy()
    apart[0, :, 1] += 1
    slow = good.cumsum(axis=1)
    some = none.copy()
    some[1, 3:24] = True
    for draws, diverging, message in (
        (apart, none, r"R-hat is 1\.\d+.* 0 of 2000 draws diverged"),
        (slow, none, "effective sample size"),
        (good, some, " 21 of 2000 draws diverged"),
    ):
        with pytest.warns(ContrastWarning, match=message):
            _inference_data.check_converged({"a": good, "b": draws}, diverging)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"draws": 5}, ValueError, "draws=5 is out of range"),
        ({"draws": 20.0}, TypeError, "draws must be an integer"),
        ({"chains": 1}, ValueError, "chains=1 is out of range"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate=0 is out of range"),
        ({"learning_rate": np.inf}, ValueError, "learning_rate=inf is out of range"),
        ({"learning_rate": "1"}, TypeError, "learning_rate must be a number"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"gamma": -0.1}, ValueError, "gamma=-0.1 is out of range"),
        ({"gamma": 1.0}, ValueError, "not proper"),
        ({"gamma": np.nan}, ValueError, "gamma=nan is out of range"),
        ({"noise_floor": 0}, ValueError, "noise_floor=0 is out of range"),
    ],
)
def test_odd_arguments_are_refused(options: Any, error: Any, message: str) -> None:
    x, y = moments(np.array([4.0, 2.0, 0.6]))
    with pytest.raises(error, match=message):
        PCPCA(1, gamma=0.1).fit(x, background=y).posterior(**options)
    if not {"gamma", "noise_floor"} & set(options):
        with pytest.raises(error, match=message):
            CPCA(1, alpha=1.0).fit(x, background=y).posterior(**options)


def test_models_without_a_posterior_are_refused(tmp_path: Any) -> None:
    x, y = moments(np.array([4.0, 2.0, 0.6]))
    with pytest.raises(ValueError, match="n_components=3 equals the number of features, 3"):
        CPCA(3, alpha=0.5).fit(x, background=y).posterior()
    flat_y = SecondMoments(50, np.zeros(3), np.diag([1.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match="at alpha=inf there is no posterior"):
        CPCA(1, alpha=np.inf).fit(x, background=flat_y).posterior()
    for model in (CPCA(1, alpha=0.5), PCPCA(1, gamma=0.1)):
        save(model.fit(x, background=y), tmp_path / "model")
        with pytest.raises(ValueError, match="no moments, but draws from the posterior need"):
            load(tmp_path / "model").posterior()
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 40, 4))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="incomplete data, which have no moments, but draws"):
        PCPCA(1, gamma=0.1).fit(X, background=Y).posterior()


@quiet  # the draws are few
@pytest.mark.parametrize(("alone", "strength"), [(PCPCA(1), "gamma"), (CPCA(1), "alpha")])
def test_without_a_background_the_posterior_equals_that_at_strength_zero(
    alone: Any, strength: str
) -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 40, 3)) * [3, 1, 1]
    options: Any = {"draws": 10, "chains": 2, "random_state": 0}
    zero = type(alone)(1, **{strength: 0.0}).fit(X, background=Y).posterior(**options)
    found = alone.fit(X).posterior(**options)
    assert found.posterior.attrs[strength] == 0
    for name in found.posterior:
        np.testing.assert_allclose(found.posterior[name], zero.posterior[name], rtol=1e-9)
    if strength == "gamma":
        with pytest.raises(ValueError, match=r"gamma=0\.1 needs a background"):
            alone.posterior(gamma=0.1)


# The draws are few, so another version of the sampler may warn that the chains differ.
@quiet
def test_features_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, Y = (pandas.DataFrame(rng.normal(size=(60, 3)), columns=list("abc")) for _ in range(2))
    X["b"] *= 3
    found = PCPCA(1, gamma=0.2).fit(X, background=Y).posterior(500, random_state=0)
    summary = arviz.summary(found, var_names="components", kind="stats")
    assert list(summary.index) == ["components[0, a]", "components[0, b]", "components[0, c]"]
    assert summary["mean"].idxmax() == "components[0, b]"


def test_without_nutpie_the_error_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nutpie.compiled_pyfunc", None)
    x, y = moments(np.array([4.0, 2.0, 0.6]))
    with pytest.raises(ImportError, match=r"pip install '\.\[posterior\]'"):
        CPCA(1, alpha=0.5).fit(x, background=y).posterior()
