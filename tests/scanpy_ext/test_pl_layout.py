"""Tests that no text of a plot is cut off, and that no two texts overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Text

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
KINDS = ("CD14+ monocytes", "Megakaryocytes", "Dendritic cells", "B cells", "CD4 T cells", "pDC")
DRAWN: dict[str, Callable[..., Any]] = {
    "cpca_path": lambda a, **k: cx.pl.cpca_path(a, ["cell_type", "donor"], **k),
    "cpca_path of a gene": lambda a, **k: cx.pl.cpca_path(a, "gene 3", **k),
    "loadings": cx.pl.loadings,
    "loadings of all": lambda a, **k: cx.pl.loadings(
        a, components=range(1, a.obsm["X_cpca"].shape[1] + 1), n_points=4, **k
    ),
    "contrasts": cx.pl.contrasts,
    "contrast_curve": cx.pl.contrast_curve,
    "significance": cx.pl.significance,
    "contrast_check": cx.pl.contrast_check,
    "match_pairs": cx.pl.match_pairs,
    "cvae": cx.pl.cvae,
}


def texts(figure: Figure) -> dict[str, Any]:
    """Return every visible text with its position in pixels, without ticks out of view."""
    figure.canvas.draw()
    hidden = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-9 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not (ax.axison and low - slack <= tick.get_loc() <= high + slack):
                    hidden |= {tick.label1, tick.label2}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text not in hidden]
    return {
        f"{text.get_text()} [{i}]": text.get_window_extent()
        for i, text in enumerate(found)
        if text.get_text().strip()
    }


def unreadable(figure: Figure) -> list[Any]:
    """Return texts that extend beyond the figure, and pairs that overlap by over a pixel."""
    width, height = figure.canvas.get_width_height()
    placed = texts(figure)
    cut = [
        name
        for name, box in placed.items()
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]
    overlapping = [
        (a, b)
        for (a, one), (b, other) in combinations(placed.items(), 2)
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 1
        and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]
    return cut + overlapping


def study(n_kinds: int, n_donors: int, n_comps: int) -> AnnData:
    """Return cells of several types and donors in two conditions, with results of every kind."""
    rng = np.random.default_rng(0)
    n, d = 60 * n_donors, 24
    kind, donor = rng.integers(n_kinds, size=n), rng.integers(n_donors, size=n)
    stim = rng.random(n) < 0.5
    rates = rng.normal(size=(n_kinds, d))[kind] + 0.3 * rng.normal(size=(n_donors, d))[donor]
    rates[stim, :6] += 1.2
    adata = AnnData(np.log1p(rng.poisson(np.exp(0.5 + 0.7 * rates))).astype(np.float32))
    adata.var_names = [f"gene {i}" for i in range(d)]
    names = np.array([f"{KINDS[i % 6]} {i // 6}" for i in range(n_kinds)])
    adata.obs["cell_type"] = pd.Categorical(names[kind])
    adata.obs["donor"] = pd.Categorical([f"patient_{1000 + i}" for i in donor])
    adata.obs["condition"] = pd.Categorical(np.where(stim, "stim", "ctrl"))
    adata.obsm["X_pca"] = np.asarray(adata.X)[:, :20]
    by_donor = {"donor": "donor" if n_donors > 4 else None}
    cx.pp.contrast_check(adata, **REFERENCE, donor="donor", cell_type="cell_type")
    cx.tl.cpca(adata, **REFERENCE, n_comps=n_comps, alpha=1.0)
    cx.tl.contrasts(adata, **REFERENCE, by="cell_type")
    cx.tl.cpca_path(adata, **REFERENCE, n_comps=n_comps)
    cx.tl.significance(
        adata,
        **REFERENCE,
        **by_donor,
        n_comps=n_comps,
        test_kwargs={"n_permutations": 20, "n_resamples": 2, "strength": 1.0},
    )
    cx.pp.match_pairs(adata, "condition", "ctrl", donor="donor", n_comps=5)
    epochs = np.arange(1.0, 3.0 if n_comps == 2 else 60.0)
    losses = {"training_loss": 40 + 1 / epochs, "held_out_loss": 41 + 1 / epochs}
    adata.uns["cvae"] = losses | {"best_epoch": 2}
    return adata


@pytest.fixture(scope="module")
def studies() -> dict[str, AnnData]:
    return {"two": study(2, 2, 2), "many": study(12, 14, 20)}


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@pytest.mark.slow
@pytest.mark.parametrize(("size", "font"), [("two", None), ("many", 14)])
@pytest.mark.parametrize("name", DRAWN)
def test_all_texts_can_be_read(
    name: str, size: str, font: int | None, studies: dict[str, AnnData]
) -> None:
    if font is not None:
        sc.pl.set_rcParams_scanpy(fontsize=font)
    figure = DRAWN[name](studies[size], return_fig=True)
    assert len(texts(figure)) >= 4
    assert not unreadable(figure)


@pytest.mark.parametrize(
    ("decades", "scale"), [(0.05, 1e-6), (0.69, 37.0), (0.71, 2e5), (1.5, 0.0013), (6.0, 37.0)]
)
def test_variances_of_any_range_have_a_few_plain_ticks(decades: float, scale: float) -> None:
    adata = AnnData(np.zeros((3, 3)))
    background = scale * np.logspace(decades, 0, 20)[:, None]
    adata.uns["cpca_path"] = {
        "alphas": np.arange(20.0),
        "representatives": np.array([1, 10, 18]),
        "foreground_variance": background + scale,
        "background_variance": background,
    }
    figure = cx.pl.contrast_curve(adata, return_fig=True)
    assert not unreadable(figure)
    [ax] = figure.axes
    low, high = ax.get_xlim()
    labels = [
        label.get_text().replace("\N{MINUS SIGN}", "-")
        for spot, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
        if low <= spot <= high
    ]
    assert 2 <= len(labels) <= 6
    assert len({float(label) for label in labels}) == len(labels)
