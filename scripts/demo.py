"""Show the three packages on real data: print numbers, and save pictures in demo-output/.

Run it through ``scripts/demo.sh``, which sets everything up and finds a display.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from contrast_core import ContrastWarning

if TYPE_CHECKING:
    from anndata import AnnData

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "demo-output"
CELLS = ROOT / "tutorials" / "data"


def mice() -> None:
    """Mouse proteins: two components, found without labels, show which mice have Down syndrome."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import GroupKFold

    from contrast_core import CPCA
    from contrast_core.datasets import load_mouse_protein

    data = load_mouse_protein()
    print("   rows of left-out mice classified correctly (guessing: 0.50):")
    axes = _panels(1, 2, "mice")
    for column, (name, alpha) in enumerate((("PCA", 0.0), ("cPCA", "auto"))):
        hits = []
        for train, test in GroupKFold(9).split(data.foreground, groups=data.units):
            model = CPCA(2, alpha=alpha).fit(data.foreground[train], background=data.background)
            rule = LinearDiscriminantAnalysis()
            rule.fit(model.transform(data.foreground[train]), data.labels[train])
            scores = model.transform(data.foreground[test])
            hits.extend(rule.predict(scores) == data.labels[test])
        model = CPCA(2, alpha=alpha).fit(data.foreground, background=data.background)
        print(f"   {name:22} {np.mean(hits):.2f}   (alpha = {model.alpha_:.3g})")
        ax, scores = axes[0, column], model.transform(data.foreground)
        for label, text in {"Control": "control", "Ts65Dn": "Down syndrome (Ts65Dn)"}.items():
            ax.scatter(*scores[data.labels == label].T, s=8, label=text)
        ax.set(title=f"{name}, alpha = {model.alpha_:.3g}", xlabel="component 1")
    axes[0, 0].set_ylabel("component 2")
    handles, texts = axes[0, 1].get_legend_handles_labels()
    axes[0, 1].figure.legend(handles, texts, loc="outside lower center", ncols=2)
    _save("mice")


def cells() -> None:
    """Tumour cells with and without a drug: two components of PCA and of cPCA."""
    import scanpy as sc
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    import scanpy_ext as cx

    adata = _log_counts("glioblastoma_panobinostat.h5ad")
    design = {"groupby": "condition", "reference": "ctrl", "within": "patient"}
    forms = {"PCA": {"alpha": 0}, "cPCA": {}}
    print("   cells of a left-out patient classified correctly, mean of five patients:")
    for name, form in forms.items():
        accuracies = []
        for patient in adata.obs["patient"].unique():
            is_new = adata.obs["patient"] == patient
            rest, new = adata[~is_new].copy(), adata[is_new].copy()
            cx.tl.cpca(rest, **design, **form)
            cx.tl.project(new, rest)
            rule = LinearDiscriminantAnalysis().fit(rest.obsm["X_cpca"], rest.obs["condition"])
            accuracies.append(rule.score(new.obsm["X_cpca"], new.obs["condition"]))
        print(f"   {name:22} {np.mean(accuracies):.2f}   (guessing: 0.50)")

    axes = _panels(2, 2, "cells", 4.5)
    for row, (name, form) in zip(axes, forms.items(), strict=True):
        cx.tl.cpca(adata, **design, **form, key_added=name)
        for ax, color in zip(row, ["condition", "patient"], strict=True):
            title = f"{name}: {color}"
            sc.pl.embedding(adata, name, color=color, ax=ax, title=title, size=12, show=False)
            ax.set(xlabel="component 1", ylabel="component 2" if color == "condition" else "")
    _save("cells")


def mixing() -> None:
    """Blood cells with and without interferon: PCA++ mixes conditions, not cell types."""
    import scanpy as sc

    import scanpy_ext as cx

    adata = _log_counts("kang_labelled_2donors.h5ad")
    sc.pp.pca(adata, n_comps=20)
    cx.pp.match_pairs(adata, "condition", "ctrl", donor="donor")
    cx.tl.pca_pp(adata)
    report = cx.get.mixing_report(adata, groupby="condition", cell_type="cell_type")
    print("   agreement of clusters with the condition (0 is best), and share of cells whose type")
    print("   is the type of most of their neighbours in the other condition (1 is best):")
    rows = {"PCA": "X_pca", "PCA++": "X_pca_pp"}
    axes = _panels(2, 2, "mixing", 4.5)
    for row, (name, rep) in zip(axes, rows.items(), strict=True):
        mixing_ari, transfer = report.loc[rep, ["mixing_ari", "transfer"]]
        print(f"   {name:22} {mixing_ari:.2f}   {transfer:.2f}")
        sc.pp.neighbors(adata, use_rep=rep, key_added=name)
        sc.tl.umap(adata, neighbors_key=name, key_added=f"UMAP of {name}")
        for ax, color in zip(row, ["condition", "cell_type"], strict=True):
            basis = f"UMAP of {name}"
            title = f"{name}: {color.replace('_', ' ')}"
            sc.pl.embedding(adata, basis, color=color, ax=ax, title=title, size=15, show=False)
            ax.set(xlabel="", ylabel="UMAP" if color == "condition" else "")
    _save("mixing")


def fringes() -> None:
    """Cells behind fringes: an empty corner of the image shows the background."""
    from contrast_core.datasets import cells_behind_fringes
    from contrast_core.images import suppress_background

    image, clean, empty = cells_behind_fringes((448, 448))
    shown = {
        "image": image,
        "PCA of patches": _pca_of_patches(image),
        "background suppressed": suppress_background(image, empty).denoised,
        "truth": clean,
    }
    print(
        "   error divided by the image's error, after the best change of brightness and contrast:"
    )
    noisy = _error(image.reshape(1, -1), clean.reshape(1, -1))
    for ax, (name, picture) in zip(_panels(1, 4, "fringes")[0], shown.items(), strict=True):
        if picture is not clean:
            left = _error(picture.reshape(1, -1), clean.reshape(1, -1)) / noisy
            print(f"   {name:22} {left:.2f}")
        ax.imshow(picture, cmap="gray")
        ax.set(title=name, xticks=[], yticks=[])
    _save("fringes")


def frames() -> None:
    """Digits hidden on photographs: denoised frames, and maps of the components' weights."""
    from contrast_core import CPCA
    from contrast_core.datasets import digits_on_photos
    from contrast_core.images import FrameBackgroundRemover, weight_maps

    data = digits_on_photos(3000)
    seen, new = data.foreground[:2000], data.foreground[2000:]
    cpca = CPCA(10, alpha="denoise").fit(seen, background=data.background[:2000])
    pca = cpca.at(0.0)
    remover = FrameBackgroundRemover(data.frame_shape)
    remover.fit(seen, background=data.background[:2000])
    shown = {
        "noisy": new,
        "PCA": pca.denoise(new, offset="difference"),
        "cPCA": cpca.denoise(new, offset="difference"),
        "frame filter": remover.transform(new),
        "clean": data.clean[2000:],
    }
    print("   error of new frames divided by the noisy frames' error, after the best affine fit:")
    noisy = _error(new, shown["clean"])
    axes = _panels(6, 8, "frames", size=1.1)
    for row, (name, pictures) in zip(axes, shown.items(), strict=False):
        if name not in ("noisy", "clean"):
            print(f"   {name:22} {_error(pictures, shown['clean']) / noisy:.2f}")
        for ax, picture in zip(row, pictures, strict=False):
            ax.imshow(picture.reshape(data.frame_shape), cmap="gray")
        row[0].set_ylabel(name)
    maps = [*weight_maps(pca, data.frame_shape)[:4], *weight_maps(cpca, data.frame_shape)[:4]]
    names = [f"{method} {i}" for method in ("PCA", "cPCA") for i in range(1, 5)]
    for ax, picture, name in zip(axes[5], maps, names, strict=True):
        ax.imshow(picture, cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set_xlabel(name)
    axes[5, 0].set_ylabel("weights")
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    _save("frames")


def _pca_of_patches(image: np.ndarray) -> np.ndarray:
    """Return an image reconstructed from four principal components of its patches."""
    from contrast_core import CPCA
    from contrast_core.images import Patches

    patches = Patches(stride=4)
    rows = patches.rows(image)
    return patches.map(CPCA(4, alpha=0.0).fit(rows, background=rows).denoise, image)


def _error(frames: np.ndarray, clean: np.ndarray) -> float:
    """Return the mean squared error after the best affine fit of each frame."""
    frames = frames - frames.mean(axis=1, keepdims=True)
    clean = clean - clean.mean(axis=1, keepdims=True)
    slope = (frames * clean).sum(axis=1) / (frames**2).sum(axis=1)
    return float(((clean - slope[:, None] * frames) ** 2).mean())


def _log_counts(name: str) -> AnnData:
    import scanpy as sc

    adata = sc.read_h5ad(CELLS / name)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


def _panels(rows: int, columns: int, name: str, size: float = 3.5) -> np.ndarray:
    """Return the axes of a figure as an array of shape (rows, columns)."""
    from matplotlib import pyplot as plt

    _, axes = plt.subplots(
        rows,
        columns,
        figsize=(columns * size, rows * size),
        squeeze=False,
        num=name,
        layout="constrained",
    )
    return axes


def _save(name: str) -> None:
    from matplotlib import pyplot as plt

    picture = OUTPUT / f"{name}.png"
    plt.figure(name).savefig(picture, dpi=120)
    plt.close(name)
    print(f"   wrote {picture}")


def napari() -> None:
    """Cells behind fringes in napari: the noisy image, PCA, and the background removed."""
    from napari import Viewer
    from napari.qt import get_qapp

    application = get_qapp()
    viewer = Viewer()
    viewer.window.resize(1500, 900)
    viewer.open_sample("contrast-suite", "cells-behind-fringes")
    _, widget = viewer.window.add_plugin_dock_widget("contrast-suite", "Contrastive denoising")
    widget.choices.draw.native.click()
    corners = np.array([[8, 8], [8, 145], [145, 145], [145, 8]])
    viewer.layers["background"].add_rectangles(corners)
    widget.run.native.click()
    deadline = time.monotonic() + 90
    while widget.cancel.enabled and time.monotonic() < deadline:
        application.processEvents()
        time.sleep(0.01)
    print(f"   {widget.status.text}")
    # Before version 0.9 of napari, the viewer has no `canvas`.
    grid = viewer.canvas.grid if hasattr(viewer, "canvas") else viewer.grid
    viewer.layers.remove("background")
    noisy = viewer.layers["cells behind fringes"]
    noisy.visible = True
    viewer.add_image(_pca_of_patches(np.asarray(noisy.data)), name="PCA of patches")
    viewer.layers.move(len(viewer.layers) - 1, 1)  # beside the noisy image
    grid.shape, grid.enabled = (1, 3), True
    viewer.reset_view()
    for _ in range(20):
        application.processEvents()
    picture = OUTPUT / "napari-denoised.png"
    viewer.screenshot(picture, canvas_only=False, flash=False)
    viewer.close()
    print(f"   wrote {picture}")


def main() -> None:
    """Run all parts, and print how long each took."""
    OUTPUT.mkdir(exist_ok=True)
    mpl.use("Agg")
    warnings.simplefilter("ignore", ContrastWarning)  # weak components are expected here
    for number, part in enumerate((mice, cells, mixing, fringes, frames, napari), start=1):
        print(f"{number}. {part.__doc__}", flush=True)
        start = time.perf_counter()
        part()
        print(f"   {time.perf_counter() - start:.1f} s\n", flush=True)


if __name__ == "__main__":
    main()
