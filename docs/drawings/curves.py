"""Pictures of curves, loadings and histograms."""

from __future__ import annotations

import warnings

import numpy as np

from contrast_core import (
    CPCA,
    ContrastWarning,
    CPCAStar,
    OnlineCPCAStar,
    SparseCPCA,
    permutation_test,
)
from contrast_core.datasets import load_mouse_protein, make_sparse_groups
from contrast_core.linalg import subspace_error

from .parts import CONTROL, GREY, GROUPS, METHODS, OTHER, TREATED, bare, legend_below, panels


def reference_cells() -> None:
    """Draw the first component with and without the reference cells in the foreground."""
    rng = np.random.default_rng(0)
    n = 300
    X = rng.normal(size=(2 * n, 20))
    treated = np.arange(2 * n) >= n
    responds = treated & (rng.random(2 * n) < 0.5)
    X[:, 0] += 4 * treated  # the treatment shifts every treated cell
    X[:, 1] += 4 * responds  # half of the treated cells also respond
    X[:, 2] += 6 * rng.normal(size=2 * n)  # cells differ in this feature in both conditions
    both, without = (
        CPCA(1).fit(rows, background=X[~treated]).transform(X)[:, 0] for rows in (X, X[treated])
    )
    groups = (
        ("control", CONTROL, ~treated),
        ("treated, not responding", OTHER, treated & ~responds),
        ("treated, responding", TREATED, responds),
    )
    axes = panels(2, 3.0)
    for ax, scores, title in (
        (axes[0], both, "with the reference cells:\ntreated against control"),
        (axes[1], without, "without them:\nwhich treated cells respond"),
    ):
        bins = np.linspace(scores.min(), scores.max(), 40)
        for name, color, rows in groups:
            ax.hist(scores[rows], bins, color=color, alpha=0.7, label=name)
        bare(ax, title, "component 1", "cells")
    legend_below(axes[0])


def components() -> None:
    """Draw the statistics of five components, and their range for relabelled data."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 300, 15))
    shared = rng.normal(size=(2, 300, 1))
    X[:, 2:4] += 4 * shared[0]
    Y[:, 2:4] += 4 * shared[1]
    X[:, 0] *= 2.5
    X[:, 1] *= 1.8
    test = permutation_test(CPCA(5), X, background=Y, n_permutations=199, random_state=0)
    ax = panels(1, 3.2)
    at = np.arange(1, 6)
    band = np.quantile(test.null_statistics, (0.05, 0.95), axis=0)
    ax.fill_between(at, *band, color=GREY, label="90% of relabellings")
    ax.plot(at, test.statistics, "o-", color=METHODS["cPCA"], label="observed")
    ax.set(
        xlabel="component",
        ylabel="statistic",
        xticks=at,
        xticklabels=[f"{i}\np = {p:.2g}" for i, p in zip(at, test.p_values, strict=True)],
        xlim=(0.7, 5.3),
        title="Two of five components stand out from relabelled data",
    )
    legend_below(ax)


def how_many() -> None:
    """Draw the angle between a component and the true direction for several numbers of rows."""
    rng = np.random.default_rng(0)
    n_features, rows = 100, np.array([50, 100, 200, 400, 800, 1600, 3200])
    truth = np.eye(n_features)[:1]
    shared = np.linalg.qr(rng.normal(size=(n_features, 5)))[0].T
    shared[:, 0] = 0
    ax = panels(1, 3.4)
    for color, size in zip(GROUPS, (1.0, 2.0, 4.0), strict=False):
        errors = np.empty((5, len(rows)))
        for draw in range(5):
            for i, n in enumerate(rows):
                X, Y = (
                    rng.normal(size=(n, n_features)) + 5 * rng.normal(size=(n, 5)) @ shared
                    for _ in range(2)
                )
                X[:, 0] += size * rng.normal(size=n)
                found = CPCA(1).fit(X, background=Y).components_
                errors[draw, i] = subspace_error(found, truth)
        ax.plot(rows, errors.mean(0), "o-", color=color, label=f"{size:g}")
    ax.set(
        xscale="log",
        ylim=(0, 1.02),
        xlabel="rows in each dataset",
        ylabel="sine of the angle\nto the true direction",
        title="A weak signal needs more rows to be found (100 features)",
    )
    legend_below(ax, "standard deviation of the signal, in units of the noise")


def sparse() -> None:
    """Draw the loadings of dense and of sparse components."""
    data = make_sparse_groups()
    dense = CPCA(2).fit(data.foreground, background=data.background)
    few = SparseCPCA(2, n_features_to_select=15).fit(data.foreground, background=data.background)
    axes = panels(2, 2.8)
    titles = "cPCA: every feature has a loading", "SparseCPCA: only features that matter"
    for ax, model, title in zip(axes, (dense, few), titles, strict=True):
        ax.axvspan(0, 30.5, color=GREY, alpha=0.5, lw=0, label="features that differ")
        for i, loadings in enumerate(model.components_):
            at = np.arange(1, len(loadings) + 1)
            ax.plot(at, loadings, ".", ms=4, color=GROUPS[2 + i], label=f"component {i + 1}")
        ax.set(title=title, xlabel="feature", xlim=(0, 120))
    axes[0].set_ylabel("loading")
    legend_below(axes[0])


def online() -> None:
    """Draw how components from a stream approach the components that are fitted to all rows."""
    data = load_mouse_protein()
    X = np.vstack([data.foreground, data.background])
    inside = np.repeat([True, False], [len(data.foreground), len(data.background)])
    target = CPCAStar(2, beta=0.5).fit(data.foreground, background=data.background).components_
    rng = np.random.default_rng(0)
    model = OnlineCPCAStar(2, beta=0.5, random_state=0)
    alignment = []
    seen = np.unique(np.geomspace(20, 12_000, 40).astype(int))
    order = np.concatenate([rng.permutation(len(X)) for _ in range(30)])
    for start, stop in zip([0, *seen[:-1]], seen, strict=True):
        model.partial_fit(X[order[start:stop]], inside[order[start:stop]])
        alignment.append(((target @ model.components_.T) ** 2).sum() / 2)
    ax = panels(1, 3.0)
    ax.plot(seen, alignment, ".-", color=METHODS["cPCA"])
    ax.set(
        xlabel="rows seen",
        ylabel="alignment",
        ylim=(0, 1.02),
        xscale="log",
        title="Components from a stream approach the components of all rows",
    )


def enough() -> None:
    """Draw how well one to six components predict the genotype of left-out mice."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import GroupKFold

    data = load_mouse_protein()
    sizes = [1, 2, 3, 4, 5, 6]
    ax = panels(1, 3.4)
    for name, strength in (("PCA", 0.0), ("cPCA", "auto")):
        right = []
        for k in sizes:
            model = CPCA(k, alpha=strength)
            hits = []
            for train, test in GroupKFold(9).split(data.foreground, groups=data.units):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ContrastWarning)
                    model.fit(data.foreground[train], background=data.background)
                rule = LinearDiscriminantAnalysis()
                rule.fit(model.transform(data.foreground[train]), data.labels[train])
                scores = model.transform(data.foreground[test])
                hits.append(rule.predict(scores) == data.labels[test])
            right.append(np.concatenate(hits).mean())
        ax.plot(sizes, right, "o-", color=METHODS[name], label=name)
    ax.axhline(0.5, color=GREY, ls="--", label="guessing")
    ax.set(
        xlabel="components",
        ylabel="classified correctly",
        ylim=(0, 1.03),
        xticks=sizes,
        title="From three components on, PCA is enough",
    )
    legend_below(ax)


def responses() -> None:
    """Draw the ratios that `contrasts` gives two cell types, and which monocytes responded."""
    import anndata
    import pandas as pd

    import scanpy_ext as cx

    rng = np.random.default_rng(0)
    cell_type = np.repeat(["T cells", "monocytes"], [900, 300])
    treated, donor = rng.random(1200) < 0.5, rng.integers(5, size=1200)
    responded = treated & (cell_type == "monocytes") & (rng.random(1200) < 0.6)
    rates = rng.normal(0.5, 0.7, 50) + 0.2 * rng.normal(size=(5, 50))[donor]
    rates[:, :5] += 1.2 * responded[:, None]
    adata = anndata.AnnData(np.log1p(rng.poisson(np.exp(rates))).astype("float32"))
    adata.obs["condition"] = np.where(treated, "drug", "vehicle")
    adata.obs["cell_type"], adata.obs["donor"] = cell_type, pd.Categorical(donor)
    design = {"groupby": "condition", "reference": "vehicle"}
    cx.tl.contrasts(adata, **design, by="cell_type", donor="donor")
    table = cx.get.contrasts(adata).loc[["monocytes", "T cells"]]
    monocytes = adata[adata.obs["cell_type"] == "monocytes"].copy()
    cx.tl.response(monocytes, **design, within="donor")
    probability = monocytes.obs["response"].dropna()
    truth = responded[cell_type == "monocytes"][monocytes.obs["response"].notna()]

    left, right = panels(2, 2.8)
    errors = abs(table[["ratio_low", "ratio_high"]].to_numpy().T - table["ratio"].to_numpy())
    left.errorbar(table["ratio"], [1, 0], xerr=errors, fmt="o", color=METHODS["cPCA"], capsize=4)
    left.axvline(1, color=GREY)
    left.set(title="which cell types respond", xlabel="ratio, with 95% interval")
    left.set(yticks=[1, 0], yticklabels=table.index, ylim=(-0.7, 1.7))
    bins = np.linspace(0, 1, 26)
    for name, color, rows in (
        ("treated, not responding", OTHER, ~truth),
        ("treated, responding", TREATED, truth),
    ):
        right.hist(probability[rows], bins, color=color, alpha=0.7, label=name)
    right.set(title="which monocytes responded", xlabel="probability of a response")
    right.set(ylabel="cells")
    legend_below(right)
