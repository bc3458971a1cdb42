"""Tests of how CLVM selects features and the number of shared dimensions.

Some tests use data with missing values, or `robust`, which replaces normal noise by Student's t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from contrast_core import CLVM, ContrastWarning
from contrast_core.datasets import make_motion_sensors
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic import _clvm_priors as priors
from contrast_core.probabilistic._clvm_horseshoe import Scales
from contrast_core.probabilistic._clvm_likelihood import Fit, Search
from contrast_core.probabilistic._clvm_rows import RowLikelihood, observed_rows
from contrast_core.probabilistic._row_posterior import Model
from contrast_core.rows import rows_of
from tests.core.samples import gappy, generated
from tests.core.test_clvm import fit, likelihood_of, values_of_em_steps
from tests.core.test_contract import planted

# The first 17 of the 23 channels of `make_motion_sensors` depend on the activity.
INFORMATIVE = np.arange(23) < 17


# Selection of features: each feature is a row of the salient loadings


@pytest.mark.parametrize(
    ("size", "k", "t"),
    [
        (1, 0, 3),
        (2, 2, 1),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((1, 2, 1), (2, 0, 3))),
    ],
)
@pytest.mark.parametrize("alike", [True, False])
def test_the_proximal_step_minimises_its_objective(size: int, k: int, t: int, alike: bool) -> None:
    """Check groups of `size` features with k shared and t salient loadings.

    Each feature with loadings b adds ``b A b^T / 2 - b c^T`` to the objective. `second` holds the
    matrices A, and `cross` holds the vectors c. Each group adds its threshold times the norm of its
    salient loadings. If `alike`, all features have the same A.
    """
    rng = np.random.default_rng(k + t)
    thresholds = np.array([1e-9, 0.01, 0.1, 0.3, 1.0, 3.0, 100.0, np.inf])
    groups = rng.permutation(np.repeat(np.arange(8), size))
    factors = rng.normal(size=(len(groups), k + t, k + t))
    second = factors @ factors.swapaxes(1, 2) + 0.1 * np.eye(k + t)
    second = np.broadcast_to(second[0], second.shape) if alike else second
    cross = rng.normal(size=(len(groups), k + t))
    found = priors.proximal(cross, second[0] if alike else second, k, thresholds, groups)
    for i, threshold in enumerate(thresholds):
        of = groups == i
        if threshold > 10:
            assert not found[of, k:].any()
            continue

        def loss(flat: Any, of: Any = of, threshold: float = threshold) -> float:
            rows = flat.reshape(size, k + t)
            squares = np.einsum("ij,ijk,ik->", rows, second[of], rows)
            penalty = threshold * np.linalg.norm(rows[:, k:])
            return float(squares / 2 - (rows * cross[of]).sum() + penalty)

        zero = found[of] * (np.arange(k + t) < k)
        for start in (found[of], zero, rng.normal(size=(size, k + t))):
            other = minimize(loss, start.ravel(), method="Nelder-Mead", options={"xatol": 1e-9})
            assert loss(found[of].ravel()) <= other.fun + 1e-12
    assert found[groups == 0, k:].all()


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("sparsity", ["auto", "horseshoe", 32])
def test_exactly_the_uninformative_channels_are_left_out(seed: int, sparsity: Any) -> None:
    data = make_motion_sensors(random_state=seed)
    model = fit(data.foreground, data.background, 5, 2, sparsity=sparsity)
    np.testing.assert_array_equal(model.selected_, INFORMATIVE)
    assert not model.salient_loadings_[~INFORMATIVE].any()
    assert not model.components_[:, ~INFORMATIVE].any()
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)
    assert model.shared_loadings_.all()
    assert model.converged_
    assert np.diff(model.log_likelihoods_).min() > -1e-12 * abs(model.log_likelihoods_[-1])
    assert fit(data.foreground, data.background, 5, 2).selected_.all()


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_larger_penalty_selects_fewer_features(adaptive: bool) -> None:
    """Check that the number of selected features falls as the penalty rho rises.

    With adaptive weights, this number does not depend on the unit of the data. Without them, the
    unit of rho is the inverse of the unit of the data, as in the paper.
    """
    data = make_motion_sensors(500, 400)

    def number(rho: float, scale: float = 1.0) -> int:
        rows = scale * data.foreground, scale * data.background
        priors = {"adaptive_penalty": adaptive}
        return int(fit(*rows, 5, 2, sparsity=rho, priors=priors).selected_.sum())

    numbers = [number(rho) for rho in ((0.1, 10, 40, 120) if adaptive else (0.1, 60, 120))]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] == 23
    assert numbers[-1] < 17
    assert numbers[-1] == number(120 if adaptive else 12, 10.0)


# The groups "a" to "f" have 18 channels. Two of the three channels of "f" are informative.
SENSORS = np.repeat(list("abcdefgh"), [3, 3, 3, 3, 3, 3, 3, 2])


@pytest.mark.parametrize(
    "options",
    [
        {"sparsity": "auto"},
        {"sparsity": 30.0, "robust": "rows"},
        pytest.param({"sparsity": 30.0, "inference": "vi", "max_iter": 10}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:the likelihood still rises")
def test_features_of_a_group_are_selected_together(options: Any) -> None:
    if "inference" in options:
        pytest.importorskip("torch", reason="torch is not installed")
    data = make_motion_sensors(500, 400)
    rows = [np.c_[part, np.ones(len(part))] for part in (data.foreground, data.background)]
    given = {"feature_groups": [*SENSORS, "constant"]}
    model = fit(*rows, 5, 2, priors=given, random_state=0, **options)
    np.testing.assert_array_equal(model.selected_, np.arange(24) < 18)
    alone = fit(*rows, 5, 2, priors={"feature_groups": np.arange(24)}, random_state=0, **options)
    single = fit(*rows, 5, 2, random_state=0, **options)
    np.testing.assert_allclose(alone.salient_loadings_, single.salient_loadings_, atol=1e-12)
    assert single.selected_.sum() < 18


@pytest.mark.parametrize("n_shared", [0, 2])
@pytest.mark.parametrize("options", [{}, {"robust": "rows"}])
def test_auto_selects_no_feature_if_there_is_no_signal(n_shared: int, options: Any) -> None:
    rng = np.random.default_rng(n_shared)
    S = 2 * rng.normal(size=(12, n_shared))
    X, Y = (rng.normal(size=(n, n_shared)) @ S.T + rng.normal(size=(n, 12)) for n in (80, 70))
    with pytest.warns(ContrastWarning, match="sparsity='auto' finds no feature"):
        model = fit(X, Y, n_shared, 2, sparsity="auto", **options)
    assert not model.selected_.any()
    assert model.transform(X).shape == (80, 0)
    np.testing.assert_allclose(model.denoise(X), np.tile(model.mean_, (80, 1)))
    if n_shared:
        none = fit(X, Y, n_shared, 0, **options)
        assert model.log_likelihoods_[-1] == pytest.approx(none.log_likelihoods_[-1], abs=1e-3)


def test_the_horseshoe_selects_features_that_are_probably_not_shrunk() -> None:
    data = make_motion_sensors(500, 400)
    options: Any = {"sparsity": "horseshoe"}

    def model(**priors: float) -> CLVM:
        return fit(data.foreground, data.background, 5, 2, **options, priors=priors)

    default = model()
    shrunk = default.shrunk_probability_
    np.testing.assert_array_equal(default.selected_, shrunk <= 0.5)
    assert (shrunk[17:] > 0.5).all()
    strict = model(horseshoe_probability=float(np.sort(shrunk)[3]))
    np.testing.assert_array_equal(np.flatnonzero(strict.selected_), np.sort(shrunk.argsort()[:4]))
    with pytest.raises(ValueError, match="leaves no feature"):
        model(horseshoe_threshold=100.0)
    narrow = model(horseshoe_scale=0.01).shrunk_probability_
    assert (narrow[:17] > shrunk[:17]).any()
    default.set_params(sparsity=None).fit(data.foreground, background=data.background)
    assert not hasattr(default, "shrunk_probability_")


REFUSED: list[tuple[Any, Any, str]] = [
    (None, {"dof": 4}, "priors has 'dof'; expected some of degrees_of_freedom, "),
    (None, {"degrees_of_freedom": 0}, r"priors\['degrees_of_freedom'\]=0 is out of range"),
    (None, {"horseshoe_probability": 1}, "it must be above 0, below 1"),
    (None, {"adaptive_penalty": 1.5}, r"priors\['adaptive_penalty'\]"),
    (9.0, {"feature_groups": ["a", "b"]}, r"has shape \(2,\); .* one label .* of the 12 features"),
    (
        "horseshoe",
        {"feature_groups": np.arange(12)},
        "selects single features, but priors has feat",
    ),
    (None, [4], r"priors=\[4\] is list; expected a dict"),
    ("auto", {"adaptive_penalty": False}, "sparsity='auto' chooses the adaptive penalty"),
    (1e9, None, r"sparsity=1e\+09 leaves no feature .* use a smaller"),
]


@pytest.mark.parametrize(("sparsity", "priors", "message"), REFUSED)
def test_invalid_priors_and_sparsity_are_refused(sparsity: Any, priors: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fit(*planted(), sparsity=sparsity, priors=priors)


def test_the_automatic_penalty_needs_salient_loadings() -> None:
    with pytest.raises(ValueError, match="sparsity='auto' selects salient loadings"):
        fit(*planted(), t=0, sparsity="auto")


def test_the_degrees_of_freedom_range_from_robust_to_normal_noise() -> None:
    X, Y, _, _ = generated(60, 50, 6)
    X[0] += 30
    normal = fit(X, Y)
    four, many = (fit(X, Y, robust="rows", priors={"degrees_of_freedom": nu}) for nu in (4, 1e7))
    assert many.noise_variance_ == pytest.approx(normal.noise_variance_, rel=1e-3)
    assert four.noise_variance_ < 0.9 * normal.noise_variance_
    np.testing.assert_allclose(many.score_samples(X), normal.score_samples(X), rtol=1e-2)
    # Changing a parameter after the fit does not change the fitted model.
    four.set_params(priors=None)
    assert four.degrees_of_freedom_ == 4


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_features_of_wide_data_are_selected() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 1600)), rng.normal(size=(50, 1600))
    X[:, :6] += 4 * rng.normal(size=(60, 1))
    model = fit(X, Y, 1, 1, sparsity=40.0)
    np.testing.assert_array_equal(np.flatnonzero(model.selected_), np.arange(6))
    wide = fit(X, Y, 1, 1)
    with pytest.raises(ValueError, match="SpanMoments"):
        fit(wide.foreground_moments_, wide.background_moments_, 1, 1, sparsity="auto")


def test_the_horseshoe_does_not_depend_on_units_order_or_constants() -> None:
    data = make_motion_sensors(500, 400)
    rows = [np.c_[part, np.full(len(part), 7.0)] for part in (data.foreground, data.background)]
    selected = fit(*rows, 5, 2, sparsity="horseshoe").selected_
    assert 12 <= selected.sum() <= 17
    assert not selected[17:].any()
    order = np.random.default_rng(0).permutation(24)
    for c in (1e-4, 1e5):
        moved = [c * part[:, order] for part in rows]
        other = fit(*moved, 5, 2, sparsity="horseshoe").selected_
        np.testing.assert_array_equal(other, selected[order])
    noise = np.random.default_rng(0).normal(size=(2, 30, 6))
    with pytest.raises(ValueError, match="sparsity='horseshoe' leaves no feature"):
        fit(*noise, 1, 1, sparsity="horseshoe")


def test_the_scales_of_the_horseshoe_maximise_the_variational_bound() -> None:
    rng = np.random.default_rng(0)
    squares, t = rng.uniform(0.01, 4.0, 5), 2
    scales = Scales(1.0, np.ones(5), 1.0, 1.0)
    for _ in range(2000):
        scales = scales.updated(squares, t)
    a, b, c, d = scales
    # Each feature has a scale rho, and all features share a scale tau. `own` and `shared` are the
    # posterior means of 1 / rho^2 and 1 / tau^2. At the maximum they satisfy these two equations.
    own, shared = a / b, c / d
    hyper_own, hyper_shared = 1 / (1 + own), 1 / (1 + shared)
    np.testing.assert_allclose(own, (t + 1) / 2 / (hyper_own + squares * shared / 2))
    np.testing.assert_allclose(shared, (5 * t + 1) / 2 / (hyper_shared + squares @ own / 2))
    np.testing.assert_allclose(scales.precision, own * shared)
    drawn = b / rng.gamma(a, size=(200_000, 5)) * d / rng.gamma(c, size=(200_000, 1))
    for limit in (0.01, 0.3, 2.0):
        expected = (drawn < limit).mean(axis=0)
        np.testing.assert_allclose(scales.probability_below(limit), expected, atol=0.01)


# Selection of shared dimensions: each one is a column of the shared loadings


def many(seed: int, n: int, d: int, size: float) -> tuple[Any, Any]:
    """Return a foreground and a background with five shared dimensions, scaled by `size`.

    The foreground also has two salient dimensions.
    """
    rng = np.random.default_rng(seed)
    S, W = size * rng.normal(size=(5, d)), rng.normal(size=(2, d))
    X = rng.normal(size=(n, 5)) @ S + rng.normal(size=(n, 2)) @ W + rng.normal(size=(n, d))
    return X, rng.normal(size=(n, 5)) @ S + rng.normal(size=(n, d))


@pytest.mark.parametrize(
    ("seed", "n", "d", "size"),
    [(0, 1000, 50, 1.0), (1, 200, 100, 1.0), (2, 1000, 30, 0.5), (19, 1000, 30, 0.5)],
)
def test_five_of_twenty_shared_dimensions_are_found(seed: int, n: int, d: int, size: float) -> None:
    """Check four seeds; with seed 19, the likelihood also has a local maximum with six."""
    X, Y = many(seed, n, d, size)
    model, five = fit(X, Y, 20, ard=True), fit(X, Y, 5)
    assert model.shared_loadings_.shape == (d, 5)
    np.testing.assert_allclose(model.salient_loadings_, five.salient_loadings_, atol=1e-12)
    assert model.log_likelihoods_[-1] == five.log_likelihoods_[-1]


def test_no_shared_dimension_is_found_if_there_is_none() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 12)), rng.normal(size=(300, 12))
    X += rng.normal(size=(300, 2)) @ rng.normal(size=(2, 12))
    model = fit(X, Y, 4, ard=True)
    assert model.shared_loadings_.shape == (12, 0)
    assert subspace_error(model.components_, fit(X, Y, 0).components_) < 1e-10
    # Without salient dimensions, one shared dimension is kept.
    assert fit(Y, Y, 4, 0, ard=True).shared_loadings_.shape == (12, 1)


def test_the_gradient_includes_the_prior_and_no_em_step_lowers_the_objective() -> None:
    likelihood = likelihood_of(*planted(60, 50, 6), 3, 1)
    first = likelihood.first()
    prior = priors.Relevance(3, 6, 1e-3, 1e-3 * first.noise)

    def value(point: Any) -> float:
        model = Model(point[:-1].reshape(6, 4), float(np.exp(point[-1])))
        return likelihood.evaluate(Fit(model), prior).value

    rng = np.random.default_rng(0)
    model = Model(first.loadings + 0.1 * rng.normal(size=(6, 4)), 0.2)
    _, slope, at = likelihood.evaluate(Fit(model), prior)
    assert slope is not None
    point = np.append(model.loadings.ravel(), np.log(model.noise))
    gradient = np.append(slope.loadings.ravel(), slope.noise)
    np.testing.assert_allclose(gradient, approx_fprime(point, value, 1e-7), rtol=1e-4, atol=1e-5)
    values = values_of_em_steps(likelihood, at, 60, prior)
    assert np.diff(values).min() > -1e-13 * abs(values[-1])


@pytest.mark.parametrize("robust", [None, "rows", "entries"])
def test_missing_values_do_not_hide_the_number_of_shared_dimensions(robust: Any) -> None:
    X, Y = gappy(300, 300, 20)
    model = fit(X, Y, 6, ard=True, robust=robust)
    assert model.shared_loadings_.shape == (20, 2)
    two = fit(X, Y, 2, robust=robust)
    np.testing.assert_allclose(model.components_, two.components_, atol=1e-9)


@pytest.mark.parametrize("tails", ["normal", "rows", "entries"])
@pytest.mark.parametrize("kind", ["support", "penalty", "groups", "relevance"])
def test_no_em_step_with_a_prior_lowers_the_objective(kind: str, tails: Any) -> None:
    rows = observed_rows(*(rows_of(part, missing=True) for part in gappy()))
    search = Search(2, 1, np.random.default_rng(0), 1e-6, 2000)
    likelihood = RowLikelihood.from_rows(rows, tails, 2, search)
    loadings, noise = likelihood.first()
    prior = {
        "support": priors.Support(2, np.arange(8) < 5),
        "penalty": priors.Penalty.adaptive(3.0, loadings, 2, np.arange(8)),
        "groups": priors.Penalty.adaptive(3.0, loadings, 2, np.arange(8) // 3),
        "relevance": priors.Relevance(2, 8, 1e-3, 1e-3 * noise),
    }[kind]
    if kind == "support":
        loadings[5:, 2:] = 0.0  # the starting point must be zero outside the support
    found = likelihood.climb(likelihood.start_at(Model(loadings, 1.5 * noise)), prior)
    values = found.log_likelihoods
    assert found.converged
    assert len(values) > 5
    assert np.diff(values).min() > -1e-12 * abs(values[-1])
    # Nearby loadings have a smaller objective.
    rng = np.random.default_rng(0)
    for _ in range(5):
        turned = found.model.loadings * (1 + 0.02 * rng.normal(size=(8, 4)))
        other = found._replace(model=Model(turned, found.model.noise))
        assert likelihood.evaluate(other, prior).value < values[-1]


def test_neither_a_missing_value_nor_the_units_change_the_selection() -> None:
    data = make_motion_sensors(500, 400)
    X, Y = data.foreground.copy(), data.background
    options: dict[str, Any] = {"n_shared": 5, "sparsity": 20.0}
    whole = CLVM(**options).fit(X, background=Y)
    X[3, 4] = np.nan
    for c in (1.0, 1e-4, 1e5):
        model = CLVM(**options).fit(c * X, background=c * Y)
        np.testing.assert_array_equal(model.selected_, whole.selected_)
        assert subspace_error(model.components_, whole.components_) < 0.01
