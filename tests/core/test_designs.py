"""Tests of groups, weights and several backgrounds, for every method that uses moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import contrast_core as cc
from contrast_core import CPCA, PCPCA, CPCAStar, PCAPlus, PCAPlusPlus, SecondMoments, SparseCPCA
from contrast_core.linalg import subspace_error
from contrast_core.moments import PairMoments

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

METHODS = [CPCA(2), CPCA(2, alpha=1.0), CPCAStar(2), PCPCA(2), SparseCPCA(2, alpha=0.5)]
# The first shape is solved with covariances of the features, the second in the span of the rows.
SHAPES = [(120, 90, 12), (40, 36, 400)]


def study(n: int, m: int, d: int, sparse: bool = False) -> dict[str, Any]:
    """Return datasets, labels and weights; donors differ more than treated and control rows."""
    rng = np.random.default_rng(d)
    groups, background_within = rng.integers(0, 4, n), rng.integers(2, 7, m)
    donors = 8 * rng.normal(size=(7, d))
    X = rng.normal(size=(n, d)) + donors[groups]
    Y = rng.normal(size=(m, d)) + donors[background_within]
    X[:, :3] += 3 * rng.normal(size=(n, 1))
    X[:, 4:6] += 2 * rng.normal(size=(n, 1))
    if sparse:
        X, Y = (sp.csr_array(rows * (rng.random(rows.shape) < 0.5)) for rows in (X, Y))
    return {
        "X": X,
        "background": Y,
        "within": np.array(list("pqrstuv"))[groups],
        "background_within": np.array(list("pqrstuv"))[background_within],
        "sample_weight": rng.integers(0, 4, n),
        "background_weight": rng.integers(0, 3, m),
    }


def fitted(method: Any, data: dict[str, Any], **changes: Any) -> Any:
    given = dict(data) | changes
    return clone(method).fit(given.pop("X"), **given)


def by_hand(rows: Any, groups: Any, weights: Any) -> tuple[Any, Any]:
    """Repeat each row as often as its weight says; return the rows, raw and centred by group."""
    dense = rows.toarray() if sp.issparse(rows) else rows
    if weights is not None:
        dense = np.repeat(dense, weights, axis=0)
        groups = None if groups is None else np.repeat(groups, weights)
    if groups is None:
        return dense, dense
    means = {group: dense[groups == group].mean(axis=0) for group in np.unique(groups)}
    return dense, dense - np.stack([means[group] for group in groups])


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("grouped", "weighted"), [(True, False), (False, True), (True, True)])
def test_groups_and_integer_weights_act_like_centred_and_repeated_rows(
    method: Any, shape: Any, sparse: bool, grouped: bool, weighted: bool
) -> None:
    data = study(*shape, sparse)
    if not grouped:
        data["within"] = data["background_within"] = None
    if not weighted:
        data["sample_weight"] = data["background_weight"] = None
    found = fitted(method, data)
    raw, X = by_hand(data["X"], data["within"], data["sample_weight"])
    _, Y = by_hand(data["background"], data["background_within"], data["background_weight"])
    expected = clone(method).fit(X, background=Y)
    assert subspace_error(found.components_, expected.components_) < 1e-8
    assert found.strength_ == pytest.approx(expected.strength_, rel=1e-8)
    variances = found.foreground_variance_
    np.testing.assert_allclose(variances, expected.foreground_variance_, rtol=1e-8)
    np.testing.assert_allclose(found.mean_, raw.mean(axis=0), atol=1e-10)
    plain = clone(method).fit(data["X"], background=data["background"])
    assert not grouped or subspace_error(found.components_, plain.components_) > 0.1
    assert not hasattr(plain, "within_labels_")


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mix", [None, [1.0, 3.0]])
def test_background_mix_sets_the_weight_of_a_background(method: Any, shape: Any, mix: Any) -> None:
    data = study(*shape)
    Y = data["background"]
    backgrounds = [Y[:8], Y[8:]]
    several = clone(method).fit(data["X"], background=backgrounds, background_mix=mix)
    shares = np.array(mix or [1.0, 1.0]) / np.sum(mix or [1.0, 1.0])
    # The same result is expected with one background whose parts are centred and weighted.
    one = clone(method).fit(
        data["X"],
        background=Y,
        background_within=np.repeat([0, 1], [8, len(Y) - 8]),
        background_weight=np.repeat(shares / [8, len(Y) - 8], [8, len(Y) - 8]),
    )
    assert subspace_error(several.components_, one.components_) < 1e-8
    assert several.strength_ == pytest.approx(one.strength_, rel=1e-8)
    each = several.background_variances_
    np.testing.assert_allclose(shares @ each, several.background_variance_, rtol=1e-9)
    for part, found in zip(backgrounds, each, strict=True):
        scores = (part - part.mean(axis=0)) @ several.components_.T
        np.testing.assert_allclose(scores.var(axis=0), found, rtol=1e-8)
    assert one.background_variances_.shape == (1, 2)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_other_strengths_use_the_moments_of_the_fit(method: Any, shape: Any, tmp_path: Any) -> None:
    data = study(*shape)
    data["background"] = [data["background"][:10], data["background"][10:]]
    for name in ("background_within", "background_weight"):
        data[name] = [data[name][:10], None]
    first = fitted(method, data)
    strength = first.strength_ / 3
    directly = fitted(clone(method).set_params(**{method._strength: strength}), data)
    for other in (first.at(strength), first.path([strength, first.strength_])[0]):
        assert subspace_error(other.components_, directly.components_) < 1e-7
        np.testing.assert_array_equal(other.within_means_, first.within_means_)
    scores = first.transform(data["X"], within=data["within"])
    cc.save(first, tmp_path / "model")
    again = cc.load(tmp_path / "model")
    np.testing.assert_array_equal(again.transform(data["X"], within=data["within"]), scores)
    with pytest.raises(AttributeError, match="moments=True"):
        _ = again.background_variances_


def test_scores_are_centred_by_their_group() -> None:
    data = study(*SHAPES[0])
    within = fitted(CPCA(2), data, sample_weight=None, background_weight=None)
    plain = within.transform(data["X"])
    scores = within.transform(data["X"], within=data["within"])
    for group in within.within_labels_:
        rows = data["within"] == group
        np.testing.assert_allclose(scores[rows].mean(axis=0), 0, atol=1e-10)
        shift = plain[rows] - scores[rows]
        np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape), atol=1e-10)
    # Rows of a known group are centred by the mean of that group in the fit. A new group is centred
    # by its own mean, so a single row of it becomes zero.
    few = data["X"][:3]
    np.testing.assert_allclose(within.transform(few, within=data["within"][:3]), scores[:3])
    assert not within.transform(few[:1], within=["new"]).any()
    with pytest.raises(ValueError, match="one label for each of the 120 rows"):
        within.transform(data["X"], within=["p"])
    again = within.fit(data["X"], background=data["background"])
    assert not hasattr(again, "within_labels_")
    # Without groups in the fit, each group is centred by its own rows.
    alone = again.transform(data["X"], within=data["within"])
    for group in np.unique(data["within"]):
        np.testing.assert_allclose(alone[data["within"] == group].mean(axis=0), 0, atol=1e-10)


def test_contrast_path_contrast_by_label_and_pipelines_pass_on_groups_and_weights() -> None:
    data = study(*SHAPES[0])
    one = fitted(CPCA(2, alpha=2.0), data)
    path = cc.contrast_path(alphas=[0.0, 2.0, 5.0], **data)
    assert subspace_error(path.components[1], one.components_) < 1e-9
    np.testing.assert_array_equal(path.at(2.0).within_labels_, one.within_labels_)
    labelled = cc.ContrastByLabel(CPCA(2, alpha=2.0)).fit(
        np.vstack([data["X"], data["background"]]),
        np.repeat([1, 0], [len(data["X"]), len(data["background"])]),
        within=np.concatenate([data["within"], data["background_within"]]),
        sample_weight=np.concatenate([data["sample_weight"], data["background_weight"]]),
    )
    np.testing.assert_allclose(labelled.estimator_.components_, one.components_, atol=1e-12)
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler(with_std=False).set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, CPCA(2, alpha=2.0), transform_input=["background"])
        pipeline.fit(data.pop("X"), **data)
    assert subspace_error(pipeline[-1].components_, one.components_) < 1e-10


def test_moments_of_rows_with_groups_give_the_same_fit_as_rows() -> None:
    data = study(*SHAPES[0])
    x, y = (
        SecondMoments.from_data(data[rows], groups=data[labels])
        for rows, labels in (("X", "within"), ("background", "background_within"))
    )
    from_rows = fitted(CPCA(2), data, sample_weight=None, background_weight=None)
    from_moments = CPCA(2).fit(x.within, background=y.within)
    assert subspace_error(from_rows.components_, from_moments.components_) < 1e-12
    np.testing.assert_array_equal(from_moments.within_labels_, from_rows.within_labels_)
    whole = CPCA(2).fit(x, background=y)  # these moments include differences between groups
    plain = CPCA(2).fit(data["X"], background=data["background"])
    assert subspace_error(whole.components_, plain.components_) < 1e-9
    several = CPCA(2).fit(x.within, background=[y.within, y.between], background_mix=[2, 1])
    assert several.background_variances_.shape == (2, 2)


DATA = study(*SHAPES[0])
BACKGROUND = DATA["background"]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sample_weight": [1.0] + [0.0] * 119}, "at least 2 rows"),
    ({"background_mix": [1.0, 2.0]}, r"1 background\(s\)"),
    ({"background": [BACKGROUND, BACKGROUND[:, :5]]}, r"background\[1\] has 5 features"),
    ({"background": [BACKGROUND, BACKGROUND[:1]]}, r"background\[1\] has n_samples=1"),
    ({"background": [BACKGROUND, SecondMoments.from_data(BACKGROUND)]}, "data for both"),
    (
        {"background": 2 * [BACKGROUND], "background_within": DATA["background_within"]},
        "2 backgrounds were given",
    ),
    ({"background": 2 * [BACKGROUND], "background_mix": [1, 0]}, "leave that background out"),
    ({"background": 2 * [BACKGROUND], "background_mix": [1, -1]}, "none negative"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_invalid_groups_weights_and_backgrounds_are_refused(changes: Any, message: str) -> None:
    plain: dict[str, Any] = {}
    if "background" in changes:
        plain = {"background_within": None, "background_weight": None}
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(CPCA(2), DATA, **(plain | changes))


def test_groups_and_weights_are_refused_for_moments_and_by_the_lanczos_solver() -> None:
    moments = SecondMoments.from_data(DATA["X"]), SecondMoments.from_data(BACKGROUND)
    with pytest.raises(TypeError, match="Give them when the moments are computed"):
        CPCA(2).fit(moments[0], background=moments[1], within=[1] * 120)
    with pytest.raises(ValueError, match="neither within nor weights"):
        CPCA(2, solver="lanczos").fit(DATA["X"], background=BACKGROUND, within=DATA["within"])


@pytest.mark.parametrize("method", [PCAPlus(2), PCAPlusPlus(2), PCAPlusPlus(2, exchangeable=False)])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_integer_weights_of_pairs_act_like_repeated_pairs(method: Any, kind: Any) -> None:
    rng = np.random.default_rng(0)
    signal = 4 * rng.normal(size=(200, 2)) @ rng.normal(size=(2, 10))
    X, positive = (kind(signal + rng.normal(size=(200, 10)) + i) for i in (0, 3))
    times = rng.integers(0, 4, 200)
    repeated = np.repeat(np.arange(200), times)
    by_rows = clone(method).fit(X[repeated], positive=positive[repeated])
    halves = [slice(0, 70), slice(70, 200)]
    parts = [PairMoments.from_data(X[h], positive[h], sample_weight=times[h]) for h in halves]
    merged = clone(method).fit(parts[0].merge(parts[1]))
    for weighted in (clone(method).fit(X, positive=positive, sample_weight=times), merged):
        assert subspace_error(weighted.components_, by_rows.components_) < 1e-9
        np.testing.assert_allclose(weighted.mean_, by_rows.mean_, atol=1e-12)
    with pytest.raises(TypeError, match="Give them when the moments are computed"):
        clone(method).fit(parts[0], sample_weight=times)
    for bad, message in (
        (times[:-1], "one weight for each of the 200"),
        (np.eye(200)[0], "least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(method).fit(X, positive=positive, sample_weight=bad)
