"""Figures as scanpy shows, saves and returns them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR = 1e-3  # of the widest axis: what varies less is drawn as not varying


@contextmanager
def panels(
    n_rows: int, n_columns: int, *, size: tuple[float, float]
) -> Iterator[tuple[Figure, Any]]:
    """A figure with panels of `size` inches, closed again if drawing or saving fails."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(size[0] * n_columns + 0.8, size[1] * n_rows),
        layout="constrained",
        squeeze=False,
    )
    try:
        yield figure, axes
    except BaseException:
        plt.close(figure)
        raise


def finish(
    figure: Figure, axes: list[Axes], *, show: bool | None, save: str | PathLike[str] | None
) -> list[Axes] | None:
    """Save and show; hand the axes to the caller if `show=False`, as scanpy does."""
    import scanpy as sc
    from matplotlib import pyplot as plt

    if save is not None:
        figure.savefig(save, dpi=150)
    if show is False:
        return axes
    if show or (show is None and save is None and sc.settings.autoshow):
        plt.show()
    elif save is not None:
        plt.close(figure)
    return None
