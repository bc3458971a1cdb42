"""What takes data, and what it must give: computed with NumPy and LAPACK, from the papers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

import contrast_core as cc
from contrast_core import images, pairing
from tests.core.odd_inputs import base

X, Y = base(0), base(1)
K = 2
BETA = 0.001  # with background variances of some hundreds


class Subject(NamedTuple):
    """A public function of data, and the same of plain arrays."""

    name: str
    call: Callable[..., list[Any]]
    expected: Callable[..., list[Any]]
    slots: tuple[str, ...] = ("X", "background")
    but: tuple[str, ...] = ()  # kinds of data for which this does not hold
    tolerance: float = 1e-8  # of the largest entry


def centred(rows: Any) -> Any:
    return rows - rows.mean(axis=0)


def covariance(rows: Any) -> Any:
    return centred(rows).T @ centred(rows) / len(rows)


def leading(matrix: Any, weight: Any = None, k: int = K) -> tuple[Any, Any]:
    """Largest eigenvalues and projector on the span of their eigenvectors."""
    values, vectors = scipy.linalg.eigh(matrix, weight)
    span = np.linalg.qr(vectors[:, : -k - 1 : -1])[0]
    return values[: -k - 1 : -1], span @ span.T


def projector(model: Any) -> Any:
    return model.components_.T @ model.components_


def fitted(model: Any, *attributes: str) -> Callable[..., list[Any]]:
    """The projector on the components, and fitted attributes."""

    def call(**data: Any) -> list[Any]:
        made = model()
        made.fit(data.pop("X"), **data)
        return [projector(made), *(getattr(made, name) for name in attributes)]

    return call


def cpca(X: Any, background: Any, alpha: float = 1.5) -> list[Any]:
    values, span = leading(covariance(X) - alpha * covariance(background))
    return [span, values]


def cpca_star(X: Any, background: Any) -> list[Any]:
    within = (1 - BETA) * np.eye(X.shape[1]) + BETA * covariance(background)
    values, span = leading(covariance(X), within)
    return [span, values]


def pcpca(X: Any, background: Any, gamma: float = 0.1) -> list[Any]:
    contrast = covariance(X) - gamma * covariance(background)
    values, span = leading(contrast)
    return [span, (np.trace(contrast) - values.sum()) / (X.shape[1] - K) / (1 - gamma)]


def clvm(X: Any, background: Any) -> list[Any]:
    """Without shared latent variables: a closed form."""
    values, span = leading(covariance(X))
    (n, d), m = X.shape, len(background)
    left = n * (np.trace(covariance(X)) - values.sum()) + m * np.trace(covariance(background))
    return [span, left / (n * (d - K) + m * d)]


def kernel_cpca(X: Any, background: Any) -> list[Any]:
    rows, n = np.vstack([X, background]), len(X)
    kernel = np.exp(-1e-3 * ((rows[:, None] - rows) ** 2).sum(axis=2))
    share = scipy.linalg.block_diag(*(np.full((m, m), 1 / m) for m in (n, len(background))))
    rest = np.eye(len(rows)) - share
    values, vectors = np.linalg.eigh(rest @ kernel @ rest)
    mapped = vectors[:, values > 1e-9] * np.sqrt(values[values > 1e-9])
    values, span = leading(covariance(mapped[:n]) - 1.5 * covariance(mapped[n:]))
    return [mapped[:n] @ span @ mapped[:n].T, values]


def _kernel_cpca(X: Any, background: Any) -> list[Any]:
    model = cc.KernelCPCA(alpha=1.5, kernel_gamma=1e-3).fit(X, background=background)
    scores = model.transform(base(0))
    return [scores @ scores.T, model.contrastive_eigenvalues_]


def cross_moment(X: Any, positive: Any) -> Any:
    both = (X.mean(axis=0) + positive.mean(axis=0)) / 2
    product = (X - both).T @ (positive - both) / len(X)
    return (product + product.T) / 2


def pca_plus(X: Any, positive: Any) -> list[Any]:
    values, span = leading(cross_moment(X, positive))
    return [span, values]


def pca_plus_plus(X: Any, positive: Any) -> list[Any]:
    values, span = leading(cross_moment(X, positive), covariance(np.vstack([X, positive])))
    return [span, values]


def contrast_path(X: Any, background: Any) -> list[Any]:
    at = [cpca(X, background, alpha) for alpha in (0.0, 1.0, 4.0)]
    return [np.array([span for span, _ in at]), np.array([values for _, values in at])]


def _contrast_path(X: Any, background: Any) -> list[Any]:
    path = cc.contrast_path(X, background=background, alphas=[0, 1, 4], n_representatives=1)
    return [path.components.transpose(0, 2, 1) @ path.components, path.eigenvalues]


def _by_label(X: Any) -> list[Any]:
    labels = np.arange(len(base(0))) % 2
    model = cc.ContrastByLabel(cc.CPCA(alpha=1.5)).fit(X, labels).estimator_
    return [projector(model), model.contrastive_eigenvalues_]


def online(X: Any, background: Any) -> list[Any]:
    return cpca_star(X, background)[:1]


def _online(X: Any, background: Any) -> list[Any]:
    model = cc.OnlineCPCAStar(beta=BETA, learning_rate=0.03, decay_steps=100, n_passes=100)
    return [projector(model.fit(X, background=background))]


def neighbors(X: Any, positive: Any) -> list[Any]:
    distance = np.linalg.norm(X[:, None] - positive, axis=2)
    nearest = distance <= np.sort(distance, axis=1)[:, :1]
    mutual = nearest & (distance <= distance.min(axis=0))
    return [np.argwhere(mutual), distance[mutual]]


def _neighbors(X: Any, positive: Any) -> list[Any]:
    pairs = pairing.neighbor_pairs(X, positive, n_neighbors=1)
    return [np.column_stack([pairs.rows, pairs.positive_rows]), pairs.distances]


LABELS_OF_ROWS = np.repeat(["a", "b", "c"], 8)


def basis(X: Any) -> list[Any]:
    rows = np.vstack([centred(X[group == LABELS_OF_ROWS]) for group in "abc"])
    _, span = leading(rows.T @ rows)
    return [rows @ span @ rows.T]


def _basis(X: Any) -> list[Any]:
    scores = pairing.pairing_basis(X, LABELS_OF_ROWS, n_components=K)
    return [scores @ scores.T]


def clusters(X: Any, positive: Any) -> list[Any]:
    means = [np.array([v[g == LABELS_OF_ROWS].mean(axis=0) for g in "abc"]) for v in (X, positive)]
    a, b = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in means)
    return [np.array(scipy.optimize.linear_sum_assignment(-a @ b.T)[1])]


def _clusters(X: Any, positive: Any) -> list[Any]:
    matched = pairing.match_clusters(X, positive, LABELS_OF_ROWS, LABELS_OF_ROWS)
    return [np.array(["abc".index(second) for _, second in matched])]


def scaled(X: Any) -> list[Any]:
    sd = X.std(axis=0)
    return [np.minimum(X, X.mean(axis=0) + sd) / sd, 1 / sd]


def _scaled(X: Any) -> list[Any]:
    found = pairing.scaled_features(X, clip=1.0)
    matrix = found.matrix
    return [matrix.toarray() if hasattr(matrix, "toarray") else matrix, found.scale]


def moments(X: Any) -> list[Any]:
    return [X.mean(axis=0), covariance(X)]


def _moments(X: Any) -> list[Any]:
    found = cc.SecondMoments.from_data(X)
    return [found.mean, found.covariance]


def _chunks(X: Any) -> list[Any]:
    found = cc.SecondMoments.from_chunks([X])
    return [found.mean, found.covariance]


def pair_moments(X: Any, positive: Any) -> list[Any]:
    parts = ((X + positive) / 2, (X - positive) / 2, X)
    return [each for part in parts for each in moments(part)]


def _pair_moments(X: Any, positive: Any) -> list[Any]:
    m = cc.moments.PairMoments.from_data(X, positive)
    return [
        part for each in (m.average, m.difference, m.first) for part in (each.mean, each.covariance)
    ]


def remover(X: Any, background: Any) -> list[Any]:
    noise = covariance(background)
    noise = noise + 0.03 * np.trace(noise) / len(noise) * np.eye(len(noise))
    values, vectors = np.linalg.eigh(covariance(X) - covariance(background))
    shift = X.mean(axis=0) - background.mean(axis=0)
    signal = (vectors * np.maximum(values, 0)) @ vectors.T + np.outer(shift, shift)
    ratios = scipy.linalg.eigh(signal, noise, eigvals_only=True)[::-1]
    return [ratios[:K]]


def _remover(X: Any, background: Any) -> list[Any]:
    model = images.StructuredBackgroundRemover().fit(X, background=background)
    return [model.signal_variances_[:K]]


def angles(first: Any, second: Any) -> list[Any]:
    a, b = (np.linalg.qr(rows[:3].T)[0] for rows in (first, second))
    return [np.arccos(np.clip(np.linalg.svd(a.T @ b)[1][::-1], -1, 1))]


def permuted(X: Any, background: Any) -> list[Any]:
    """The statistic at a given alpha, and all of the rest as of plain arrays."""
    return [cpca(X, background)[1][:1], *_permuted(X, background)[1:]]


def _permuted(X: Any, background: Any) -> list[Any]:
    estimator = cc.CPCA(1, alpha=1.5)
    found = cc.permutation_test(
        estimator, X, background=background, n_permutations=19, random_state=0
    )
    return [found.statistics, found.null_statistics, found.p_values, found.components]


def ratio(X: Any, background: Any) -> list[Any]:
    """The baseline, and the rest as of plain arrays."""
    baseline = np.trace(covariance(X)) / np.trace(covariance(background))
    return [baseline, _ratio(X, background)[1]]


def _ratio(X: Any, background: Any) -> list[Any]:
    found = cc.cross_fitted_ratio(X, background=background, n_splits=3, random_state=0)
    return [found.baseline, found.ratios]


def _resampled(X: Any, background: Any) -> list[Any]:
    estimator = cc.CPCA(alpha=1.5)
    found = cc.bootstrap_stability(
        estimator, X, background=background, n_resamples=5, random_state=0
    )
    return [found.matched, found.retained, np.cos(found.angles) ** 2]


with warnings.catch_warnings(action="ignore"):  # so few rows show no signal
    CPCA = cc.CPCA(alpha=1.5).fit(X, background=Y)
    PCPCA = cc.PCPCA(gamma=0.1).fit(X, background=Y)
    KERNEL = cc.KernelCPCA(alpha=1.5, kernel="linear").fit(X, background=Y)
    PLUS = cc.PCAPlusPlus(truncation=None, weighted=False).fit(X, positive=Y)
    REMOVER = images.StructuredBackgroundRemover().fit(X, background=Y)


def _numbers(result: Any) -> list[Any]:
    """An array from a dask array or a tensor."""
    result = result.detach() if hasattr(result, "detach") else result
    return [np.asarray(result)]


def _of_rows(
    name: str, method: Any, expected: Callable[[Any], Any], but: tuple[str, ...] = ()
) -> Subject:
    return Subject(name, lambda X: _numbers(method(X)), lambda X: [expected(X)], ("X",), but)


def log_density(rows: Any) -> Any:
    weights = PCPCA.loadings_
    model = weights @ weights.T + PCPCA.noise_variance_ * np.eye(rows.shape[1])
    from_mean = rows - PCPCA.mean_
    distance = (from_mean * np.linalg.solve(model, from_mean.T).T).sum(axis=1)
    return -0.5 * (distance + np.linalg.slogdet(2 * np.pi * model)[1])


PAIR = ("X", "positive")
SUBJECTS = [
    *(
        Subject(
            f"CPCA by {solver}",
            fitted(lambda s=solver: cc.CPCA(alpha=1.5, solver=s), "contrastive_eigenvalues_"),
            cpca,
        )
        for solver in ("eigh", "gram", "lanczos")
    ),
    Subject(
        "CPCAStar", fitted(lambda: cc.CPCAStar(beta=BETA), "generalized_eigenvalues_"), cpca_star
    ),
    Subject("OnlineCPCAStar", _online, online, tolerance=5e-3),
    Subject("PCPCA", fitted(lambda: cc.PCPCA(gamma=0.1), "noise_variance_"), pcpca, but=("NaN",)),
    Subject(
        "CLVM",
        fitted(lambda: cc.CLVM(n_shared=0, tol=1e-11), "noise_variance_"),
        clvm,
        but=("NaN",),
    ),
    Subject("KernelCPCA", _kernel_cpca, kernel_cpca),
    Subject("PCAPlus", fitted(cc.PCAPlus, "alignment_"), pca_plus, PAIR),
    Subject(
        "PCAPlusPlus",
        fitted(lambda: cc.PCAPlusPlus(truncation=None), "generalized_eigenvalues_"),
        pca_plus_plus,
        PAIR,
    ),
    Subject("contrast_path", _contrast_path, contrast_path),
    Subject(
        "ContrastByLabel",
        _by_label,
        lambda X: cpca(X[1::2], X[::2]),
        ("X",),
        but=("features too many",),
    ),
    Subject("SecondMoments.from_data", _moments, moments, ("X",), but=("features too many",)),
    Subject("SecondMoments.from_chunks", _chunks, moments, ("X",), but=("features too many",)),
    Subject("PairMoments.from_data", _pair_moments, pair_moments, PAIR),
    Subject("neighbor_pairs", _neighbors, neighbors, PAIR, but=("no rows",)),
    Subject("pairing_basis", _basis, basis, ("X",), but=("features too many",)),
    Subject("match_clusters", _clusters, clusters, PAIR),
    Subject("scaled_features", _scaled, scaled, ("X",), but=("features too many",)),
    Subject("StructuredBackgroundRemover", _remover, remover),
    Subject("permutation_test", _permuted, permuted),
    Subject("cross_fitted_ratio", _ratio, ratio),
    Subject("bootstrap_stability", _resampled, _resampled),
    _of_rows("CPCA.transform", CPCA.transform, lambda X: (X - CPCA.mean_) @ CPCA.components_.T),
    _of_rows(
        "CPCA.denoise", CPCA.denoise, lambda X: CPCA.mean_ + (X - CPCA.mean_) @ projector(CPCA)
    ),
    _of_rows(
        "CPCA.remove_components",
        CPCA.remove_components,
        lambda X: X - (X - CPCA.mean_) @ projector(CPCA),
    ),
    _of_rows(
        "LinearMap.transform",
        CPCA.linear_map_.transform,
        CPCA.transform,
        but=("no rows",),
    ),
    _of_rows("PCPCA.score_samples", PCPCA.score_samples, log_density, but=("NaN",)),
    _of_rows("KernelCPCA.transform", KERNEL.transform, CPCA.transform),
    _of_rows(
        "PCAPlusPlus.transform", PLUS.transform, lambda X: (X - PLUS.mean_) @ PLUS.directions_.T
    ),
    _of_rows("StructuredBackgroundRemover.transform", REMOVER.transform, REMOVER.transform),
]
DATA = {"X": X, "background": Y, "positive": Y}
