"""Figures as scanpy shows, saves and returns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from .._arguments import quoted

AxesGiven: TypeAlias = Axes | Sequence[Axes] | None
Save: TypeAlias = str | PathLike[str] | bool | None
Drawn: TypeAlias = list[Axes] | Figure | None


FLOOR = 1e-3  # of the widest axis: what varies less is drawn as not varying
_FONT_SIZE = 10.0  # that panels are made for
_DPI = 150
_LETTER = 0.08  # inches
_LINEAR = 0.7  # decades that may have none of 1, 2, 5, 10 twice
_SUBDIVIDED = ((1.6, (1.0, 2.0, 5.0)), (2.6, (1.0, 3.0)), (np.inf, (1.0,)))  # of decades up to


@contextmanager
def panels(
    n_rows: int,
    n_columns: int,
    *,
    size: tuple[float, float],
    figsize: tuple[float, float] | None = None,
    ax: AxesGiven = None,
) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and axes (n_rows, n_columns): those given, or panels of `size` inches each.

    The panels grow with the size of fonts; the figure is closed again if drawing or saving fails.

    Raises
    ------
    ValueError
        If there are not as many axes as panels.
    """
    from matplotlib import pyplot as plt

    if ax is not None:
        axes = np.array(ax, dtype=object).ravel()
        if axes.size != n_rows * n_columns or not all(hasattr(one, "get_xlim") for one in axes):
            raise ValueError(
                f"ax holds {axes.size} object(s), but {n_rows * n_columns} panel(s) are drawn: "
                "give as many axes, such as those of plt.subplots."
            )
        yield axes[0].figure, axes.reshape(n_rows, n_columns)
        return
    _check_size(figsize)
    font = max(1.0, float(plt.rcParams["font.size"]) / _FONT_SIZE)
    whole = font * (size[0] * n_columns + 0.8), font * size[1] * n_rows
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=whole if figsize is None else figsize,
        layout="constrained",
        squeeze=False,
    )
    try:
        yield figure, axes
    except BaseException:
        plt.close(figure)
        raise


def _check_size(figsize: object) -> None:
    """Raise ValueError if these are not the width and height of a figure."""
    if figsize is None:
        return
    try:
        size = np.asarray(figsize, dtype=float)
    except (TypeError, ValueError):
        size = np.zeros(0)
    if size.shape != (2,) or not (np.isfinite(size) & (size > 0)).all():
        raise ValueError(
            f"figsize={quoted(figsize)}: expected width and height in inches, such as (6, 4)."
        )


def grid(n_panels: int, widest: int) -> tuple[int, int]:
    """Return rows and columns for so many panels, with no more than `widest` in a row."""
    n_rows = -(-n_panels // widest)
    return n_rows, -(-n_panels // n_rows)


def room(names: Iterable[object], letters: int = 14) -> float:
    """Return the inches that the longest of these names needs beyond so many letters."""
    longest = max((len(str(name)) for name in names), default=0)
    return _LETTER * max(0, longest - letters)


def legend_below(ax: Axes, given: AxesGiven, *, side: str = "center") -> None:
    """Draw a legend below all panels, or within one of those that were given."""
    handles = ax.get_legend_handles_labels()[0]
    if given is not None:
        ax.legend(handles=handles, fontsize="small")
    else:
        figure: Any = ax.figure
        figure.legend(handles=handles, loc=f"outside lower {side}", ncols=2)


def few_log_ticks(axis: Axis) -> None:
    """Set about three ticks of a logarithmic axis, as plain numbers, over any range."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    if decades < _LINEAR:
        locator: Any = ticker.MaxNLocator(nbins=3)
    else:
        subs = next(subs for width, subs in _SUBDIVIDED if decades < width)
        locator = ticker.LogLocator(subs=subs, numticks=6)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def finish(
    figure: Figure,
    axes: Iterable[Axes],
    name: str,
    *,
    show: bool | None,
    save: Save,
    return_fig: bool = False,
    ax: AxesGiven = None,
) -> Drawn:
    """Save and show; hand axes or figure to the caller, as scanpy does.

    `name` is that of the file, if none is given. Axes that were given are not shown unless asked.
    """
    import scanpy as sc
    from matplotlib import pyplot as plt

    path = _path(name, save)
    if path is not None:
        dpi = plt.rcParams["savefig.dpi"]  # that of sc.set_figure_params(dpi_save=)
        figure.savefig(path, dpi=_DPI if dpi == "figure" else dpi)
    if return_fig:
        return figure
    if show is False or (show is None and ax is not None):
        return list(axes)
    if show or (show is None and path is None and sc.settings.autoshow):
        plt.show()
    elif path is not None:
        plt.close(figure)
    return None


def check_save(save: object) -> None:
    """Raise TypeError if no figure can be saved to it."""
    if not (save is None or isinstance(save, str | PathLike | bool)):
        raise TypeError(f"save={quoted(save)}: expected the path of a file, or True.")


def _path(name: str, save: Save) -> Path | None:
    """Return where a figure is saved.

    As in scanpy, text without a folder is appended to the name of the function, in
    `sc.settings.figdir`. A path object, or text with a folder, is the file itself.
    """
    import scanpy as sc

    check_save(save)
    if save is None or isinstance(save, bool):
        if not (save or sc.settings.autosave):
            return None
        save = ""
    elif not isinstance(save, str) or Path(save).parent != Path() or Path(save).is_absolute():
        return Path(save)
    folder = Path(sc.settings.figdir)
    folder.mkdir(parents=True, exist_ok=True)
    has_format = any(save.endswith(f".{ending}") for ending in ("png", "pdf", "svg"))
    ending = "" if has_format else f".{sc.settings.file_format_figs}"
    return folder / f"{name}{save}{ending}"
