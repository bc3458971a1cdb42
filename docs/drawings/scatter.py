"""Pictures of rows as points in two components or latent variables, one panel for each method."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from contrast_core import CLVM, CPCA, PCPCA, ContrastWarning, KernelCPCA, PCAPlusPlus, contrast_path
from contrast_core.datasets import load_mouse_protein, make_four_groups

from .parts import CONTROL, GROUPS, MICE, OTHER, TREATED, panels_of_points


def mice() -> None:
    """Draw the mice in two components of PCA and of cPCA."""
    data = load_mouse_protein()
    cpca = CPCA(n_components=2).fit(data.foreground, background=data.background)
    shown = {
        "PCA: the genotypes are mixed": cpca.at(0).transform(data.foreground),
        f"cPCA, alpha = {cpca.alpha_:.2g}: they lie apart": cpca.transform(data.foreground),
    }
    panels_of_points(shown, data.labels, MICE)


def alpha() -> None:
    """Draw four groups at four strengths, each of which shows another split."""
    data = make_four_groups()
    path = contrast_path(data.foreground, background=data.background)
    names = {i: (f"group {i + 1}", GROUPS[i]) for i in range(4)}
    titles = {0: "0 (PCA):\nonly noise", 1: "1:\none split", 3: "3:\nboth splits"}
    titles |= {100: "100:\nthe other split"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)  # the largest alpha leaves little variance
        shown = {
            f"alpha = {title}": path.at(strength).transform(data.foreground)
            for strength, title in titles.items()
        }
    panels_of_points(shown, data.labels, names, 2.4, "", "")


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
    backgrounds = {
        "background has all cell types:\ntreatment leads": X[~treated],
        "background lacks one type:\nthat type leads": X[~treated & (kind != 0)],
    }
    shown = {
        title: np.column_stack([CPCA(1).fit(X, background=Y).transform(X), rng.normal(size=n)])
        for title, Y in backgrounds.items()
    }
    panels_of_points(shown, group, groups, 3.4, ylabel="random height")


def cells() -> None:
    """Draw tumour cells with and without a drug in two components of PCA and of cPCA."""
    import anndata
    import scanpy as sc

    import scanpy_ext as cx

    data = Path(__file__).parents[2] / "tutorials/data/glioblastoma_panobinostat.h5ad"
    adata = anndata.read_h5ad(data)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    # In random order, no condition covers the other.
    adata = adata[np.random.default_rng(0).permutation(adata.n_obs)].copy()
    treated = (adata.obs["condition"] == "panobinostat").to_numpy()
    groups = {False: ("control", CONTROL), True: ("drug (panobinostat)", TREATED)}
    shown = {}
    for title, form in {
        "PCA: the drug is mixed in": {"alpha": 0},
        "cPCA: the drug leads": {},
    }.items():
        cx.tl.cpca(adata, groupby="condition", reference="ctrl", within="patient", **form)
        shown[title] = adata.obsm["X_cpca"]
    panels_of_points(shown, treated, groups, legend_title="tumour cells, centred within patients")


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
    models = {
        "cPCA: no straight direction\nseparates the rings": CPCA(2),
        "KernelCPCA:\nthe rings lie apart": KernelCPCA(2, kernel="rbf", kernel_gamma=0.05),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)
        shown = {title: model.fit(X, background=Y).transform(X) for title, model in models.items()}
    panels_of_points(shown, label, groups)


def missing() -> None:
    """Draw the mice in two components with none, 30% and 60% of the values removed."""
    raw = load_mouse_protein(raw=True)
    rng = np.random.default_rng(0)
    sets = [
        (rows - np.nanmean(rows, axis=0)) / np.nanstd(rows, axis=0)
        for rows in (raw.foreground, raw.background)
    ]
    shown = {}
    for share in (0, 0.3, 0.6):
        X, Y = (np.where(rng.random(rows.shape) < share, np.nan, rows) for rows in sets)
        model = PCPCA(2).fit(X, background=Y)
        shown[f"{share:.0%} of the values removed"] = model.transform(X)
    panels_of_points(shown, raw.labels, MICE, 2.8, "", "")


def latent() -> None:
    """Draw the mice in the shared and in the salient latent variables of CLVM."""
    data = load_mouse_protein()
    model = CLVM(n_shared=2, n_salient=2).fit(data.foreground, background=data.background)
    shown = {
        "shared: the genotypes are mixed": model.transform_shared(data.foreground),
        "salient: they lie apart": model.transform(data.foreground),
    }
    names = "latent variable 1", "latent variable 2"
    panels_of_points(shown, data.labels, MICE, 3.6, *names)


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
    shown = {
        "PCA: each view's own background": pca,
        "PCA++: what the two views share": model.transform(X),
    }
    panels_of_points(shown, group, names)


def designs() -> None:
    """Draw the treated cells of five donors in components with and without the donors' labels."""
    rng = np.random.default_rng(0)
    donor = rng.integers(0, 5, 600)
    responds = rng.random(600) < 0.5
    treated = rng.normal(size=(600, 8)) + 5 * rng.normal(size=(5, 8))[donor]
    treated[:, :2] += 4 * responds[:, None]
    controls = rng.normal(size=(400, 8))
    shown = {}
    for title, labels in {
        "without labels: the donors lead": None,
        "within donors: the treatment leads": donor,
    }.items():
        model = CPCA(2, alpha=0.5).fit(treated, background=controls, within=labels)
        shown[title] = model.transform(treated, within=labels)
    groups = {False: ("treated, not responding", OTHER), True: ("treated, responding", TREATED)}
    panels_of_points(shown, responds, groups)
