"""Draw the pictures of the documentation, from bundled and simulated data, into docs/pictures/.

    python docs/draw.py              # all pictures but cvae, in half a minute
    python docs/draw.py front alpha  # only these pictures

Each function draws the picture with its name. The pictures `front` and `cvae` are kept in the
repository. `cvae` trains networks and needs torch.
"""

from __future__ import annotations

import re
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
GROUPS = ["#009e73", "#cc79a7", "#e69f00", "#332288"]  # for groups other than conditions
METHODS = {"PCA": "0.5", "cPCA": "#332288"}
GREY = "0.8"
MICE = {"Control": ("control", CONTROL), "Ts65Dn": ("Down syndrome model", TREATED)}


def drawing(draw: Callable[[], Any]) -> Callable[[], Any]:
    """Add a function to the drawings that `main` knows by name."""
    DRAWINGS[draw.__name__] = draw
    return draw


def panels(n: int, height: float = 2.6) -> Any:
    """Return the axes of n panels in a row as wide as the page."""
    return plt.subplots(1, n, figsize=(PAGE, height))[1]


def bare(ax: Any, title: str, xlabel: str = "", ylabel: str = "") -> None:
    """Set title and labels and remove the ticks, because their values have no meaning."""
    ax.set(xticks=[], yticks=[], title=title, xlabel=xlabel, ylabel=ylabel)
    for side in ax.spines.values():
        side.set_visible(True)
        side.set_color(GREY)


def points(ax: Any, scores: np.ndarray, labels: np.ndarray, groups: dict[Any, Any]) -> None:
    """Draw rows in the colour of their group; `groups` maps a label to a name and a colour."""
    for label, (name, color) in groups.items():
        ax.scatter(*scores[labels == label].T, s=7, color=color, label=name, linewidths=0)


def legend_below(ax: Any, title: str | None = None) -> None:
    """Place the legend of a panel below the figure, where it covers no points."""
    handles, names = ax.get_legend_handles_labels()
    ax.figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=len(names),
        markerscale=2.5 if ax.collections and not ax.lines else 1,
        title=title,
    )


@drawing
def front() -> None:
    """Draw PCA beside contrastive PCA of mice, and an image beside its denoised form."""
    mice = load_mouse_protein()
    cpca = CPCA(n_components=2).fit(mice.foreground, background=mice.background)
    field = cells_behind_fringes((448, 448))
    result = suppress_background(field.image, field.empty)
    axes = panels(4, 2.6)
    for ax, model, name in zip(
        axes, (cpca.at(0), cpca), ("PCA:\nmice mixed", "contrastive PCA:\nmice apart"), strict=False
    ):
        points(ax, model.transform(mice.foreground), mice.labels, MICE)
        bare(ax, name)
    legend_below(axes[0])
    names = "image:\ncells and fringes", "denoised:\ncells only"
    for ax, picture, name in zip(axes[2:], (field.image, result.denoised), names, strict=True):
        ax.imshow(picture, cmap="gray")
        bare(ax, name)


@drawing
def mice() -> None:
    """Draw the mice in two components of PCA and of cPCA."""
    data = load_mouse_protein()
    cpca = CPCA(n_components=2).fit(data.foreground, background=data.background)
    axes = panels(2, 3.6)
    titles = "PCA: the genotypes are mixed", f"cPCA, alpha = {cpca.alpha_:.2g}: they lie apart"
    for ax, model, title in zip(axes, (cpca.at(0), cpca), titles, strict=True):
        points(ax, model.transform(data.foreground), data.labels, MICE)
        bare(ax, title, "component 1", "component 2")
    legend_below(axes[0])


@drawing
def alpha() -> None:
    """Draw four groups at four strengths, each of which shows another split."""
    data = make_four_groups()
    path = contrast_path(data.foreground, background=data.background)
    names = {i: (f"group {i + 1}", GROUPS[i]) for i in range(4)}
    axes = panels(4, 2.4)
    titles = "0 (PCA):\nonly noise", "1:\none split", "3:\nboth splits", "100:\nthe other split"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)  # the largest alpha leaves little variance
        for ax, strength, title in zip(axes, (0, 1, 3, 100), titles, strict=True):
            points(ax, path.at(strength).transform(data.foreground), data.labels, names)
            bare(ax, f"alpha = {title}")
    legend_below(axes[0])


@drawing
def background() -> None:
    """Show that a cell type that the background lacks looks like an effect."""
    rng = np.random.default_rng(0)
    kinds, n = 3, 900
    centres = np.zeros((kinds, 20))
    centres[[0, 1, 2], [0, 1, 2]] = 6
    kind = rng.integers(0, kinds, n)
    treated = np.arange(n) >= n // 2
    X = centres[kind] + rng.normal(size=(n, 20))
    X[:, 5] += 3 * treated  # the effect: one feature changes equally in all cell types
    groups = {
        0: ("control", CONTROL),
        1: ("treated", TREATED),
        2: ("treated, of the missing type", OTHER),
    }
    group = treated * (1 + (kind == 0))
    axes = panels(2, 3.4)
    for ax, keep, title in zip(
        axes,
        (np.ones(n, dtype=bool), kind != 0),
        (
            "background has all cell types:\ntreatment leads",
            "background lacks one type:\nthat type leads",
        ),
        strict=True,
    ):
        model = CPCA(1).fit(X, background=X[~treated & keep])
        scores = np.column_stack([model.transform(X)[:, 0], rng.normal(size=n)])
        points(ax, scores, group, groups)
        bare(ax, title, "component 1", "random height")
    legend_below(axes[0])


@drawing
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


@drawing
def components() -> None:
    """Draw statistics of components, where real ones exceed those of relabelled data."""
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
        title="Two of five components stand out of relabelled data",
    )
    legend_below(ax)


@drawing
def how_many() -> None:
    """Draw the angle between a component and the true direction over the number of rows."""
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
        title="More rows find the direction; a weak one needs many (100 features)",
    )
    legend_below(ax, "standard deviation of the signal, in units of the noise")


@drawing
def cells() -> None:
    """Draw tumour cells with and without a drug in two components of PCA and of cPCA."""
    import anndata
    import scanpy as sc

    import scanpy_ext as cx

    adata = anndata.read_h5ad(HERE.parent / "tutorials/data/glioblastoma_panobinostat.h5ad")
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    # In random order, no condition covers the other.
    adata = adata[np.random.default_rng(0).permutation(adata.n_obs)].copy()
    treated = (adata.obs["condition"] == "panobinostat").to_numpy()
    groups = {False: ("control", CONTROL), True: ("drug (panobinostat)", TREATED)}
    axes = panels(2, 3.6)
    for ax, title, form in zip(
        axes, ("PCA: the drug is mixed in", "cPCA: the drug leads"), ({"alpha": 0}, {}), strict=True
    ):
        cx.tl.cpca(adata, groupby="condition", reference="ctrl", within="patient", **form)
        points(ax, adata.obsm["X_cpca"], treated, groups)
        bare(ax, f"{title}", "component 1", "component 2")
    legend_below(axes[0], "tumour cells, centred within patients")


@drawing
def frames() -> None:
    """Draw digits on photographs: noisy, denoised by three methods, and clean."""
    digits = digits_on_photos(2000)
    filtered = FrameBackgroundRemover(digits.frame_shape).fit(
        digits.foreground, background=digits.background
    )
    model = CPCA(10, alpha="denoise").fit(digits.foreground, background=digits.background)
    rows = {
        "foreground": digits.foreground,
        "PCA": model.at(0).denoise(digits.foreground, offset="difference"),
        "cPCA": model.denoise(digits.foreground, offset="difference"),
        "frame filter": filtered.transform(digits.foreground),
        "truth": digits.clean,
    }
    _figure, axes = plt.subplots(5, 8, figsize=(PAGE, 4.6))
    for row, (name, frames_) in zip(axes, rows.items(), strict=True):
        for ax, frame in zip(row, frames_[:8], strict=False):
            ax.imshow(frame.reshape(28, 28), cmap="gray")
            bare(ax, "")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")


@drawing
def fringes() -> None:
    """Draw an image with fringes, the denoised image, the removed background and the truth."""
    image, clean, empty = cells_behind_fringes((448, 448))
    result = suppress_background(image, empty)
    shown = {
        "image, empty box": image,
        "denoised": result.denoised,
        "removed": result.removed,
        "truth": clean,
    }
    axes = panels(4, 2.2)
    for ax, (name, picture) in zip(axes, shown.items(), strict=True):
        ax.imshow(picture, cmap="gray")
        bare(ax, name)
    axes[0].contour(empty, levels=[0.5], colors=TREATED)


@drawing
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


@drawing
def kernel() -> None:
    """Draw two rings, which kernel cPCA separates but no linear direction does."""
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
    groups = {0: ("inner ring", GROUPS[0]), 1: ("outer ring", GROUPS[1])}
    titles = "cPCA: no straight direction\nseparates the rings", "KernelCPCA:\nthe rings lie apart"
    axes = panels(2, 3.6)
    models = CPCA(2), KernelCPCA(2, kernel="rbf", kernel_gamma=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)
        for ax, model, title in zip(axes, models, titles, strict=True):
            points(ax, model.fit(X, background=Y).transform(X), label, groups)
            bare(ax, title, "component 1", "component 2")
    legend_below(axes[0])


@drawing
def missing() -> None:
    """Draw the mice in two components with none, 30% and 60% of the values removed."""
    raw = load_mouse_protein(raw=True)
    rng = np.random.default_rng(0)
    axes = panels(3, 2.8)
    sets = [
        (rows - np.nanmean(rows, axis=0)) / np.nanstd(rows, axis=0)
        for rows in (raw.foreground, raw.background)
    ]
    for ax, share in zip(axes, (0, 0.3, 0.6), strict=True):
        X, Y = (np.where(rng.random(rows.shape) < share, np.nan, rows) for rows in sets)
        model = PCPCA(2).fit(X, background=Y)
        points(ax, model.transform(X), raw.labels, MICE)
        bare(ax, f"{share:.0%} of the values removed")
    legend_below(axes[0])


@drawing
def latent() -> None:
    """Draw the mice in the shared and in the salient latent variables of CLVM."""
    data = load_mouse_protein()
    model = CLVM(n_shared=2, n_salient=2).fit(data.foreground, background=data.background)
    axes = panels(2, 3.6)
    points(axes[0], model.transform_shared(data.foreground), data.labels, MICE)
    points(axes[1], model.transform(data.foreground), data.labels, MICE)
    bare(axes[0], "shared: the genotypes are mixed", "latent variable 1", "latent variable 2")
    bare(axes[1], "salient: they lie apart", "latent variable 1", "latent variable 2")
    legend_below(axes[0])


@drawing
def pairs() -> None:
    """Draw two views of the same objects in two components of PCA and of PCA++."""
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
    names = {i: (f"group {i + 1}", GROUPS[i]) for i in range(3)}
    titles = "PCA: each view's own background", "PCA++: what the two views share"
    axes = panels(2, 3.6)
    for ax, scores, title in zip(axes, (pca, model.transform(X)), titles, strict=True):
        points(ax, scores, group, names)
        bare(ax, title, "component 1", "component 2")
    legend_below(axes[0])


@drawing
def online() -> None:
    """Draw how the components of a stream approach the components of all rows at once."""
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
        title="A stream approaches the components of all rows at once",
    )


@drawing
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


@drawing
def track_record() -> None:
    """Draw the table of the track record: accuracy over the number of components."""
    page = (HERE / "track_record.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.split("<!-- TABLE -->")[1].splitlines()]
    sizes = [int(cell.split("=")[1]) for cell in rows[1][2:]]
    data, datasets = "", {}
    for cells in rows[3:-1]:
        if cells[0].startswith("**"):
            data = cells.pop(0)
            datasets[data] = {}
        found = zip(sizes, cells[1:], strict=True)
        figures = [(k, *map(float, cell.split(" ± "))) for k, cell in found if "±" in cell]
        datasets[data][cells[0]] = np.transpose(figures)
    within = {"linestyle": "--", "markerfacecolor": "white"}
    styles: dict[str, dict[str, Any]] = {
        "PCA": {"color": METHODS["PCA"], "marker": "o"},
        "PCA within": {"color": METHODS["PCA"], "marker": "o", **within},
        "cPCA": {"color": METHODS["cPCA"], "marker": "s"},
        "cPCA*": {"color": GROUPS[2], "marker": "^"},
        "cPCA* within": {"color": GROUPS[2], "marker": "^", **within},
        "whitening 0.1": {"color": GROUPS[0], "marker": "v"},
        "CLVM": {"color": GROUPS[1], "marker": "D"},
        "cPCA, best alpha": {"color": METHODS["cPCA"], "linestyle": ":"},
        "all features, with labels": {"color": "black", "linestyle": ":"},
    }
    figure, axes = plt.subplots(
        -(-len(datasets) // 2), 2, figsize=(PAGE, 19), sharex=True, sharey=True
    )
    for ax, (data, methods) in zip(axes.flat, datasets.items(), strict=False):
        name, question, n_labels = re.fullmatch(
            r"\*\*(.+)\*\*: (.+), (\d+) labels, .*", data
        ).groups()
        for method, style in styles.items():
            if method not in methods:
                continue
            k, mean, half = methods[method]
            if method == "all features, with labels":  # one value, drawn as a horizontal line
                k, mean = sizes, np.repeat(mean, len(sizes))
            ax.plot(k, mean, label=method, markersize=4, linewidth=1.4, **style)
            if method in ("PCA", "cPCA*"):
                ax.fill_between(k, mean - half, mean + half, color=style["color"], alpha=0.15, lw=0)
        ax.axhline(1 / int(n_labels), color=GREY, lw=1, label="guessing")
        ax.set(xscale="log", ylim=(0, 1.03), title=f"{name}:\n{question}")
        ax.set_xticks(sizes, sizes)
        ax.minorticks_off()
    for ax in axes.flat[len(datasets) :]:
        ax.set_axis_off()
    # The last panel of the other column needs tick labels, too.
    axes.flat[len(datasets) - 2].tick_params(labelbottom=True)
    figure.supxlabel("components")
    figure.supylabel("classified correctly")
    every: dict[str, Any] = {}
    for ax in axes.flat:
        handles, names = ax.get_legend_handles_labels()
        every |= dict(zip(names, handles, strict=True))
    figure.legend(every.values(), every, loc="outside upper center", ncols=3)


@drawing
def cvae() -> None:
    """Draw frames before and after denoising, sampled frames, and left-out digits in 2D."""
    from contrast_core import CVAE

    data = digits_on_photos(5000)
    X, new = data.foreground[:4500], data.foreground[4500:]
    model = CVAE(max_iter=20, random_state=0).fit(X, background=data.background)
    shown = {
        "foreground": new[:6],
        "denoised": model.denoise(new[:6]),
        "new foreground": model.sample_foreground(6, random_state=3),
        "new background": model.sample_background(6, random_state=3),
    }
    montage, *others = panels(3, 2.9)
    rows = [np.hstack([image.reshape(28, 28) for image in images]) for images in shown.values()]
    bright = [np.clip((row - row.min()) / np.quantile(row - row.min(), 0.98), 0, 1) for row in rows]
    montage.imshow(np.concatenate(bright), cmap="gray")
    bare(montage, "frames")
    montage.set_yticks(14 + 28 * np.arange(4), shown)
    pca = CPCA(alpha=0.0).fit(X, background=data.background)
    digits = {0: ("zero", GROUPS[0]), 1: ("one", GROUPS[1])}
    titles = "PCA: mixed", "CVAE: apart"
    for ax, fitted, title in zip(others, (pca, model), titles, strict=True):
        points(ax, fitted.transform(new), data.labels[4500:], digits)
        bare(ax, title)
    legend_below(others[0])


def main() -> None:
    """Draw the pictures that the command line names, or all but `cvae`."""
    PICTURES.mkdir(exist_ok=True)
    plt.style.use(HERE / "pictures.mplstyle")
    for name in sys.argv[1:] or [name for name in DRAWINGS if name != "cvae"]:
        DRAWINGS[name]()
        target = (HERE if name in KEPT else PICTURES) / f"{name}.png"
        plt.gcf().savefig(target)
        plt.close("all")


if __name__ == "__main__":
    main()
