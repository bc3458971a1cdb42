"""Shared fixtures: simulated cells, real cells, and a check for side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData
from sklearn.utils.sparsefuncs import mean_variance_axis

import scanpy_ext as cx
from scanpy_ext import _mixing

# Warnings that anndata causes and that the tests cannot avoid.
THIRD_PARTY_WARNINGS = [
    # `write_zarr` warns that its default format, zarr v2, will change:
    # https://anndata.readthedocs.io/en/stable/release-notes/
    "ignore:Writing zarr v2 data:UserWarning",
    # anndata 0.13 reads options that pandas 3.1 deprecates:
    # https://github.com/pandas-dev/pandas/pull/68436
    "ignore:The 'future.infer_string' option is deprecated:DeprecationWarning",
    "ignore:The 'mode.chained_assignment' option is deprecated:DeprecationWarning",
]

KANG = Path(__file__).parents[2] / "tutorials" / "data" / "kang_labelled_2donors.h5ad"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for ignored in THIRD_PARTY_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(ignored))


def are_equal(a: object, b: object) -> bool:
    """Return whether two values from an AnnData are equal; dictionaries are compared deeply."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(are_equal(a[key], b[key]) for key in a)
    if sp.issparse(a) and sp.issparse(b):
        return a.format == b.format and are_equal(a.toarray(), b.toarray())
    if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame):
        return a.equals(b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        nan_matters = a.dtype.kind == "f"
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=nan_matters)
    return type(a) is type(b) and a == b


@pytest.fixture
def one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the mixing report put all cells into one cluster.

    It is for tests of scores that do not depend on clusters. To find clusters, scanpy loads umap,
    which takes long.
    """
    monkeypatch.setattr(
        _mixing, "leiden", lambda scores, seeds, *_: [np.zeros(len(scores)) for _ in seeds]
    )


@pytest.fixture
def untouched() -> Callable[[AnnData], AbstractContextManager[None]]:
    """Return a context manager which checks that its block does not change the AnnData."""

    @contextmanager
    def check(adata: AnnData) -> Iterator[None]:
        before = adata.copy()
        was_view = adata.is_view
        yield
        assert adata.is_view == was_view
        for slot in ("X", "obs", "var"):
            assert are_equal(getattr(adata, slot), getattr(before, slot)), slot
        for slot in ("obsm", "varm", "uns", "layers", "obsp", "varp"):
            assert are_equal(dict(getattr(adata, slot)), dict(getattr(before, slot))), slot

    return check


@pytest.fixture
def cells() -> AnnData:
    """Return 200 cells with 12 genes.

    Gene 0 varies most, gene 1 separates stim from ctrl, and gene 2 varies more in stim than in
    ctrl. The first principal component is gene 0. If all cells are the foreground and ctrl is the
    background, the first contrastive component is gene 1, and the second one is gene 2.
    """
    rng = np.random.default_rng(0)
    stim = np.repeat([False, True], 100)
    values = rng.normal(size=(200, 12)).astype("float32")
    values[:, 0] *= 10
    values[stim, 1] += 8
    values[stim, 2] *= 5
    adata = AnnData(values)
    adata.var_names = [f"gene{i}" for i in range(12)]
    adata.obs_names = [f"cell{i}" for i in range(200)]
    adata.obs["condition"] = pd.Categorical(np.where(stim, "stim", "ctrl"))
    adata.obs["is_stim"] = stim
    adata.obs["is_ctrl"] = ~stim
    adata.obs["depth"] = np.arange(200.0)
    return adata


@pytest.fixture
def counts() -> AnnData:
    """Return counts of 240 cells of 8 donors and 30 genes; the first gene responds."""
    rng = np.random.default_rng(0)
    stim = np.arange(240) % 2 == 1
    rates = np.full((240, 30), 4.0) * rng.gamma(4.0, 0.25, size=30)
    rates[stim, 0] *= 6
    adata = AnnData(rng.poisson(rates).astype(np.float32))
    adata.obs["condition"] = np.where(stim, "stim", "ctrl")
    adata.obs["donor"] = [f"d{i // 2 % 8}" for i in range(240)]
    return adata


@pytest.fixture
def logs(counts: AnnData) -> AnnData:
    adata = counts.copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


@pytest.fixture(scope="module")
def analysed() -> AnnData:
    """Return 60 cells with a result of every kind that a function can read."""
    adata = AnnData(np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    adata.obs["condition"] = ["ctrl", "stim"] * 30
    adata.obs["donor"] = ["a"] * 30 + ["b"] * 30
    adata.obs["animal"] = [f"a{i % 8}" for i in range(60)]
    adata.obsm["X_pca"] = np.asarray(adata.X)[:, :3]
    design: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}
    few = {"n_permutations": 20, "n_resamples": 2}
    cx.tl.cpca(adata, **design, alpha=1.0)
    cx.tl.pcpca(adata, **design, gamma=0.0)
    cx.tl.cpca_path(adata, **design, n_representatives=2)
    cx.tl.contrasts(adata, **design, by="donor")
    cx.tl.significance(adata, **design, donor="animal", test_kwargs=few)
    cx.pp.match_pairs(adata, **design, donor="donor", n_comps=3, n_neighbors=2)
    cx.pp.contrast_check(adata, **design)
    losses = {"training_loss": [2.0, 1.0], "held_out_loss": [2.0, 1.0]}
    adata.uns["cvae"] = losses | {"best_epoch": 1, "slots": {}}
    return adata


@pytest.fixture(scope="session")
def kang_session() -> AnnData:
    adata = anndata.read_h5ad(KANG)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    _, variance = mean_variance_axis(adata.X, axis=0)
    adata.var["most_variable"] = variance >= np.sort(variance)[-1000]
    adata.obs["donor_101"] = (adata.obs["donor"] == "101").to_numpy()
    adata.obs["control_107"] = (
        (adata.obs["donor"] == "107") & (adata.obs["condition"] == "ctrl")
    ).to_numpy()
    return adata


@pytest.fixture
def kang(kang_session: AnnData) -> AnnData:
    """Return real labelled cells of two donors; values are log1p of counts per 10,000."""
    return kang_session.copy()
