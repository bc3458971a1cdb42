"""Tests of CLVM fitted by stochastic variational inference."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from scipy.stats import nbinom
from sklearn.base import clone

from contrast_core import CLVM, ContrastWarning, SecondMoments, load, save
from contrast_core.datasets import load_mouse_protein
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic import _clvm_counts as counts
from contrast_core.probabilistic import _clvm_start
from contrast_core.probabilistic._clvm_likelihood import Search
from contrast_core.probabilistic._clvm_start import Start
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS
from tests.core.samples import generated, holes

torch = pytest.importorskip("torch", reason="torch is not installed")

MAY_NOT_CONVERGE = pytest.mark.filterwarnings("ignore:the likelihood still rises")


def fit(X: Any, Y: Any, **options: Any) -> CLVM:
    options = {"n_shared": 1, "n_salient": 1, "random_state": 0} | options
    return CLVM(inference="vi", **options).fit(X, background=Y)


def total_log_density(model: CLVM, X: Any, Y: Any) -> float:
    """Return the sum of the log-densities of all rows of both datasets."""
    of_y = model.score_samples(Y, dataset="background")
    return float(model.score_samples(X).sum() + of_y.sum())


def rows_of_counts(n: int = 300, d: int = 24, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return counts with two shared dimensions and one salient dimension.

    Also return the direction of the salient dimension, which affects a third of the `d` features.
    Six more features make up most of the total count of a row. Their shares of the total are
    constant, apart from noise.
    """
    rng = np.random.default_rng(seed)
    share = np.append(0.1 * rng.dirichlet(np.full(d, 4.0)), np.full(6, 0.15))
    r = np.append(rng.uniform(2, 10, d), np.full(6, 1e3))
    S, W = np.zeros((2, d + 6)), np.zeros((1, d + 6))
    S[:, :d] = 0.6 * rng.normal(size=(2, d))
    W[:, : d // 3] = 0.7 * rng.choice([-1, 1], d // 3)
    parts = []
    for part in (rng.normal(size=(n, 1)) @ W, 0.0):
        totals = rng.lognormal(np.log(60 * d), 1.0, (n, 1))
        rates = totals * share * np.exp(rng.normal(size=(n, 2)) @ S + part)
        parts.append(rng.negative_binomial(r, r / (r + rates)).astype(float))
    return parts[0], parts[1], W / np.linalg.norm(W)


# Rows with normal or Student's t noise


def test_a_fit_that_starts_at_the_maximum_likelihood_stays_there() -> None:
    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    em = CLVM().fit(X, background=Y)
    vi = fit(X, Y, n_shared=2, n_salient=2)
    assert subspace_error(vi.components_, em.components_) <= 0.07
    assert vi.elbo_[0] == pytest.approx(em.log_likelihoods_[-1], rel=1e-9)
    assert vi.elbo_[0] - 1e-6 <= vi.elbo_[-1] <= em.log_likelihoods_[-1] + 1e-3
    assert vi.elbo_[-1] == pytest.approx(total_log_density(vi, X, Y), rel=1e-10)
    # The bound recovers after the first steps of Adam.
    assert vi.elbo_[1:-1].max() > vi.elbo_[0] - 5
    assert vi.converged_
    assert vi.n_iter_ == len(vi.elbo_) - 2


@MAY_NOT_CONVERGE
@pytest.mark.parametrize(("robust", "missing"), [(None, True), ("rows", False), ("entries", False)])
def test_a_distant_start_reaches_the_maximum(robust: Any, missing: bool, monkeypatch: Any) -> None:
    X, Y, _, _ = generated(150, 100, 8)
    if missing:
        X, Y = holes(X), holes(Y, seed=1)
    em = CLVM(n_shared=1, n_salient=1, robust=robust).fit(X, background=Y)
    unit = em.noise_variance_**0.5
    loadings = np.hstack([em.shared_loadings_, em.salient_loadings_]) / unit
    far = Start(
        loadings + 0.5 * np.random.default_rng(1).normal(size=(8, 2)),
        np.array([em.mean_, em.background_mean_]),
        *(np.ones(1), 1, unit, 1.0, np.ones(8, bool), np.zeros((2, 8))),
    )
    start = "contrast_core.probabilistic._clvm.starting_point"
    monkeypatch.setattr(start, lambda *_: far)
    vi = fit(X, Y, robust=robust, max_iter=60)
    best = em.log_likelihoods_[-1]
    assert vi.elbo_[0] < best - 50
    assert best - 3.0 < vi.elbo_[-1] < best + 1e-3
    # The weights of robust="entries" have not converged, so the bound is a little smaller than the
    # total log-density.
    missed = 0.01 * len(X) if robust == "entries" else 1e-9 * abs(best)
    assert -1e-9 * abs(best) < total_log_density(vi, X, Y) - vi.elbo_[-1] < missed


# Rows of counts


def test_the_bound_for_counts_is_close_to_the_likelihood_and_below_it() -> None:
    rng = np.random.default_rng(0)
    loadings, mean = 0.5 * rng.normal(size=(30, 3)), np.log(rng.dirichlet(np.full(30, 2.0)))
    r = rng.uniform(0.5, 20, 30)
    rates = rng.integers(5, 2000, (8, 1)) * np.exp(mean + rng.normal(size=(8, 3)) @ loadings.T)
    rows = rng.negative_binomial(r, r / (r + rates)).astype(float)
    rows[0] = 0.0
    model = counts.CountModel(loadings, mean, np.log(r))
    found = counts.count_posteriors(rows, model)
    bounds = counts.count_bound(rows, model, found)
    for row, m, flat, bound in zip(rows, found.latent, found.covariance, bounds, strict=True):
        covariance = flat.reshape(3, 3)
        # Importance sampling estimates the exact log-likelihood of the row.
        drawn = rng.multivariate_normal(m, covariance, 40_000)
        rate = max(row.sum(), 1e-9) * np.exp(mean + drawn @ loadings.T)
        joint = nbinom.logpmf(row, r, r / (r + rate)).sum(axis=1) - (drawn**2).sum(axis=1) / 2
        left = np.linalg.solve(np.linalg.cholesky(covariance), (drawn - m).T)
        of_draws = -(left**2).sum(axis=0) / 2 - np.linalg.slogdet(covariance)[1] / 2
        exact = logsumexp(joint - of_draws) - np.log(len(drawn))
        assert -0.05 < bound - exact < 0.005
    # No nearby normal posterior has a larger bound.
    for _ in range(20):
        m = found.latent + 0.05 * rng.normal(size=(8, 3))
        other = counts.NormalPosteriors(m, found.covariance * rng.uniform(0.8, 1.2, (8, 1)))
        assert (counts.count_bound(rows, model, other) < bounds + 1e-4).all()
    np.testing.assert_allclose(found.latent[0], 0.0, atol=1e-6)
    tensors = counts.CountModel(*(torch.tensor(part) for part in model))
    of_tensors = counts.count_posteriors(torch.tensor(rows), tensors)
    np.testing.assert_allclose(of_tensors.latent.numpy(), found.latent, atol=1e-6)
    value = counts.count_bound(torch.tensor(rows), tensors, of_tensors)
    np.testing.assert_allclose(value, bounds, rtol=1e-8)


@MAY_NOT_CONVERGE
def test_a_model_of_counts_finds_a_dimension_that_logarithms_miss() -> None:
    X, Y, truth = rows_of_counts()
    model = fit(X, Y, n_shared=2, noise="counts", max_iter=40)
    logarithms = [
        np.log1p(rows / np.maximum(1, rows.sum(axis=1, keepdims=True)) * 1500) for rows in (X, Y)
    ]
    other = CLVM(n_shared=2, n_salient=1).fit(logarithms[0], background=logarithms[1])
    sines = [subspace_error(each.components_, truth) for each in (model, other)]
    print(f"sine to the salient dimension: counts {sines[0]:.3f}, logarithms {sines[1]:.3f}")
    assert sines[0] < 0.2
    assert sines[0] < sines[1]
    assert model.elbo_[-1] > model.elbo_[0] + 100
    assert total_log_density(model, X, Y) == pytest.approx(model.elbo_[-1], abs=0.01 * len(X))
    assert total_log_density(model, X, Y) >= model.elbo_[-1] - 1e-3
    assert 2 < np.median(model.dispersions_[:24]) < 10
    scores, shared = model.transform(X), model.transform_shared(Y, dataset="background")
    assert scores.shape == (300, 1)
    assert shared.shape == (300, 2)
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), scores, atol=1e-6)
    drawn = model.sample_foreground(4000, add_noise=True, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0).sum(), X.sum(axis=1).mean(), rtol=0.15)
    assert np.corrcoef(drawn.mean(axis=0), X.mean(axis=0))[0, 1] > 0.95
    for name in ("projection_", "latent_covariance_", "noise_variance_"):
        assert not hasattr(model, name)
    with pytest.raises(AttributeError, match="noise='counts'"):
        model.denoise(X)


def test_posteriors_of_counts_far_from_the_model_maximise_the_bound() -> None:
    # For such rows, updates without damping can alternate between a narrow and a wide posterior.
    rng = np.random.default_rng(1)
    for _ in range(40):
        loadings, mean = 3 * rng.normal(size=(6, 1)), np.log(rng.dirichlet(np.ones(6)))
        row = rng.multinomial(rng.choice([30, 1000]), np.exp(mean))[None].astype(float)
        model = counts.CountModel(loadings, mean, np.full(6, np.log(0.05)))
        found = counts.count_posteriors(row, model)
        bound = float(counts.count_bound(row, model, found)[0])
        for latent in found.latent[0, 0] + np.linspace(-0.5, 0.5, 11):
            for variance in found.covariance[0, 0] * np.geomspace(1e-3, 1e3, 25):
                other = counts.NormalPosteriors(np.array([[latent]]), np.array([[variance]]))
                assert float(counts.count_bound(row, model, other)[0]) < bound + 0.3


@MAY_NOT_CONVERGE
def test_a_dataset_of_zeros_is_refused_and_constant_counts_are_fitted() -> None:
    X, Y, _ = rows_of_counts(120, 20)
    X[0] = 0.0
    X[:, 5] = Y[:, 5] = 0.0
    X[:, 6] = 0.0
    X, Y = (np.c_[rows, np.full(120, 2000.0)] for rows in (X, Y))
    model = fit(X.astype(np.int32), Y.astype(np.float32), noise="counts", max_iter=3)
    assert total_log_density(model, X, Y) == pytest.approx(model.elbo_[-1], rel=1e-6)
    assert not model.salient_loadings_[5].any()
    # The last count is constant, whereas the others rise with the total count of the row. Its share
    # therefore falls, which the model explains by a loading.
    assert model.salient_loadings_[-1].any()
    X[:, -1] = 0.0
    np.testing.assert_allclose(model.transform(X[:1]), 0.0, atol=1e-6)
    for data, name in ((0 * X, Y), "X"), ((X, 0 * Y), "background"):
        with pytest.raises(ValueError, match=f"{name} contains only zeros"):
            fit(*data, noise="counts")


def test_a_penalty_is_scaled_by_the_share_of_the_rows_that_are_sampled(monkeypatch: Any) -> None:
    monkeypatch.setattr(_clvm_start, "_LEAST_ROWS", 50)
    monkeypatch.setattr(_clvm_start, "ELEMENTS", 1)
    X, Y, _, _ = generated(150, 50, 6)
    given = Search(1, 1, np.random.default_rng(0), 1e-6, 10, sparsity=8.0)
    some, search = _clvm_start._sampled([rows_of(X), rows_of(Y)], given)
    assert [part.shape[0] for part in some] == [50, 50]
    assert search == given._replace(sparsity=4.0)
    everything = given._replace(sparsity="auto")
    assert _clvm_start._sampled([rows_of(X)], everything)[1] == everything


# Formats of the data


@pytest.mark.filterwarnings("ignore:the likelihood still rises")
def test_the_same_seed_gives_the_same_numbers_from_any_container(tmp_path: Path) -> None:
    X, Y, _ = rows_of_counts(200, 20)
    options: dict[str, Any] = {"noise": "counts", "max_iter": 2}
    model = fit(X, Y, **options)
    state = torch.random.get_rng_state()
    again = fit(X, Y, **options)
    np.testing.assert_array_equal(again.salient_loadings_, model.salient_loadings_)
    assert torch.equal(torch.random.get_rng_state(), state)
    sparse = fit(sp.csr_matrix(X), sp.csc_array(Y), **options)
    np.testing.assert_allclose(sparse.salient_loadings_, model.salient_loadings_, atol=1e-8)
    other = fit(X, Y, **options | {"random_state": 1})
    assert (other.salient_loadings_ != model.salient_loadings_).any()
    save(model, tmp_path / "counts.model")
    np.testing.assert_array_equal(load(tmp_path / "counts.model").transform(X), model.transform(X))
    assert clone(model).noise == "counts"


@MAY_NOT_CONVERGE
@pytest.mark.parametrize("make", [partial(KINDS["dask"], chunks=(64, 6)), KINDS["HDF5 in rows"]])
def test_streamed_rows_give_the_same_model(make: Any, tmp_path: Path) -> None:
    X, Y, _, _ = generated(300, 200, 6)
    X[:8] += 20
    options: dict[str, Any] = {"robust": "rows", "max_iter": 25}
    here = fit(X, Y, **options)
    (tmp_path / "Y").mkdir()
    other = fit(make(X, tmp_path), make(Y, tmp_path / "Y"), **options)
    assert subspace_error(other.components_, here.components_) < 0.02
    assert other.elbo_[-1] == pytest.approx(here.elbo_[-1], abs=0.5)


@MAY_NOT_CONVERGE
@pytest.mark.parametrize(("c", "sparsity"), [(1e-4, None), (1e5, None), (1e5, 2.0)])
def test_shifts_scales_and_constant_features_keep_the_model(c: float, sparsity: Any) -> None:
    X, Y, _, _ = generated(120, 100, 6)
    options: dict[str, Any] = {"robust": "rows", "max_iter": 20, "sparsity": sparsity}
    plain = fit(X, Y, **options)
    padded = [np.hstack([c * (rows + 3), np.full((len(rows), 1), 2.0)]) for rows in (X, Y)]
    other = fit(*padded, **options)
    np.testing.assert_allclose(abs(other.components_[:, :-1]), abs(plain.components_), atol=1e-3)
    assert other.noise_variance_ == pytest.approx(c**2 * plain.noise_variance_, rel=1e-3)
    assert not other.salient_loadings_[-1].any()


# Invalid combinations


FEW_ROWS = generated(30, 20, 5)[:2]
GAPS = np.where(np.arange(5) == 1, np.nan, np.arange(150.0).reshape(30, 5))
REFUSED: list[tuple[Any, Any, Any, str]] = [
    ({"sparsity": 1e6}, {}, FEW_ROWS, r"sparsity=1e\+06 leaves no feature"),
    ({}, {"within": [0, 1] * 15}, FEW_ROWS, "does not combine inference='vi' with within"),
    ({}, {"sample_weight": np.ones(30)}, FEW_ROWS, "with sample_weight"),
    ({}, {}, (FEW_ROWS[0], FEW_ROWS[1:] * 2), "combine inference='vi' with several"),
    ({"noise": "counts", "inference": "em"}, {}, FEW_ROWS, "no closed form: give inference='vi'"),
    ({"noise": "counts", "robust": "rows"}, {}, FEW_ROWS, "leave one of them out"),
    ({"noise": "counts"}, {}, FEW_ROWS, "whole numbers from 0"),
    ({"noise": "counts"}, {}, (GAPS, np.ones((20, 5))), "NaN"),
    ({"device": "gpu7"}, {}, FEW_ROWS, "not a device that torch knows"),
]


@MAY_NOT_CONVERGE
@pytest.mark.parametrize(("options", "given", "data", "message"), REFUSED)
def test_unsupported_options_are_refused(options: Any, given: Any, data: Any, message: str) -> None:
    model = CLVM(**{"n_shared": 1, "n_salient": 1, "inference": "vi"} | options)
    with pytest.raises(ValueError, match=message):
        model.fit(data[0], background=data[1], **given)
    assert not hasattr(model, "components_")


def test_moments_and_a_missing_torch_cause_an_error(monkeypatch: Any) -> None:
    with pytest.raises(TypeError, match="moments were given"):
        fit(*(SecondMoments.from_data(rows) for rows in FEW_ROWS))
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="cuda"):
            fit(*FEW_ROWS, device="cuda")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="run pip install torch"):
        fit(*FEW_ROWS)


def test_the_fit_shows_its_progress_and_the_next_fit_starts_afresh() -> None:
    X, Y, _, _ = generated(60, 40, 5)
    seen: list[int] = []

    def bar(items: Any, total: int, desc: str) -> Any:
        seen.append(total)
        return items

    assert fit(X, Y, progress=bar, device="cpu").converged_
    assert len(seen) == 3
    with pytest.warns(ContrastWarning, match="still rises"):
        model = fit(X, Y, robust="rows", max_iter=2)
    em = model.set_params(inference="em", robust=None, max_iter=3000).fit(X, background=Y)
    assert not hasattr(em, "elbo_")
    assert hasattr(em, "log_likelihoods_")


@MAY_NOT_CONVERGE
def test_the_horseshoe_shrinks_the_same_features_as_in_the_fit_by_em() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 60, 12))
    X[:, :4] += rng.normal(size=(60, 1)) * [2.0, -1.5, 1.2, 0.8]
    options: dict[str, Any] = {"n_shared": 0, "n_salient": 1, "sparsity": "horseshoe"}
    em = CLVM(**options).fit(X, background=Y)
    vi = fit(X, Y, max_iter=20, **options)
    np.testing.assert_allclose(vi.shrunk_probability_, em.shrunk_probability_, atol=0.08)


@MAY_NOT_CONVERGE
def test_a_shared_variable_that_counts_do_not_need_is_left_out() -> None:
    X, Y, _ = rows_of_counts(40, 8)
    options: dict[str, Any] = {"n_shared": 3, "noise": "counts", "max_iter": 10}
    assert fit(X, Y, ard=True, **options).shared_loadings_.shape == (14, 2)


@MAY_NOT_CONVERGE
@pytest.mark.parametrize(
    "options",
    [
        {"robust": "entries", "sparsity": "auto"},
        {"robust": "rows", "sparsity": "horseshoe", "ard": True},
        {"noise": "counts", "sparsity": 2.0, "ard": True},
    ],
    ids=str,
)
def test_all_tensors_are_made_on_the_given_device(options: Any) -> None:
    X, Y, _ = rows_of_counts(60, 8)
    options = {"max_iter": 2, "device": "cpu"} | options
    here = fit(X, Y, **options)
    # On the meta device, a tensor made without an explicit device cannot be combined with others.
    with torch.device("meta"):
        there = fit(X, Y, **options)
    np.testing.assert_array_equal(there.salient_loadings_, here.salient_loadings_)
