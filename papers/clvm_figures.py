"""The experiments of the paper on contrastive latent variable models, as figures.

    python papers/clvm_figures.py [FOLDER]     # benchmarks/output by default

Severson, Ghosh and Ng, arXiv:1811.06094: four groups at several numbers of shared dimensions (their
Fig. 4), sets from the model with a known dimension (Fig. 5), outliers (Fig. 6), mouse proteins with
values removed (Figs. 1 and 7), cells with automatic relevance determination (Fig. 2), channels of
body-worn sensors that carry nothing, by the group penalty and by the horseshoe (Figs. 2, 9 to 11).
The sensors are `make_motion_sensors`, the cells Kang et al.'s with interferon; the recordings and
the patients of the paper are not at hand. What each must reach is in `clvm.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from clvm import scaled_silhouette, standardised
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.common.tasks import OUTPUT, kang_cells
from contrast_core import CLVM, CPCA
from contrast_core.datasets import load_mouse_protein, make_four_groups, make_motion_sensors
from contrast_core.probabilistic import _clvm_em as em
from contrast_core.probabilistic import _clvm_horseshoe as horseshoe

SENSORS = np.repeat(["accelerometer", "ECG", "gyroscope", "magnetometer"], [9, 2, 6, 6])


def scatter(axes: Any, scores: Any, labels: Any, title: str) -> None:
    for label in np.unique(labels):
        some = scores[labels == label]
        axes.scatter(some[:, 0], some[:, 1], s=6, alpha=0.6, linewidths=0, label=str(label))
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def principal(X: Any) -> Any:
    left, lengths, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return left[:, :2] * lengths[:2]


def four_groups() -> Any:
    data = make_four_groups()
    figure, axes = plt.subplots(1, 5, figsize=(12, 2.8), layout="constrained")
    for each, k in zip(axes, (0, 2, 5, 10, 15), strict=True):
        model = CLVM(n_shared=k).fit(data.foreground, background=data.background)
        scores = model.transform(data.foreground)
        found = scaled_silhouette(scores, data.labels)
        scatter(each, scores, data.labels, f"{k} shared, silhouette {found:.2f}")
    figure.suptitle("Four groups: salient latent variables")
    return figure


def known_dimension() -> Any:
    """Rows of the model with five shared dimensions; salient ones with a mean for each group."""
    rng = np.random.default_rng(0)
    n, d, labels = 300, 60, np.arange(300) % 3
    S, W = 2 * rng.normal(size=(5, d)), rng.normal(size=(2, d))
    means = 3 * np.array([[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]])
    X = rng.normal(size=(n, 5)) @ S + (rng.normal(size=(n, 2)) + means[labels]) @ W
    Y = rng.normal(size=(n, 5)) @ S + rng.normal(size=(n, d))
    X += rng.normal(size=(n, d))
    figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
    scatter(axes[0], principal(X), labels, "PCA")
    cpca = CPCA().fit(X, background=Y)
    scatter(axes[1], cpca.transform(X), labels, f"cPCA, alpha {cpca.alpha_:.3g}")
    model = CLVM(n_shared=20, ard=True).fit(X, background=Y)
    kept = model.shared_loadings_.shape[1]
    scatter(axes[2], model.transform(X), labels, f"CLVM, {kept} of 20 shared kept")
    dense = CLVM(n_shared=20).fit(X, background=Y)
    for each, name in ((dense, "without"), (model, "with")):
        lengths = (each.shared_loadings_**2).sum(axis=0)
        axes[3].semilogy(np.arange(1, len(lengths) + 1), lengths, "o-", ms=3, label=name)
    axes[3].set(xlabel="shared column", ylabel="squared length", title="relevance determination")
    axes[3].legend()
    return figure


def outliers() -> Any:
    """Twenty rows of each set replaced by draws from [-20, 20]."""
    rng = np.random.default_rng(0)
    n, d, labels = 400, 40, np.arange(400) % 2
    S, W = 1.5 * rng.normal(size=(2, d)), 0.3 * rng.normal(size=(2, d))
    X = rng.normal(size=(n, 2)) @ S + rng.normal(size=(n, d))
    X += (rng.normal(size=(n, 2)) * [0.6, 1.0] + np.outer(2 * labels - 1, [1, 0])) @ W
    Y = rng.normal(size=(n, 2)) @ S + rng.normal(size=(n, d))
    clean = CLVM().fit(X, background=Y).transform(X)
    bad = [rows.copy() for rows in (X, Y)]
    for rows in bad:
        rows[:20] = rng.uniform(-20, 20, (20, d))
    figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
    scatter(axes[0], clean[20:], labels[20:], "without outliers")
    for each, robust in zip(axes[1:], (None, "entries", "rows"), strict=True):
        model = CLVM(robust=robust).fit(bad[0], background=bad[1])
        scores = model.transform(X[20:])
        turn = np.linalg.svd(scores.T @ clean[20:])
        scatter(each, scores @ turn[0] @ turn[2], labels[20:], f"robust={robust}")
    figure.suptitle("Twenty rows of each set are outliers: the other rows")
    return figure


def missing() -> Any:
    mice = load_mouse_protein(raw=True)
    figure, axes = plt.subplots(3, 4, figsize=(11, 8), layout="constrained")
    for column, share in enumerate((0.0, 0.25, 0.5, 0.75)):
        rng = np.random.default_rng(0)
        X, Y = (
            standardised(np.where(rng.random(rows.shape) < share, np.nan, rows))
            for rows in (mice.foreground, mice.background)
        )
        x, y = (standardised(np.nan_to_num(rows)) for rows in (X, Y))
        model = CLVM(robust="entries").fit(X, background=Y)
        rows = {
            "PCA": principal(x),
            "cPCA": CPCA().fit(x, background=y).transform(x),
            "CLVM": model.transform(X),
        }
        for each, (name, scores) in zip(axes[:, column], rows.items(), strict=True):
            found = scaled_silhouette(scores, mice.labels)
            scatter(each, scores, mice.labels, f"{name}, {share:.0%} removed: {found:.2f}")
    figure.suptitle("Mouse proteins, silhouettes of control and trisomic")
    return figure


def cells() -> Any:
    """Half of the cells to fit, the other half to be told apart, with clusters found by the first.

    Means of five halvings, printed; the picture is of the first.
    """
    data, merits = kang_cells(), []
    figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
    for seed in range(5):
        halves = ShuffleSplit(1, test_size=0.5, random_state=seed).split(data.foreground)
        [(fitted, held_out)] = halves
        X, new, labels = data.foreground[fitted], data.foreground[held_out], data.labels
        cpca = CPCA().fit(X, background=data.background)
        model = CLVM(n_shared=30, ard=True).fit(X, background=data.background)
        kept = model.shared_loadings_.shape[1]
        pca = cpca.at(0.0)
        found = {"PCA": pca, f"cPCA, alpha {cpca.alpha_:.3g}": cpca, "CLVM": model}
        merits.append(
            [merit(each, X, new, labels[fitted], labels[held_out]) for each in found.values()]
        )
        if seed:
            continue
        for each, (name, method) in zip(axes, found.items(), strict=False):
            scatter(each, method.transform(new), labels[held_out], name)
        axes[2].set_title(f"CLVM, {kept} of 30 shared kept", fontsize=9)
        dense = CLVM(n_shared=30).fit(X, background=data.background)
        for method, name in ((dense, "without"), (model, "with")):
            lengths = (method.shared_loadings_**2).sum(axis=0)
            shares = lengths / lengths.sum()
            axes[3].plot(np.arange(1, len(shares) + 1), shares, "o-", ms=3, label=name)
    print("cells held out, with interferon or without: Rand index of two clusters, 5 neighbours")
    for name, (index, accuracy) in zip(
        ("PCA", "cPCA", "CLVM"), np.mean(merits, axis=0), strict=True
    ):
        print(f"  {name:5s} {index:.2f} {accuracy:.3f}")
    print(f"  shared columns kept: {kept} of 30")
    axes[3].set(xlabel="shared column", ylabel="share of variance", title="relevance determination")
    axes[3].legend()
    return figure


def merit(model: Any, X: Any, new: Any, labels: Any, new_labels: Any) -> tuple[float, float]:
    """Of cells that the fit has not seen: adjusted Rand index, accuracy of nearest neighbours."""
    scores, others = model.transform(X), model.transform(new)
    spread = scores.std(axis=0)
    scores, others = scores / spread, others / spread
    clusters = KMeans(2, n_init=10, random_state=0).fit(scores).predict(others)
    neighbours = KNeighborsClassifier(5).fit(scores, labels)
    return adjusted_rand_score(new_labels, clusters), neighbours.score(others, new_labels)


def sensors() -> Any:
    data = make_motion_sensors()
    X, Y, k = data.foreground, data.background, 5
    figure, axes = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(SENSORS))}
    for column, sparsity in enumerate((None, "auto", "horseshoe")):
        model = CLVM(n_shared=k, sparsity=sparsity).fit(X, background=Y)
        title = f"sparsity={sparsity}: {model.selected_.sum()} of 23 channels"
        scatter(axes[0, column], model.transform(X), data.labels, title)
        norms = np.linalg.norm(model.salient_loadings_, axis=1)
        axes[1, column].bar(np.arange(23), norms, color=[colours[name] for name in SENSORS])
        axes[1, column].set(xlabel="channel", ylabel="length of the loadings")
    axes[1, 0].legend(
        [plt.Rectangle((0, 0), 1, 1, color=c) for c in colours.values()], colours, fontsize=7
    )
    return figure


def scales() -> Any:
    """Posteriors of the horseshoe's scales of each channel."""
    data = make_motion_sensors()
    model = CLVM(n_shared=5).fit(data.foreground, background=data.background)
    problem = em.likelihood_problem(model.foreground_moments_, model.background_moments_, 5)
    loadings = np.hstack([model.shared_loadings_, model.salient_loadings_]) / problem.unit
    dense = em.Model(loadings, model.noise_variance_ / problem.unit**2)
    found, _ = horseshoe.posterior_scales(problem, dense, np.ones(23, dtype=bool))
    limits = np.geomspace(1e-6, 1e2, 200)
    below = np.array([found.below(limit) for limit in limits])
    figure, axes = plt.subplots(1, 1, figsize=(7, 4), layout="constrained")
    for i in range(23):
        axes.semilogx(limits, below[:, i], color="C3" if i >= 17 else "C0", lw=1)
    axes.axvline(0.01, color="0.5", ls=":")
    axes.axhline(0.5, color="0.5", ls=":")
    axes.set(xlabel="scale", ylabel="probability that a channel's is below")
    axes.set_title("The horseshoe's scales; magnetometers red", fontsize=10)
    return figure


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (four_groups, known_dimension, outliers, missing, cells, sensors, scales):
        figure = draw()
        path = folder / f"clvm_{draw.__name__}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
