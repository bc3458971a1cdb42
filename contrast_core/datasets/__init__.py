"""Datasets with known answers: simulations, and two real datasets bundled with the package.

Nothing is downloaded, and loading needs only numpy. Sources and licences are in
``contrast_core/datasets/data/README.md`` and the licence files beside it.
"""

from contrast_core.datasets._cells_behind_fringes import CellsBehindFringes, cells_behind_fringes
from contrast_core.datasets._contrast_data import ContrastData
from contrast_core.datasets._digits import digits_on_photos
from contrast_core.datasets._mouse_protein import load_mouse_protein
from contrast_core.datasets._simulated import (
    make_four_groups,
    make_motion_sensors,
    make_sparse_groups,
    make_toy,
)

__all__ = [
    "CellsBehindFringes",
    "ContrastData",
    "cells_behind_fringes",
    "digits_on_photos",
    "load_mouse_protein",
    "make_four_groups",
    "make_motion_sensors",
    "make_sparse_groups",
    "make_toy",
]
