"""Real datasets with labels, and the units to leave out, for `track_record`.

The bundled data are always available. Larger data are read from the folder that CONTRAST_DATA
names. The preparation uses no labels. Cells are subsampled with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common.digits import SIDE, small_scenes
from benchmarks.common.measures import centred
from benchmarks.common.tasks import log_normalised
from contrast_core.datasets import (
    ContrastData,
    digits_on_photos,
    load_mouse_protein,
    make_motion_sensors,
)

N_CELLS = 400  # largest number of cells of each patient or donor
N_GENES = 500
N_FRAMES = 1500
INACTIVE = [  # targets whose knock-out had no visible effect on these cells
    *("ATF2", "CAV1", "CD86", "CMTM6", "ETV7", "MARCH8", "PDCD1LG2", "POU2F2", "STAT5A"),
    *("TNFRSF14", "UBE2L6"),
]
ACTIVE = ["BRD4", "CUL3", "IFNGR1", "IFNGR2", "IRF1", "JAK2", "SMAD4", "STAT1"]


class LabelledDataset(NamedTuple):
    """A dataset with labels, and the units that are left out in turn."""

    name: str
    question: str  # what the labels say about a row
    foreground: Any  # (n, D)
    background: Any  # (m, D)
    labels: Any  # (n,)
    units: Any  # (n,): unit of each foreground row
    background_units: Any  # (m,): unit of each background row; a unit is left out of both datasets
    folds: Any = None  # (n,): fold of each row, if several units are left out together
    within: bool = False  # whether each unit has rows of all labels, so that units can be centred
    replicates: Any = None  # (n,): sample of each row, if several rows measure the same sample
    null: bool = False  # whether there is no effect to find


def tasks(data: Path | None) -> Iterator[LabelledDataset]:
    """Yield the bundled datasets, and the larger ones if the folder is given."""
    yield mice()
    yield mice_with_gaps()
    yield sensors()
    yield digits("digits on photographs", digits_on_photos(N_FRAMES))
    if data is not None:
        yield digits("digits on scenes", digits_on_scenes(data))
        yield glioblastoma(data)
        yield kang(data, "kang_5donors", "blood cells, five donors")
        yield kang(data, "kang_labelled_2donors", "blood cells, two donors")
        yield cell_painting(data)
        yield knock_outs(data)
    for null in nulls(data):
        yield null(np.random.default_rng(0))


def nulls(data: Path | None) -> list[Callable[[np.random.Generator], LabelledDataset]]:
    """Return functions that draw datasets without an effect from a random generator.

    The foregrounds are randomly chosen mice, the control wells of half of the plates, and the cells
    of ten guides without effect. A guide is an RNA that directs a knock-out to one gene. For the
    guides, the background is cells with non-targeting guides, which direct it to no gene.
    """
    task = mice()
    animals = np.concatenate([task.units, task.background_units])
    parts = [
        ("mice divided at random", np.vstack([task.foreground, task.background]), animals, 18, None)
    ]
    if data is not None:
        table, guides = cell_painting_table(data), knock_outs(data, INACTIVE)
        wells = table[table["Metadata_Compound"] == "DMSO"]
        plates = wells["Metadata_Plate"].to_numpy(str)
        profiles, half = wells.filter(regex="^(?!Metadata)").to_numpy(float), len(set(plates)) // 2
        parts += [
            ("control wells", profiles, plates, half, None),
            ("guides without effect", guides.foreground, guides.units, 10, guides),
        ]
    return [partial(null_task, *each) for each in parts]


def null_task(
    name: str,
    rows: Any,
    units: Any,
    n_front: int,
    controls: LabelledDataset | None,
    rng: np.random.Generator,
) -> LabelledDataset:
    """Return the rows of randomly chosen units; half of these units have the label "one".

    The background is taken from the task `controls` if it is given, otherwise from all other units.
    """
    order = rng.permutation(np.unique(units))
    front = np.isin(units, order[:n_front])
    labels = np.where(np.isin(units[front], order[: n_front // 2]), "one", "other")
    background, others = rows[~front], units[~front]
    if controls is not None:
        background, others = controls.background, controls.background_units
    parts = (rows[front], background, labels, units[front], others)
    return LabelledDataset(f"null: {name}", "random label", *parts, null=True)


def mice() -> LabelledDataset:
    """Return protein levels of 18 mice, half of them trisomic, and of 9 others as background."""
    data = load_mouse_protein()
    return LabelledDataset(
        *("mice", "genotype", data.foreground, data.background, data.labels),
        *(data.units, data.background_units),
        replicates=data.units,
    )


def mice_with_gaps() -> LabelledDataset:
    """Return the mice, with 40% of the values removed at random."""
    task, rng = mice(), np.random.default_rng(0)
    parts = [
        np.where(rng.random(rows.shape) < 0.4, np.nan, rows)
        for rows in (task.foreground, task.background)
    ]
    return task._replace(
        name="mice, 40% missing", foreground=parts[0], background=parts[1], replicates=None
    )


def sensors() -> LabelledDataset:
    """Return simulated motion sensors, where each stretch of 200 rows is a unit."""
    data = make_motion_sensors()
    stretches = np.arange(len(data.labels)) // 200
    parts = (data.foreground, data.background, data.labels)
    return LabelledDataset("sensors (simulated)", "activity", *parts, stretches, -1 - stretches)


def digits(name: str, data: Any) -> LabelledDataset:
    """Return faint zeros and ones on pictures, where each picture is a unit."""
    small = (_pixels_in_fours(frames) for frames in (data.foreground, data.background))
    parts = (*small, data.labels, data.units, data.background_units)
    return LabelledDataset(name, "digit", *parts, within=True)


def _pixels_in_fours(frames: Any) -> Any:
    """Average squares of two by two pixels."""
    return frames.reshape(-1, SIDE // 2, 2, SIDE // 2, 2).mean(axis=(2, 4)).reshape(len(frames), -1)


def digits_on_scenes(data: Path) -> ContrastData:
    """Return digits at a quarter of their strength on seven scenes, and crops of eight others."""
    mnist = np.load(data / "mnist" / "mnist_train_subset.npz")
    small = small_scenes(data)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(small))
    crops, backgrounds = [], []
    for kept, chosen in ((crops, order[:7]), (backgrounds, order[7:])):
        windows = np.lib.stride_tricks.sliding_window_view(small, (SIDE, SIDE), axis=(1, 2))
        rows, columns = windows.shape[1:3]
        pictures = chosen[rng.integers(len(chosen), size=N_FRAMES)]
        places = rng.integers(rows, size=N_FRAMES), rng.integers(columns, size=N_FRAMES)
        kept += [windows[pictures, *places].reshape(N_FRAMES, -1), pictures]
    digit = mnist["images"][:N_FRAMES].reshape(N_FRAMES, -1) / 255.0
    labels = mnist["labels"][:N_FRAMES].astype(int)
    parts = (crops[0] + digit / 4, backgrounds[0], labels)
    return ContrastData(*parts, units=crops[1], background_units=backgrounds[1])


def _cells(data: Path, file: str, unit: str) -> tuple[Any, Any, Any]:
    """Return log-normalised counts, and for each cell whether it is treated and its unit."""
    import anndata

    cells = anndata.read_h5ad(data / file)
    rng = np.random.default_rng(0)
    order = rng.permutation(cells.n_obs)
    by_sample = cells.obs[unit].astype(str) + cells.obs["condition"].astype(str)
    place = by_sample.iloc[order].groupby(by_sample.iloc[order]).cumcount().sort_index()
    kept = (place.reindex(cells.obs_names) < N_CELLS // 2).to_numpy()
    values = log_normalised(cells.X)[kept]
    genes = np.sort(np.argsort(-values.var(axis=0), kind="stable")[:N_GENES])
    obs = cells.obs[kept]
    treated = (obs["condition"] != "ctrl").to_numpy()
    return values[:, genes], treated, obs[unit].to_numpy(dtype=str)


def glioblastoma(data: Path) -> LabelledDataset:
    """Return tumour cells of five patients with and without a drug, and controls as background."""
    file = "glioblastoma/glioblastoma_panobinostat.h5ad"
    values, treated, patients = _cells(data, file, "patient")
    parts = (values, values[~treated], treated, patients, patients[~treated])
    return LabelledDataset("tumours", "drug", *parts, within=True)


def kang(data: Path, file: str, name: str) -> LabelledDataset:
    """Return blood cells with and without interferon, and controls as background."""
    values, treated, donors = _cells(data, f"kang_pbmc/{file}.h5ad", "donor")
    parts = (values, values[~treated], treated, donors, donors[~treated])
    return LabelledDataset(name, "interferon", *parts, within=True)


def cell_painting_table(data: Path) -> Any:
    """Return the table of wells with their profiles and metadata."""
    import pandas as pd

    return pd.read_csv(data / "cell_painting" / "bbbc021_wells.csv.gz")


def cell_painting(data: Path) -> LabelledDataset:
    """Return wells of 38 compounds, labelled by mechanism, and wells with DMSO as background."""
    table = cell_painting_table(data)
    profiles = table.filter(regex="^(?!Metadata)").to_numpy(float)
    control = (table["Metadata_Compound"] == "DMSO").to_numpy()
    drugs = table[~control]
    samples = drugs["Metadata_Compound"] + drugs["Metadata_Concentration"].astype(str)
    return LabelledDataset(
        *("cell painting", "mechanism", profiles[~control], profiles[control]),
        drugs["Metadata_moa"].to_numpy(str),
        drugs["Metadata_Compound"].to_numpy(str),
        table["Metadata_Plate"].to_numpy(str)[control],
        replicates=samples.to_numpy(str),
    )


def knock_outs(data: Path, targets: list[str] = ACTIVE) -> LabelledDataset:
    """Return cells with one of the genes `targets` knocked out, and control cells as background."""
    import anndata

    cells = anndata.read_h5ad(data / "crispr" / "papalexi_2replicates.h5ad")
    cells = cells[(cells.obs["guide_share"] > 0.8).to_numpy()]
    totals = np.asarray(cells.X.sum(axis=1)).ravel()
    values = log_normalised(cells.X, float(np.median(totals)))
    target = cells.obs["target"].to_numpy(str)
    guide, replicate = cells.obs["guide"].to_numpy(str), cells.obs["replicate"].to_numpy(str)
    untargeted = target == "non-targeting"
    values = centred(values, replicate, untargeted)
    chosen = np.isin(target, targets)
    order = {}  # place of each guide among the guides of its gene, which is the fold of its cells
    for name in targets:
        order |= {each: i for i, each in enumerate(np.unique(guide[target == name]))}
    return LabelledDataset(
        *("knock-outs", "target gene", values[chosen], values[untargeted], target[chosen]),
        *(guide[chosen], guide[untargeted]),
        folds=np.array([order[each] for each in guide[chosen]]),
    )
