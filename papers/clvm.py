"""Contrastive latent variable models: the experiments of Severson, Ghosh and Ng (arXiv:1811.06094).

    python -m papers.clvm [mice] [cells] [sensors] [four_groups] [dimension] [outliers] [likelihood]

Silhouettes are computed from the salient posterior means, with each axis scaled to unit standard
deviation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.common.measures import seconds, silhouette, standardised
from benchmarks.common.report import Report, run, spread
from benchmarks.common.tasks import kang_cells
from contrast_core import CLVM, CPCA
from contrast_core.datasets import load_mouse_protein, make_four_groups, make_motion_sensors
from contrast_core.linalg import subspace_error

INFORMATIVE = np.arange(23) < 17  # channels that depend on the activities; the magnetometers do not


def generated(n: int, d: int, size: float, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of the model with five shared and two salient dimensions and noise variance 1.

    The shared loadings have the standard deviation `size`, and the salient loadings half of it.
    """
    rng = np.random.default_rng(seed)
    S, W = size * rng.normal(size=(5, d)), size * rng.normal(size=(2, d)) / 2
    X = rng.normal(size=(n, 5)) @ S + rng.normal(size=(n, 2)) @ W
    Y = rng.normal(size=(n, 5)) @ S
    return X + rng.normal(size=(n, d)), Y + rng.normal(size=(n, d))


def mice(report: Report) -> None:
    """Figs. 1 and 7: the paper's mice, from which values are removed by ten random masks."""
    raw = load_mouse_protein(raw=True)
    alphas = np.geomspace(0.1, 1000, 25)
    for share, least in ((0, 0.40), (0.25, 0.39), (0.5, 0.37), (0.75, 0.30)):
        own, other = [], []
        for seed in range(10 if share else 1):
            rng = np.random.default_rng(seed)
            X, Y = (
                standardised(np.where(rng.random(rows.shape) < share, np.nan, rows))
                for rows in (raw.foreground, raw.background)
            )
            model = CLVM(robust="entries").fit(X, background=Y)
            own.append(silhouette(model.transform(X), raw.labels))
            x, y = (standardised(np.nan_to_num(rows)) for rows in (X, Y))
            path = CPCA().fit(x, background=y).path(alphas)
            other.append([silhouette(m.transform(x), raw.labels) for m in path])
        mean, best = float(np.mean(own)), float(np.mean(other, axis=0).max())
        text = f"{mean:.3f} (cPCA, tuned: {best:.3f})"
        report.row(f"{share:.0%} removed, silhouette", "groups visible", text, mean >= least)


def cells(report: Report) -> None:
    """Figs. 2 and 8: separation of cells that were not used in the fit.

    The paper's bone marrow cells are not available. This study uses blood cells with and without
    interferon (Kang et al. 2018), and five random halvings of them. The measures are the adjusted
    Rand index of two clusters and the accuracy of 5 nearest neighbours.
    """
    data, found, kept = kang_cells(), [], []
    for seed in range(5):
        [(fitted, held_out)] = ShuffleSplit(1, test_size=0.5, random_state=seed).split(data.labels)
        X, new = data.foreground[fitted], data.foreground[held_out]
        cpca = CPCA().fit(X, background=data.background)
        model = CLVM(n_shared=30, ard=True).fit(X, background=data.background)
        kept.append(model.shared_loadings_.shape[1])
        labels = data.labels[fitted], data.labels[held_out]
        found.append([separated(each, X, new, *labels) for each in (cpca.at(0.0), cpca, model)])
    pca, cpca, clvm = (f"{rand:.2f}, {near:.3f}" for rand, near in np.mean(found, axis=0))
    report.note("PCA; cPCA", f"{pca}; {cpca}")
    means = np.mean(found, axis=0)
    report.row("Figs. 2a, 8: cLVM", "groups visible", clvm, means[2, 1] > means[0, 1])
    report.note("shared columns kept, of 30", f"{min(kept)} to {max(kept)}")


def separated(model: Any, X: Any, new: Any, labels: Any, new_labels: Any) -> tuple[float, float]:
    """Return the adjusted Rand index and the accuracy on new rows, which the fit has not seen."""
    scores, others = model.transform(X), model.transform(new)
    sd = scores.std(axis=0)
    clusters = KMeans(2, n_init=10, random_state=0).fit(scores / sd).predict(others / sd)
    neighbours = KNeighborsClassifier(5).fit(scores / sd, labels)
    accuracy = float(neighbours.score(others / sd, new_labels))
    return adjusted_rand_score(new_labels, clusters), accuracy


def sensors(report: Report) -> None:
    """Figs. 2, 9 to 11: selection of those sensor channels that distinguish two activities.

    The mHealth recordings of the paper are not available. This study uses 20 datasets of simulated
    channels of the same kinds. A dataset counts if exactly the six magnetometers are left out.
    """
    sets = [make_motion_sensors(random_state=seed) for seed in range(20)]
    for what, sparsity, least in (
        ("Figs. 2, 9: group penalty, automatic", "auto", 16),
        ("Figs. 10, 11: horseshoe", "horseshoe", 16),
    ):
        models = (
            CLVM(n_shared=5, sparsity=sparsity).fit(data.foreground, background=data.background)
            for data in sets
        )
        right = sum(bool((model.selected_ == INFORMATIVE).all()) for model in models)
        report.row(what, "left out", f"exactly the six in {right} of {len(sets)}", right >= least)


def four_groups(report: Report) -> None:
    """Fig. 4: four groups at several numbers of shared dimensions, one draw."""
    data = make_four_groups()
    for k in (0, 2, 5, 10, 15):
        model = CLVM(n_shared=k).fit(data.foreground, background=data.background)
        found = silhouette(model.transform(data.foreground), data.labels)
        report.note(f"{k} shared: silhouette", found)
    report.row("groups at some number", "visible", found, found > 0.5)


def dimension(report: Report) -> None:
    """Fig. 5: how many of twenty shared dimensions a model keeps, if the data have five."""
    kept = []
    for n, d, size in ((1000, 50, 1.0), (200, 100, 1.0), (1000, 30, 0.5)):
        for seed in range(12):
            X, Y = generated(n, d, size, seed)
            model = CLVM(n_shared=20, ard=True).fit(X, background=Y)
            kept.append(model.shared_loadings_.shape[1])
    text = f"in {kept.count(5)} of {len(kept)} sets"
    report.row("the shared dimension", "found", text, kept.count(5) == len(kept))


def outliers(report: Report) -> None:
    """Fig. 6: error that outliers cause, on ten datasets of 400 + 400 rows.

    The error is the sine of the angle to the solution without outliers. The figures are the
    smallest / median / largest error of the robust model and, after "normal noise", of the model
    with normal noise.
    """
    for tails in ("rows", "entries"):
        sines = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            S, W = 1.5 * rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
            Y = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 40))
            X = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 2)) @ W
            X += rng.normal(size=(400, 40))
            clean = CLVM().fit(X, background=Y).components_
            if tails == "rows":
                X[:20] += 15 * rng.normal(size=(20, 40))
            else:
                for rows in (X, Y):
                    bad = rng.random(rows.shape) < 0.05
                    rows[bad] += 20 * rng.normal(size=bad.sum())
            models = [CLVM(robust=robust).fit(X, background=Y) for robust in (tails, None)]
            sines.append([subspace_error(model.components_, clean) for model in models])
        robust, normal = np.transpose(sines)
        text = f"{spread(robust)}; normal noise {spread(normal)}"
        closer = robust.max() <= 0.08 and normal.min() >= 0.25
        report.row(f"outlying {tails}, sine, robust", "closer", text, closer)


def likelihood(report: Report) -> None:
    """Measure the time of a fit, and its distance from a fit with a far smaller tolerance."""
    X, Y = generated(5000, 500, 0.5)
    [(taken, model)] = seconds(lambda: CLVM(n_shared=2).fit(X, background=Y))
    report.measured("5000 + 5000 x 500, 2 shared: seconds", taken, most=1.0)
    limit = CLVM(n_shared=2, tol=1e-14, max_iter=10_000).fit(X, background=Y)
    sine = subspace_error(model.components_, limit.components_)
    report.measured("  sine of the angle to that fit", sine, most=0.01)


if __name__ == "__main__":
    run(mice, cells, sensors, four_groups, dimension, outliers, likelihood)
