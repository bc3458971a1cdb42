"""Tests of `condition_shift` and `responders`, whose results come from held-out rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from contrast_core import condition_shift, responders
from contrast_core.significance._condition_shift import _shrunk

D = 30


def rows(n: int, seed: int, shift: float = 0.0) -> Any:
    """Return heavy-tailed rows; the variances of the features decrease.

    Feature 7 is shifted by `shift` times its own standard deviation.
    """
    values = np.random.default_rng(seed).standard_t(6, size=(n, D)) * np.exp(-np.arange(D) / 10)
    values[:, 7] += shift * values[:, 7].std()
    return values


def by_donor(seed: int, shift: float, n_donors: int = 5, nested: bool = False) -> dict[str, Any]:
    """Return rows of donors that have different means.

    Each donor has 30 rows in each of the two datasets or, if `nested`, in one dataset only.
    """
    rng = np.random.default_rng(seed)
    means = 0.5 * rng.normal(size=(2 * n_donors, D)) * np.exp(-np.arange(D) / 10)
    owner = np.repeat(np.arange(n_donors), 30)
    other = owner + n_donors * nested
    return {
        "X": rows(len(owner), seed + 1, shift) + means[owner],
        "background": rows(len(owner), seed + 2) + means[other],
        "units": np.char.add("d", owner.astype(str)),
        "background_units": np.char.add("d", other.astype(str)),
    }


@pytest.mark.parametrize(
    ("kind", "shift"),
    [("rows", 1.0), ("rows", 3.0), ("paired", 1.0), ("paired", 3.0), ("nested", 3.0)],
)
def test_an_effect_on_one_feature_is_found_along_that_feature(kind: str, shift: float) -> None:
    data = {"X": rows(300, 0, shift), "background": rows(300, 1)}
    if kind != "rows":
        data = by_donor(0, shift, nested=kind == "nested")
    found = condition_shift(**data, n_resamples=0, random_state=0)
    assert found.p_value < 0.05
    assert found.direction.argmax() == abs(found.direction).argmax() == 7
    assert np.linalg.norm(found.direction) == pytest.approx(1)
    assert found.n_blocks == 5
    # The effect is measured in standard deviations. If donors are nested, these include differences
    # among donors, so the effect is smaller.
    if kind != "nested":
        assert 0 < found.effect_low < shift < found.effect_high + 0.5


def test_rows_are_scored_along_a_direction_that_is_fitted_to_the_other_donors() -> None:
    data = by_donor(5, 1.0)
    found = condition_shift(**data, n_resamples=0)
    for name in found.units:
        own, other = data["units"] == name, data["background_units"] == name
        masks = {"X": own, "background": other, "units": own, "background_units": other}
        rest = {key: data[key][~mask] for key, mask in masks.items()}
        direction = condition_shift(**rest, n_resamples=0).direction
        for rows, mask, scores in (
            (data["X"], own, found.foreground_scores),
            (data["background"], other, found.background_scores),
        ):
            centred = rows[mask] - data["background"][other].mean(axis=0)
            ratio = scores[mask] / (centred @ direction)
            assert ratio[0] > 0
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-8)
    units = [data["background_units"] == name for name in found.units]
    variances = [found.background_scores[unit].var(ddof=1) for unit in units]
    assert np.mean(variances) == pytest.approx(1)


@pytest.mark.parametrize("n", [3, 5])
def test_p_value_and_interval_account_for_the_dependence_between_effects_of_donors(n: int) -> None:
    data = by_donor(4, 0.3, n_donors=n)
    found = condition_shift(**data, n_resamples=0)
    x, y = found.foreground_scores, found.background_scores  # both datasets have the same donors
    units = data["units"]
    effects = np.array([x[units == d].mean() - y[units == d].mean() for d in np.unique(units)])
    # The difference of a donor is the mean of its foreground rows minus the mean of its background
    # rows. Its effect is a mean of inner products of this difference with the differences of the
    # other donors. The inner product of the differences of two donors is part of the effects of
    # both, so these effects depend on each other. With n donors, the usual estimate of the variance
    # of the mean effect is therefore multiplied by 2 (n - 1) / (n - 2).
    error = np.sqrt({3: 4, 5: 8 / 3}[n] / n) * effects.std(ddof=1)
    assert found.p_value == pytest.approx(student.sf(effects.mean() / error, n - 1))
    half = student.ppf(0.975, n - 1) * error
    assert found.effect == pytest.approx(effects.mean())
    assert found.effect_low == pytest.approx(effects.mean() - half)
    assert found.effect_high == pytest.approx(effects.mean() + half)


@pytest.mark.parametrize(("n_moved", "size", "area"), [(8, 0.6, 0.84), (400, 0.1, 0.755)])
def test_rows_are_separated_by_few_or_many_features(n_moved: int, size: float, area: float) -> None:
    areas = []
    for seed in range(10):
        x, y = np.random.default_rng(seed).normal(size=(2, 200, 400))
        x[:, :n_moved] += size
        found = condition_shift(x, background=y, n_resamples=0, random_state=0)
        scores = np.r_[found.foreground_scores, found.background_scores]
        areas.append(roc_auc_score(np.repeat([1, 0], 200), scores))
    assert np.mean(areas) > area


@pytest.mark.parametrize("nested", [False, True])
def test_the_direction_agrees_with_plain_numpy(nested: bool) -> None:
    data = by_donor(5, 1.0, nested=nested)
    found = condition_shift(**data, n_resamples=2)
    x, y = (
        [data[rows][data[names] == name] for name in np.unique(data[names])]
        for rows, names in (("X", "units"), ("background", "background_units"))
    )
    centres = [np.array([part.mean(axis=0) for part in side]) for side in (x, y)]
    variances = [np.array([part.var(axis=0) for part in side]) for side in (x, y)]
    difference = centres[0].mean(axis=0) - centres[1].mean(axis=0)
    # `error` is the squared standard error of the difference.
    error = sum(each.mean(axis=0) / 150 for each in variances)
    z = np.abs(difference) / np.sqrt(error)
    # z is from N(0, 1) for features that do not differ, and from N(0, 1 + spread) for others.
    share, spread = 0.1, 10 * (z**2).mean()
    for _ in range(20):
        parts = (1 - share) * norm.pdf(z), share * norm.pdf(z, scale=np.sqrt(1 + spread))
        differs = parts[1] / sum(parts)
        factor = differs * spread / (1 + spread)
        share, spread = differs.mean(), (differs * z**2).sum() / differs.sum() - 1
    difference *= factor
    covariance = np.mean([np.cov(part.T) for part in y], axis=0)
    if nested:
        covariance += np.cov(centres[1].T, bias=True)
    ridge = 4 * variances[1].mean()
    expected = np.linalg.solve(covariance + ridge * np.eye(D), difference)
    np.testing.assert_allclose(found.direction, expected / np.linalg.norm(expected), atol=1e-10)


def test_differences_between_donors_do_not_hide_an_effect_that_all_share() -> None:
    data = by_donor(3, 1.0)
    data["X"] = data["X"] + 20 * np.repeat(np.arange(5), 30)[:, None]
    data["background"] = data["background"] + 20 * np.repeat(np.arange(5), 30)[:, None]
    found = condition_shift(**data, random_state=0)
    assert found.p_value < 0.01
    assert 0.5 < found.effect < 1.5


def test_donors_with_few_rows_are_left_out_and_named() -> None:
    data = by_donor(0, 2.0)
    kept = np.ones(150, dtype=bool)
    kept[:21] = False  # 9 rows of d0 remain
    data |= {"X": data["X"][kept], "units": data["units"][kept]}
    found = condition_shift(**data, random_state=0)
    assert (found.units, found.left_out) == (("d1", "d2", "d3", "d4"), ("d0",))
    assert np.isnan(found.foreground_scores).sum() == 9
    assert np.isnan(found.background_scores).sum() == 30


def test_held_out_scores_are_in_standard_deviations_of_the_background() -> None:
    found = condition_shift(rows(500, 0, 3.0), background=rows(400, 1), random_state=0)
    difference = found.foreground_scores.mean() - found.background_scores.mean()
    assert difference == pytest.approx(found.effect, abs=0.05)
    assert found.background_scores.std() == pytest.approx(1, abs=0.02)
    # The held-out scores separate the rows as well as the fitted direction separates new rows.
    y = np.r_[np.ones(500), np.zeros(400)]
    held_out = roc_auc_score(y, np.r_[found.foreground_scores, found.background_scores])
    new = np.vstack([rows(500, 2, 3.0), rows(400, 3)]) @ found.direction
    assert held_out == pytest.approx(roc_auc_score(y, new), abs=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_sparse_rows_and_rescaled_rows_give_the_same_result(dtype: Any) -> None:
    counts = np.random.default_rng(0).poisson(1.0, size=(120, 80)).astype(dtype)
    counts[:60, 3] += 2
    x, y = counts[:60], counts[60:]
    dense = condition_shift(x, background=y, random_state=1)
    sparse = condition_shift(sp.csr_matrix(x), background=sp.csr_matrix(y), random_state=1)
    scaled = condition_shift(1e3 * x, background=1e3 * y, random_state=1)
    tolerance = 1e-3 if dtype == np.float32 else 1e-8
    for other in (sparse, scaled):
        np.testing.assert_allclose(other.direction, dense.direction, atol=tolerance)
        np.testing.assert_allclose(other.effect_low, dense.effect_low, atol=tolerance)


def test_constant_features_and_equal_datasets_give_finite_results() -> None:
    x, y = rows(50, 0), rows(50, 1)
    # Feature 2 is constant within each dataset, but differs between the datasets.
    x[:, 2], y[:, 2] = 1.0, 0.0
    found = condition_shift(x, background=y, random_state=0)
    assert np.isfinite([found.effect, found.effect_low, found.effect_high, found.p_value]).all()
    same = condition_shift(y, background=y.copy(), random_state=0)
    assert np.isfinite([same.effect, same.p_value, *same.direction]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": rows(9, 0)}, "X has 9 rows and background 150; a comparison needs at least 10"),
        ({"units": None}, "background_units was given without units"),
        ({"units": ["a"] * 149}, "one label for each of the 150 rows"),
        ({"units": np.repeat(["d0", "x"], 75)}, "1 units have .* 10 rows in both .* units needs 3"),
        ({"units": np.repeat(["x", "y"], 75)}, "2 units of X and 5 units of background have at l"),
        ({"background": np.ones((150, D))}, "background does not vary"),
    ],
)
def test_invalid_comparisons_are_refused(change: dict[str, Any], message: str) -> None:
    data = by_donor(0, 1.0) | change
    with pytest.raises(ValueError, match=message):
        condition_shift(**data)


def mixture(share: float, shift: float, seed: int, n: int = 600) -> tuple[Any, Any, Any]:
    """Return scores, background scores, and a mask of the share of the scores that is shifted."""
    rng = np.random.default_rng(seed)
    true = rng.random(n) < share
    return rng.standard_t(8, n) + shift * true, rng.standard_t(8, n), true


@pytest.mark.parametrize(("share", "shift"), [(0.1, 4.0), (0.3, 2.5), (0.6, 4.0), (0.9, 2.5)])
def test_the_mixture_and_its_share_agree_with_plain_numpy(share: float, shift: float) -> None:
    scores, others, true = mixture(share, shift, 0)
    found = responders(scores, others, level=0.1)
    z, y = ((each - others.mean()) / others.std() for each in (scores, others))
    moved = found.shift / others.std()
    posteriors = []
    for values in (z, y, y + moved):
        p = found.posterior.mean()
        parts = (1 - p) * norm.pdf(values), p * norm.pdf(values, moved)
        posteriors.append(parts[1] / sum(parts))
    np.testing.assert_allclose(found.posterior, posteriors[0], atol=1e-6)
    np.testing.assert_allclose(found.background_posterior, posteriors[1], atol=1e-6)
    assert moved == pytest.approx(found.posterior @ z / found.posterior.sum(), rel=1e-6)
    # At level 0.1, the threshold is the 541st smallest of the 600 posteriors of background rows. A
    # new background row exceeds it with a probability of at most 60 / 601.
    assert found.threshold == max(0.5, np.sort(found.background_posterior)[540])
    np.testing.assert_array_equal(found.called, found.posterior > found.threshold)
    estimate, low, high = found.share()
    means = [each.mean() for each in posteriors]
    assert estimate == pytest.approx((means[0] - means[1]) / (means[2] - means[1]), abs=1e-5)
    # The variance is multiplied by 3, because the scores depend on each other and the model is
    # estimated from them.
    error = np.sqrt(3 * (posteriors[0].var() + posteriors[1].var()) / 600)
    half = norm.ppf(0.975) * error / (means[2] - means[1])
    ends = np.clip([estimate - half, estimate + half], 0, 1)
    np.testing.assert_allclose([low, high], ends, atol=1e-4)
    assert low <= true.mean() <= high
    assert found.share(true)[0] > 0.8 > 0.2 > found.share(~true)[0]


def test_the_posterior_rises_with_the_score_in_any_unit() -> None:
    scores, others, _ = mixture(0.4, 2.0, 1)
    found = responders(scores, others)
    moved = responders(10 * scores - 3, 10 * others - 3)
    np.testing.assert_allclose(moved.posterior, found.posterior, atol=1e-6)
    assert moved.shift == pytest.approx(10 * found.shift, rel=1e-5)
    assert (np.diff(found.posterior[np.argsort(scores)]) >= 0).all()


@pytest.mark.parametrize(
    ("scores", "others", "message"),
    [
        (np.ones(9), np.arange(20.0), r"scores has shape \(9,\)"),
        (np.ones(20), np.ones(20), "background_scores are all the same"),
        (np.full(20, np.nan), np.arange(20.0), "20 values that are not finite"),
        (np.ones((20, 2)), np.arange(20.0), r"scores has shape \(20, 2\)"),
    ],
)
def test_invalid_scores_are_refused(scores: Any, others: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        responders(scores, others)


def test_a_share_can_be_estimated_from_two_rows() -> None:
    found = responders(np.arange(40.0), np.arange(30.0))
    assert np.isfinite(found.share([0, 1], [2, 3])).all()
    assert np.isnan(found.share([0], [2, 3])).all()


def test_the_result_gives_the_ratio_and_the_stability_of_features() -> None:
    found = condition_shift(rows(200, 0, 2.0), background=rows(200, 1), random_state=0)
    effects = np.array([found.effect, found.effect_low, found.effect_high])
    np.testing.assert_allclose(found.ratio(), 1 + effects**2)
    other = dataclasses.replace(found, effect=-2.0, effect_low=-3.0, effect_high=0.5)
    assert other.ratio() == (0.0, 0.0, 1.25)
    stability = found.stability(3)
    top = np.argsort(-np.abs(found.resampled), axis=1)[:, :3]
    same = np.sign(found.resampled) == np.sign(found.direction)
    expected = [
        np.mean([j in row and ok[j] for row, ok in zip(top, same, strict=True)]) for j in range(D)
    ]
    np.testing.assert_allclose(stability, expected)
    assert stability[7] == 1
    np.testing.assert_array_equal(found.stability(D), same.mean(axis=0))
    few = condition_shift(rows(200, 0), background=rows(200, 1), n_resamples=7, random_state=0)
    assert few.resampled.shape == (7, D)


def test_observed_differences_are_reduced_by_the_share_of_their_errors() -> None:
    """Let half of the true differences be 0, and the others have 50 times their error's variance.

    The expected true difference of a feature that surely differs is 50 / 51 of the observed one.
    """
    rng = np.random.default_rng(0)
    error = np.linspace(0.1, 10, 5000)
    variance = error * np.where(np.arange(5000) % 2, 51, 1)
    observed = np.sqrt(variance) * rng.normal(size=5000)
    sure = observed**2 > 30 * error
    found = _shrunk(observed[None], error[None])[0, sure] / observed[sure]
    np.testing.assert_allclose(found, 50 / 51, atol=0.003)
