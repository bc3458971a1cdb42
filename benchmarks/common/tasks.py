"""Real data with known groups for the benchmarks: bundled data, and data from CONTRAST_DATA."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.digits import digits_on_scenes
from benchmarks.common.report import LeftOut
from contrast_core.datasets import ContrastData, digits_on_photos, load_mouse_protein

ROOT = Path(__file__).parents[2]


def tasks() -> dict[str, ContrastData]:
    """Return all labelled datasets that are available."""
    found = {"mouse": load_mouse_protein(), "digits on photographs": digits_on_photos()}
    folder = data_folder()
    if folder is not None:
        scenes = digits_on_scenes(folder)
        found["digits on scenes"] = ContrastData(*scenes[:3], frame_shape=(28, 28))
    found["Kang cells"] = kang_cells()
    return found


def data_folder() -> Path | None:
    """Return the folder that CONTRAST_DATA names, or None if it is not set."""
    folder = os.environ.get("CONTRAST_DATA")
    return Path(folder) if folder else None


def larger_data() -> Path:
    """Return the folder that CONTRAST_DATA names, or raise LeftOut if it is not set."""
    folder = data_folder()
    if folder is None:
        raise LeftOut("CONTRAST_DATA is not set; set it to the folder of the larger data")
    return folder


def log_normalised(counts: Any, total: float = 1e4) -> Any:
    """Return log1p of counts that are scaled to the same total in every cell, as a dense array."""
    dense = counts.toarray().astype(float)
    return np.log1p(dense * (total / dense.sum(axis=1, keepdims=True)))


def kang_cells() -> ContrastData:
    """Return blood cells of donor 101, and control cells of donor 107 as the background.

    The cells of donor 101 include cells treated with interferon and untreated ones. Values are
    log1p of counts per 10,000, for the 1,000 genes with the largest variance over all cells.
    """
    import anndata

    folder = data_folder()
    path = (folder / "kang_pbmc") if folder is not None else ROOT / "tutorials" / "data"
    cells = anndata.read_h5ad(path / "kang_labelled_2donors.h5ad")
    values = log_normalised(cells.X)
    genes = np.sort(np.argsort(values.var(axis=0))[-1000:])
    donor, condition = (cells.obs[name].astype(str).to_numpy() for name in ("donor", "condition"))
    return ContrastData(
        values[donor == "101"][:, genes],
        values[(donor == "107") & (condition == "ctrl")][:, genes],
        condition[donor == "101"],
        feature_names=tuple(cells.var_names[genes]),
        description="Peripheral blood cells with and without interferon beta (Kang et al. 2018).",
    )


def glioblastoma_cells() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the cells of five tumours, and for each cell the patient and whether it was treated.

    The values of the cells are log1p of counts per 10,000.
    """
    import anndata

    adata = anndata.read_h5ad(ROOT / "tutorials" / "data" / "glioblastoma_panobinostat.h5ad")
    treated = adata.obs["condition"].to_numpy(str) != "ctrl"
    return log_normalised(adata.X), adata.obs["patient"].to_numpy(str), treated
