"""The three packages on real data: printed numbers, and pictures in demo-output/.

Run it through ``scripts/demo.sh``, which sets everything up and finds a display.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).parents[1] / "demo-output"


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
    """The same mice as an AnnData: cPCA, and the path over alpha as a picture."""
    import anndata as ad
    import matplotlib as mpl
    import pandas as pd

    import scanpy_ext as cx
    from contrast_core.datasets import load_mouse_protein

    mpl.use("Agg")
    data = load_mouse_protein()
    assert data.feature_names is not None
    adata = ad.AnnData(
        np.vstack([data.foreground, data.background]),
        obs=pd.DataFrame(
            {
                "genotype": [*data.labels, *["Control"] * len(data.background)],
                "learning": ["shock-context"] * len(data.foreground)
                + ["context-shock"] * len(data.background),
            },
            index=[f"sample {i}" for i in range(len(data.foreground) + len(data.background))],
        ),
        var=pd.DataFrame(index=list(data.feature_names)),
    )
    design = {"groupby": "learning", "reference": "context-shock", "include_reference": False}
    cx.tl.cpca(adata, **design)
    print(f"   adata.obsm['X_cpca'] {adata.obsm['X_cpca'].shape}, ", end="")
    print(f"adata.uns['cpca']['alpha'] = {adata.uns['cpca']['alpha']:.3g}")
    cx.tl.cpca_path(adata, **design)
    picture = OUTPUT / "scanpy-path.png"
    foreground = adata[adata.obs["learning"] == "shock-context"].copy()
    cx.pl.path(foreground, color="genotype", show=False, save=picture)
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
