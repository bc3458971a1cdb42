"""The three packages on real data: printed numbers, and pictures in demo-output/.

Run it through ``scripts/demo.sh``, which sets everything up and finds a display.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "demo-output"
CELLS = ROOT / "tutorials" / "data" / "glioblastoma_panobinostat.h5ad"


def core() -> None:
    """Mouse proteins: Down syndrome or not, by PCA and by contrastive PCA; no labels used."""
    from sklearn.metrics import silhouette_score

    from contrast_core import CPCA
    from contrast_core.datasets import load_mouse_protein

    data = load_mouse_protein()
    cpca = CPCA(n_components=2).fit(data.foreground, background=data.background)
    print("   silhouette of Down syndrome against control, 2 components, axes at unit sd:")
    for name, model in (("PCA", cpca.at(0)), ("cPCA, automatic alpha", cpca)):
        scores = model.transform(data.foreground)
        silhouette = silhouette_score(scores / scores.std(axis=0), data.labels)
        print(f"   {name:22} alpha = {model.alpha_:<6.3g} silhouette = {silhouette:.2f}")


def scanpy() -> None:
    """Tumour cells with and without a drug: two components of PCA and of cPCA, as a picture."""
    import warnings

    import matplotlib as mpl
    import scanpy as sc
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    import scanpy_ext as cx
    from contrast_core import ContrastWarning

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    warnings.simplefilter("ignore", ContrastWarning)
    adata = sc.read_h5ad(CELLS)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    design = {"groupby": "condition", "reference": "ctrl", "within": "patient"}
    forms = {"PCA": {"alpha": 0}, "cPCA": {}}

    print("   cells told right in a patient left out of embedding and discriminant, mean of five:")
    for name, form in forms.items():
        accuracies = []
        for patient in adata.obs["patient"].unique():
            is_new = adata.obs["patient"] == patient
            rest, new = adata[~is_new].copy(), adata[is_new].copy()
            cx.tl.cpca(rest, **design, **form)
            cx.tl.project(new, rest)
            rule = LinearDiscriminantAnalysis().fit(rest.obsm["X_cpca"], rest.obs["condition"])
            accuracies.append(rule.score(new.obsm["X_cpca"], new.obs["condition"]))
        print(f"   {name:22} {np.mean(accuracies):.2f} (guessing: 0.50)")

    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for row, (name, form) in zip(axes, forms.items(), strict=True):
        cx.tl.cpca(adata, **design, **form, key_added=name)
        for ax, color in zip(row, ["condition", "patient"], strict=True):
            title = f"{name}, within patients: {color}"
            sc.pl.embedding(adata, name, color=color, ax=ax, title=title, size=12, show=False)
    picture = OUTPUT / "cells.png"
    figure.savefig(picture, dpi=150)
    print(f"   wrote {picture}")


def napari() -> None:
    """Digits hidden on photographs, denoised by the widget in the napari window."""
    from napari import Viewer
    from napari.qt import get_qapp

    application = get_qapp()
    viewer = Viewer()
    viewer.window.resize(1500, 900)
    viewer.open_sample("contrast-suite", "digits-on-photographs")
    _, widget = viewer.window.add_plugin_dock_widget("contrast-suite", "Contrastive denoising")
    foreground = viewer.layers["digits on photographs"]
    widget.foreground.value = foreground
    widget.background.value = viewer.layers["photographs"]
    widget.run.native.click()
    deadline = time.monotonic() + 90
    while not widget.run.enabled and time.monotonic() < deadline:
        application.processEvents()
        time.sleep(0.01)
    print(f"   {widget.status.value}")
    denoised = viewer.layers["digits on photographs denoised"]

    # The first eight frames, four and four: as they were above, denoised below.
    for layer in list(viewer.layers):
        layer.visible = False
    for first in (0, 4):
        for name, layer in (("noisy", foreground), ("denoised", denoised)):
            for frame in range(first, first + 4):
                viewer.add_image(np.asarray(layer.data[frame]), name=f"frame {frame} {name}")
    grid = viewer.canvas.grid if hasattr(viewer, "canvas") else viewer.grid  # napari before 0.9
    grid.shape = (4, 4)
    grid.enabled = True
    viewer.reset_view()
    for _ in range(20):
        application.processEvents()
    picture = OUTPUT / "napari-denoised.png"
    viewer.screenshot(picture, canvas_only=False, flash=False)
    viewer.close()
    print(f"   wrote {picture}")


def main() -> None:
    """Run the three parts and say how long each took."""
    OUTPUT.mkdir(exist_ok=True)
    for number, part in enumerate((core, scanpy, napari), start=1):
        print(f"{number}. {part.__doc__}", flush=True)
        start = time.perf_counter()
        part()
        print(f"   {time.perf_counter() - start:.1f} s\n", flush=True)


if __name__ == "__main__":
    main()
