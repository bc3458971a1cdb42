"""Draw, show, save and return figures as scanpy does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scanpy as sc
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from numpy.typing import NDArray

from contrast_core.feedback import check_count, check_number, numbers_of, shown

AxesGiven: TypeAlias = Axes | Sequence[Axes] | None
Save: TypeAlias = str | PathLike[str] | bool | None
Drawn: TypeAlias = list[Axes] | Figure | None


# Values whose range is below this share of the widest range in a figure count as constant, because
# their variation is taken for rounding errors.
FLOOR = 1e-3
_FONT_SIZE = 10.0  # sizes of panels are given for this font size
_DPI = 150
_LETTER = 0.08  # width of a letter in inches
# A logarithmic axis of fewer decades than this has evenly spaced ticks, because it is too short for
# several ticks at 1, 2, 5 or 10.
_LINEAR = 0.7
# Ticks of longer logarithmic axes. Each entry holds a number of decades, and the multiples of
# powers of 10 at which axes with fewer decades have their ticks.
_SUBDIVIDED = ((1.6, (1.0, 2.0, 5.0)), (2.6, (1.0, 3.0)), (np.inf, (1.0,)))


class Canvas:
    """Figure that is being drawn, with its panels and the value that the function returns."""

    def __init__(self, figure: Figure, axes: NDArray[Any]) -> None:
        self.figure = figure
        self.axes = axes.ravel()
        self.result: Drawn = None


@contextmanager
def drawing(
    name: str,
    shape: tuple[int, int],
    size: tuple[float, float],
    ax: AxesGiven,
    figsize: tuple[float, float] | None,
    show: bool | None,
    save: Save,
    return_fig: bool,
    *,
    frames: bool = False,
) -> Iterator[Canvas]:
    """Draw panels of `size` inches, then save, show or return them as scanpy does.

    Panels grow with the font size. If `ax` was given, the figure is shown only with `show=True`.
    The figure is closed if drawing or saving fails.

    Parameters
    ----------
    name
        Name of the plotting function. The file's name begins with it.
    shape
        Numbers of rows and columns of panels.
    frames
        Whether all four sides of the panels' frames are drawn.

    The other parameters are documented in every plotting function.

    Raises
    ------
    TypeError
        If `save` is neither a path nor True, False or None.
    ValueError
        If there are not as many axes as panels, or `figsize` is not a pair of positive numbers.
    """
    if not (save is None or isinstance(save, str | PathLike | bool)):
        raise TypeError(f"save={shown(save)}: expected the path of a file, or True.")
    plot = Canvas(*_panels(shape, size, ax, figsize))
    try:
        yield plot
        for panel in plot.axes:
            panel.grid(visible=False)
            if not frames:
                panel.spines[["top", "right"]].set_visible(False)
        path = _path(name, save)
        if path is not None:
            dpi = plt.rcParams["savefig.dpi"]  # set by sc.set_figure_params(dpi_save=)
            plot.figure.savefig(path, dpi=_DPI if dpi == "figure" else dpi)
    except BaseException:
        if ax is None:
            plt.close(plot.figure)
        raise
    if return_fig:
        plot.result = plot.figure
    elif show is False or (show is None and ax is not None):
        plot.result = list(plot.axes)
    elif show or (path is None and sc.settings.autoshow):
        plt.show()
    elif path is not None:
        plt.close(plot.figure)


def _panels(
    shape: tuple[int, int],
    size: tuple[float, float],
    ax: AxesGiven,
    figsize: tuple[float, float] | None,
) -> tuple[Figure, NDArray[Any]]:
    """Return the figure and the axes that were given, or new ones."""
    n_rows, n_columns = shape
    if ax is not None:
        axes = np.array(ax, dtype=object).ravel()
        if axes.size != n_rows * n_columns or not all(hasattr(one, "get_xlim") for one in axes):
            raise ValueError(
                f"ax holds {axes.size} object(s), but {n_rows * n_columns} panel(s) are drawn: "
                "give as many axes, such as those of plt.subplots."
            )
        return axes[0].figure, axes
    if figsize is not None:
        sides = numbers_of(figsize, "figsize")
        if len(sides) != 2:
            raise ValueError(f"figsize={shown(figsize)}: expected a width and a height in inches.")
        for side in sides:
            check_number(side, "figsize", above=0)
    font = max(1.0, float(plt.rcParams["font.size"]) / _FONT_SIZE)
    whole = font * (size[0] * n_columns + 0.8), font * size[1] * n_rows
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=whole if figsize is None else figsize,
        layout="constrained",
        squeeze=False,
    )
    return figure, axes


def extra_width(names: Iterable[object], letters: int = 14) -> float:
    """Return the extra width, in inches, of the longest name beyond that of `letters` letters."""
    longest = max((len(str(name)) for name in names), default=0)
    return _LETTER * max(0, longest - letters)


def legend_below(ax: Axes, given: AxesGiven, *, side: str = "center") -> None:
    """Draw a legend below all panels, or within the panel if axes were given."""
    handles = ax.get_legend_handles_labels()[0]
    if given is not None:
        ax.legend(handles=handles, fontsize="small")
    else:
        figure: Any = ax.figure
        figure.legend(handles=handles, loc=f"outside lower {side}", ncols=2)


def few_log_ticks(axis: Axis) -> None:
    """Set about three ticks on a logarithmic axis of any range, labelled with plain numbers."""
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


def _path(name: str, save: Save) -> Path | None:
    """Return the path to which a figure is saved, or None if it is not saved.

    As in scanpy, a string without a folder is appended to the name of the function, and the file is
    saved in `sc.settings.figdir`. A path object, or a string with a folder, is used as the path.
    """
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


def chosen_components(components: object, n_components: int) -> list[int]:
    """Return the chosen components as a list of numbers counted from 1.

    The components may be given as a list, as one number, or as a string with commas. TypeError or
    ValueError is raised if a component does not exist, or if none is given.
    """
    asked: Any = components
    if isinstance(asked, str):
        parts = [part.strip() for part in asked.split(",")]
        asked = [int(part) if part.isdecimal() else part for part in parts]
    elif not isinstance(asked, Iterable):
        asked = [asked]
    found = [check_count(component, "components", at_most=n_components) for component in asked]
    if not found:
        raise ValueError(f"components is empty: expected numbers from 1 to {n_components}.")
    return found
