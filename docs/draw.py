"""The pictures of the documentation, from bundled and simulated data, into docs/pictures/.

    python docs/draw.py              # all of them but cvae, half a minute
    python docs/draw.py front alpha  # some of them

Each function draws the picture of its name. `front` and `cvae`, which trains networks with torch,
are kept in the repository.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from contrast_core import (
    CLVM,
    CPCA,
    PCPCA,
    ContrastWarning,
    CPCAStar,
    KernelCPCA,
    OnlineCPCAStar,
    PCAPlusPlus,
    SparseCPCA,
    contrast_path,
    permutation_test,
)
from contrast_core.datasets import (
    cells_behind_fringes,
    digits_on_photos,
    load_mouse_protein,
    make_four_groups,
    make_sparse_groups,
)
from contrast_core.images import FrameBackgroundRemover, suppress_background
from contrast_core.linalg import subspace_error

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
KEPT = ("front", "cvae")
DRAWINGS: dict[str, Callable[[], Any]] = {}
PAGE = 7.2  # width of a page in inches
CONTROL, TREATED, OTHER = "#0072b2", "#d55e00", "#56b4e9"
GROUPS = ["#009e73", "#cc79a7", "#e69f00", "#332288"]  # groups that are no conditions
METHODS = {"PCA": "0.5", "cPCA": "#332288"}
GREY = "0.8"
MICE = {"Control": ("control", CONTROL), "Ts65Dn": ("Down syndrome model", TREATED)}


def drawing(draw: Callable[[], Any]) -> Callable[[], Any]:
    """Enter a function into the list of drawings."""
    DRAWINGS[draw.__name__] = draw
    return draw


def panels(n: int, height: float = 2.6, width: float = PAGE) -> Any:
    """Return the axes of n panels in a row."""
    return plt.subplots(1, n, figsize=(width, height))[1]


def bare(ax: Any, title: str, xlabel: str = "", ylabel: str = "") -> None:
    """Set title and labels and remove the ticks, whose values mean nothing here."""
    ax.set(xticks=[], yticks=[], title=title, xlabel=xlabel, ylabel=ylabel)
    for side in ax.spines.values():
        side.set_visible(True)
        side.set_color(GREY)


def points(ax: Any, scores: np.ndarray, labels: np.ndarray, groups: dict[Any, Any]) -> None:
    """Draw rows in the colour of their group; `groups` maps a label to a name and a colour."""
    for label, (name, color) in groups.items():
        ax.scatter(*scores[labels == label].T, s=7, color=color, label=name, linewidths=0)


def legend_below(ax: Any, title: str | None = None) -> None:
    """Name the colours of a panel below the figure, where no point is covered."""
    handles, names = ax.get_legend_handles_labels()
    ax.figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=len(names),
        markerscale=2.5,
        title=title,
    )


@drawing
def front() -> None:
    """What PCA shows and what a contrast shows: animals, and an image."""
    mice = load_mouse_protein()
    cpca = CPCA(n_components=2).fit(mice.foreground, background=mice.background)
    field = cells_behind_fringes((448, 448))
    result = suppress_background(field.image, field.empty)
    axes = panels(4)
    names = {"Ts65Dn": "Down syndrome", "Control": "control"}
    for ax, model, name in zip(
        axes[:2], (cpca.at(0), cpca), ("PCA", "contrastive PCA"), strict=False
    ):
        points(ax, model.transform(mice.foreground), mice.labels, names)
        bare(ax, name, "component 1", "component 2")
    axes[1].legend(fontsize=8, markerscale=2, loc="best", handletextpad=0)
    for ax, picture, name in zip(
        axes[2:],
        (field.image, result.denoised),
        ("cells behind fringes", "background removed"),
        strict=False,
    ):
        ax.imshow(picture, cmap="gray")
        bare(ax, name)


@drawing
def mice() -> None:
    """Two components of PCA and of cPCA."""
    data = load_mouse_protein()
    names = {"Ts65Dn": "Down syndrome", "Control": "control"}
    cpca = CPCA(n_components=2).fit(data.foreground, background=data.background)
    axes = panels(2)
    for ax, model in zip(axes, (cpca.at(0), cpca), strict=True):
        points(ax, model.transform(data.foreground), data.labels, names)
        bare(ax, f"alpha = {model.alpha_:.2g}" + (" (PCA)" if not model.alpha_ else ""))
    axes[1].legend(fontsize=8, markerscale=2, handletextpad=0)


@drawing
def alpha() -> None:
    """Four groups at four strengths: each shows another split."""
    data = make_four_groups()
    path = contrast_path(data.foreground, background=data.background)
    strengths = [0, 1, 3, 100]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)  # of the strongest
        models = [path.at(strength) for strength in strengths]
    axes = panels(5, 2.4)
    for ax, strength, model in zip(axes, strengths, models, strict=False):
        scores = model.transform(data.foreground)
        points(ax, scores, data.labels, {i: f"group {i}" for i in range(4)})
        bare(ax, f"alpha = {strength}" + (" (PCA)" if not strength else ""))
    ax = axes[4]
    ax.plot(path.background_variances.sum(1), path.foreground_variances.sum(1), ".-", color=GREY)
    for strength, model, color in zip(strengths, models, COLORS, strict=True):
        at = model.background_variance_.sum(), model.foreground_variance_.sum()
        ax.plot(*at, "o", color=color, label=f"{strength}")
    ax.set(
        xlabel="background variance", ylabel="foreground variance", title="the trade", xscale="log"
    )
    ax.legend(fontsize=7, title="alpha", title_fontsize=7)


@drawing
def background() -> None:
    """A cell type that the background lacks looks like an effect."""
    rng = np.random.default_rng(0)
    kinds, n = 3, 900
    centres = np.zeros((kinds, 20))
    centres[[0, 1, 2], [0, 1, 2]] = 6
    kind = rng.integers(0, kinds, n)
    treated = np.arange(n) >= n // 2
    X = centres[kind] + rng.normal(size=(n, 20))
    X[:, 5] += 3 * treated  # the effect: one feature, in all kinds alike
    axes = panels(2)
    for ax, keep, title in zip(
        axes,
        (np.ones(n, dtype=bool), kind != 0),
        ("background has all kinds", "background lacks one kind"),
        strict=False,
    ):
        model = CPCA(1).fit(X, background=X[~treated & keep])
        scores = np.column_stack([model.transform(X)[:, 0], rng.normal(size=n)])
        points(ax, scores, kind * 2 + treated, {})
        for color, label, name in (
            (GREY, ~treated, "control"),
            (COLORS[1], treated & (kind > 0), "treated"),
            (COLORS[0], treated & (kind == 0), "treated, of that kind"),
        ):
            ax.scatter(*scores[label].T, s=6, color=color, label=name, linewidths=0)
        bare(ax, title, "component 1")
    axes[0].legend(fontsize=7, markerscale=2, loc="upper left", handletextpad=0)


@drawing
def reference_cells() -> None:
    """One treatment that moves all cells and spreads some: what either setting finds."""
    rng = np.random.default_rng(0)
    n = 300
    X = rng.normal(size=(2 * n, 20))
    treated = np.arange(2 * n) >= n
    responds = treated & (rng.random(2 * n) < 0.5)
    X[:, 0] += 4 * treated  # every treated cell
    X[:, 1] += 4 * responds  # half of the treated cells
    X[:, 2] += 6 * rng.normal(size=2 * n)  # what cells differ by anyway
    control, names = X[~treated], {0: "control", 1: "treated, weak", 2: "treated, strong"}
    with_, without = (
        CPCA(1).fit(rows, background=control).transform(X)[:, 0] for rows in (X, X[treated])
    )
    axes = panels(2, 3)
    for ax, scores, title in (
        (axes[0], with_, "with the reference cells"),
        (axes[1], without, "without them"),
    ):
        bins = np.linspace(scores.min(), scores.max(), 40)
        for color, kind, name in zip(
            (GREY, COLORS[0], COLORS[1]),
            (~treated, treated & ~responds, responds),
            names.values(),
            strict=False,
        ):
            ax.hist(scores[kind], bins, color=color, alpha=0.7, label=name)
        bare(ax, title, "component 1", "cells")
    axes[0].legend(fontsize=7)


@drawing
def components() -> None:
    """Components that are real stand out of relabelled data."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 300, 15))
    shared = rng.normal(size=(2, 300, 1))
    X[:, 2:4] += 4 * shared[0]
    Y[:, 2:4] += 4 * shared[1]
    X[:, 0] *= 2.5
    X[:, 1] *= 1.8
    test = permutation_test(CPCA(5), X, background=Y, n_permutations=199, random_state=0)
    ax = panels(1, 4, 2.6)
    at = np.arange(1, 6)
    ax.fill_between(at, *np.quantile(test.null_statistics, (0.05, 0.95), axis=0), color=GREY)
    ax.plot(at, test.statistics, "o-", color=COLORS[0])
    for number, p, height in zip(at, test.p_values, test.statistics, strict=False):
        ax.annotate(
            f"p = {p:.3g}",
            (number, height),
            (0, 7),
            textcoords="offset points",
            fontsize=8,
            ha="center",
        )
    ax.set(xlabel="component", ylabel="statistic", xticks=at, xlim=(0.6, 5.4))
    ax.margins(y=0.15)
    ax.set_title("observed, and 90% of relabellings", fontsize=9)


@drawing
def how_many() -> None:
    """How far the component is from the truth, over the number of rows."""
    rng = np.random.default_rng(0)
    n_features, rows = 100, np.array([50, 100, 200, 400, 800, 1600, 3200])
    truth = np.eye(n_features)[:1]
    shared = np.linalg.qr(rng.normal(size=(n_features, 5)))[0].T
    shared[:, 0] = 0
    ax = panels(1, 4, 2.6)
    for color, size in zip(COLORS, (1.0, 2.0, 4.0), strict=False):
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
    ax.set(xscale="log", ylim=(0, 1), xlabel="rows in each set", ylabel="sine of the angle")
    ax.set_title("100 features; sd of the signal in units of the noise", fontsize=9)
    ax.legend(fontsize=8)


@drawing
def cells() -> None:
    """Tumour cells with and without a drug, in two components of PCA and of cPCA."""
    import anndata
    import scanpy as sc

    import scanpy_ext as cx

    adata = anndata.read_h5ad(HERE.parent / "tutorials/data/glioblastoma_panobinostat.h5ad")
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    adata = adata[np.random.default_rng(0).permutation(adata.n_obs)].copy()  # none on top
    treated = (adata.obs["condition"] == "panobinostat").to_numpy()
    axes = panels(2)
    for ax, name, form in zip(axes, ("PCA", "cPCA"), ({"alpha": 0}, {}), strict=True):
        cx.tl.cpca(adata, groupby="condition", reference="ctrl", within="patient", **form)
        colors = np.where(treated, COLORS[1], COLORS[0])
        ax.scatter(*adata.obsm["X_cpca"].T, s=3, c=colors, linewidths=0)
        bare(ax, f"{name} within patients", "component 1", "component 2")
    for color, name in zip(COLORS, ("control", "drug"), strict=False):
        axes[1].scatter([], [], color=color, s=12, label=name)
    axes[1].legend(fontsize=8, handletextpad=0)


@drawing
def frames() -> None:
    """Digits on photographs: noisy, by PCA, by projection, by the frame filter, clean."""
    digits = digits_on_photos(2000)
    filtered = FrameBackgroundRemover(digits.frame_shape).fit(
        digits.foreground, background=digits.background
    )
    model = CPCA(10, alpha="denoise").fit(digits.foreground, background=digits.background)
    rows = {
        "noisy": digits.foreground,
        "PCA": model.at(0).denoise(digits.foreground, offset="difference"),
        "cPCA": model.denoise(digits.foreground, offset="difference"),
        "frames": filtered.transform(digits.foreground),
        "clean": digits.clean,
    }
    _figure, axes = plt.subplots(5, 8, figsize=(6.4, 4.2), layout="constrained")
    for row, (name, frames_) in zip(axes, rows.items(), strict=True):
        for ax, frame in zip(row, frames_[:8], strict=False):
            ax.imshow(frame.reshape(28, 28), cmap="gray")
            bare(ax, "")
        row[0].set_ylabel(name)


@drawing
def fringes() -> None:
    """An image, freed of its background, and what was removed."""
    image, clean, empty = cells_behind_fringes((448, 448))
    result = suppress_background(image, empty)
    shown = {
        "image": image,
        "denoised": result.denoised,
        "removed": result.removed,
        "truth": clean,
    }
    axes = panels(4, 2.4)
    for ax, (name, picture) in zip(axes, shown.items(), strict=True):
        ax.imshow(picture, cmap="gray")
        bare(ax, name)
    axes[0].contour(empty, levels=[0.5], colors=COLORS[1])


@drawing
def sparse() -> None:
    """The loadings of dense and of sparse components."""
    data = make_sparse_groups()
    dense = CPCA(2).fit(data.foreground, background=data.background)
    few = SparseCPCA(2, n_features_to_select=15).fit(data.foreground, background=data.background)
    axes = panels(2, 3.4, 2.2)
    for ax, model, name in zip(axes, (dense, few), ("cPCA", "SparseCPCA"), strict=True):
        for color, loadings in zip(COLORS, model.components_, strict=False):
            ax.plot(np.arange(1, 501), loadings, ".", ms=3, color=color)
        ax.axvspan(0, 30.5, color=GREY, alpha=0.4, lw=0)
        ax.set(title=name, xlabel="feature", xlim=(0, 120))
    axes[0].set_ylabel("loading")


@drawing
def kernel() -> None:
    """Rings: a contrast that no straight direction shows."""
    rng = np.random.default_rng(0)
    n = 300
    label = np.repeat([0, 1], n // 2)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = np.where(label, 3, 1) + 0.15 * rng.normal(size=n)
    ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    X = np.column_stack([ring, 4 * rng.normal(size=n)])
    between = np.sqrt(5) + 0.15 * rng.normal(size=n)
    turn = rng.uniform(0, 2 * np.pi, n)
    Y = np.column_stack([between * np.cos(turn), between * np.sin(turn), 4 * rng.normal(size=n)])
    axes = panels(2)
    models = CPCA(2), KernelCPCA(2, kernel="rbf", kernel_gamma=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)
        for ax, model, name in zip(axes, models, ("cPCA", "KernelCPCA"), strict=True):
            points(ax, model.fit(X, background=Y).transform(X), label, {0: "inner", 1: "outer"})
            bare(ax, name, "component 1", "component 2")
    axes[0].legend(fontsize=8, markerscale=2, handletextpad=0)


@drawing
def missing() -> None:
    """Mice with 60% of the values removed: two components all the same."""
    raw = load_mouse_protein(raw=True)
    rng = np.random.default_rng(0)
    names = {"Ts65Dn": "Down syndrome", "Control": "control"}
    axes = panels(3)
    sets = [
        (rows - np.nanmean(rows, axis=0)) / np.nanstd(rows, axis=0)
        for rows in (raw.foreground, raw.background)
    ]
    for ax, share in zip(axes, (0, 0.3, 0.6), strict=True):
        X, Y = (np.where(rng.random(rows.shape) < share, np.nan, rows) for rows in sets)
        model = PCPCA(2).fit(X, background=Y)
        points(ax, model.transform(X), raw.labels, names)
        bare(ax, f"{share:.0%} removed")
    axes[0].legend(fontsize=8, markerscale=2, handletextpad=0)


@drawing
def latent() -> None:
    """CLVM: what both sets share, and what only the foreground has."""
    data = load_mouse_protein()
    names = {"Ts65Dn": "Down syndrome", "Control": "control"}
    model = CLVM(n_shared=2, n_salient=2).fit(data.foreground, background=data.background)
    axes = panels(2)
    points(axes[0], model.transform_shared(data.foreground), data.labels, names)
    points(axes[1], model.transform(data.foreground), data.labels, names)
    bare(axes[0], "shared")
    bare(axes[1], "salient")
    axes[0].legend(fontsize=8, markerscale=2, handletextpad=0)


@drawing
def pairs() -> None:
    """Two views of the same: PCA shows the background, PCA++ what they share."""
    rng = np.random.default_rng(0)
    n, n_features = 400, 60
    group = rng.integers(0, 3, n)
    signal = 3 * np.eye(3)[group] @ np.eye(3, n_features)

    def view() -> np.ndarray:
        own = 12 * rng.normal(size=(n, 2)) @ np.eye(2, n_features, 10)
        return signal + own + rng.normal(size=(n, n_features))

    X, positive = view(), view()
    model = PCAPlusPlus(2).fit(X, positive=positive)
    centred = X - X.mean(0)
    pca = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    axes = panels(2)
    for ax, scores, name in zip(axes, (pca, model.transform(X)), ("PCA", "PCA++"), strict=True):
        points(ax, scores, group, {0: "", 1: "", 2: ""})
        bare(ax, name, "component 1", "component 2")


@drawing
def online() -> None:
    """A stream of rows: the projection turns towards that of all rows at once."""
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
    ax = panels(1, 4, 2.4)
    ax.plot(seen, alignment, ".-", color=COLORS[0])
    ax.set(xlabel="rows seen", ylabel="alignment with the batch", ylim=(0, 1.02), xscale="log")


@drawing
def enough() -> None:
    """How well two to five components know the genotype of mice they have not seen."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import GroupKFold

    data = load_mouse_protein()
    sizes = [1, 2, 3, 4, 5, 6]
    ax = panels(1, 4, 2.6)
    for name, strength, color in (("PCA", 0.0, GREY), ("cPCA", "auto", COLORS[0])):
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
        ax.plot(sizes, right, "o-", color=color, label=name)
    ax.axhline(0.5, color=GREY, ls=":", label="guessing")
    ax.set(xlabel="components", ylabel="classified correctly", ylim=(0, 1.03), xticks=sizes)
    ax.legend()


@drawing
def cvae() -> None:
    """Frames, what a contrastive autoencoder adds and draws, and new digits in two dimensions."""
    from contrast_core import CVAE

    data = digits_on_photos(5000)
    X, new = data.foreground[:4500], data.foreground[4500:]
    model = CVAE(max_epochs=20, random_state=0).fit(X, background=data.background)
    shown = {
        "foreground": new[:6],
        "denoised": model.denoise(new[:6]),
        "foreground, drawn": model.sample_foreground(6, random_state=3),
        "background, drawn": model.sample_background(6, random_state=3),
    }
    montage, *others = panels(3, width=2.4, height=2.0)
    frames = np.concatenate(
        [np.hstack([image.reshape(28, 28) for image in images]) for images in shown.values()]
    )
    montage.imshow(frames, cmap="gray")
    bare(montage, "")
    montage.set_yticks(14 + 28 * np.arange(4), shown, fontsize=8)
    pca = CPCA(alpha=0.0).fit(X, background=data.background)
    for ax, fitted, name in zip(others, (pca, model), ("PCA", "CVAE, salient"), strict=True):
        points(ax, fitted.transform(new), data.labels[4500:], {0: "zero", 1: "one"})
        bare(ax, name)
    others[-1].legend(fontsize=8, markerscale=2, handletextpad=0)


def main() -> None:
    """Draw those that are named, or all."""
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or [name for name in DRAWINGS if name != "cvae"]:
        DRAWINGS[name]()
        target = (HERE if name in KEPT else PICTURES) / f"{name}.png"
        plt.gcf().savefig(target, dpi=110)
        plt.close("all")


if __name__ == "__main__":
    main()
