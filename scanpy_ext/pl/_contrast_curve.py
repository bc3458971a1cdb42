"""Plot the variances of foreground and background over the contrast strength."""

from __future__ import annotations

import numpy as np
from anndata import AnnData

from .._arguments import check_component
from .._docs import documented
from .._result import stored_result
from ._figure import FLOOR, AxesGiven, Drawn, Save, drawing, few_log_ticks, titled


@documented
def contrast_curve(
    adata: AnnData,
    *,
    component: int | None = None,
    key: str = "cpca_path",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot the variance of the foreground against that of the background, over the strengths.

    There is a dot for each strength of `scanpy_ext.tl.cpca_path`, and the representatives are
    labelled. PCA of the foreground is at the top right. A stronger contrast has less background
    variance, and also less foreground variance. At the best strengths, the background variance has
    fallen and the foreground variance has not.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca_path` was run.
    component
        A component, counted from 1. By default, the variances are summed over all components.
    key
        Name of the result in `.uns`: the name of the function, or the given `key_added`.
    {FIGURE}

    Returns
    -------
    A list with the axes if `show=False` or with `ax`, the figure if
    `return_fig=True`, else `None`.

    Raises
    ------
    ValueError
        If there is no result of `scanpy_ext.tl.cpca_path` under `key`, or no such component.
    """
    result = stored_result(adata, key, "tl.cpca_path", "alphas")
    n_components = np.shape(result["foreground_variance"])[1]
    if component is not None:
        component = check_component(component, n_components)
    columns = slice(None) if component is None else slice(component - 1, component)
    foreground, background = (
        np.asarray(result[f"{side}_variance"])[:, columns].sum(axis=1)
        for side in ("foreground", "background")
    )
    # Variances below the floor are rounding errors. Their logarithms would stretch the axis.
    background = np.maximum(background, FLOOR**2 * background.max())
    with drawing("contrast_curve", (1, 1), (4.2, 3.4), ax, figsize, show, save, return_fig) as plot:
        [panel] = plot.axes
        panel.plot(background, foreground, ".-", color="0.6", zorder=1)
        for i in np.asarray(result["representatives"]):
            panel.plot(background[i], foreground[i], "o", color="tab:red", zorder=2)
            alpha = np.asarray(result["alphas"])[i]
            panel.annotate(
                titled(alpha),
                (background[i], foreground[i]),
                xytext=(6, -3) if alpha else (-6, 3),  # keeps the labels of PCA and the next apart
                textcoords="offset points",
                ha="left" if alpha else "right",
                va="top" if alpha else "bottom",
                fontsize="small",
            )
        what = "all components" if component is None else f"component {component}"
        panel.set(
            xscale="log",
            xlabel="variance of the background",
            ylabel="variance of the foreground",
            title=what,
        )
        panel.margins(x=0.2, y=0.1)
        panel.autoscale_view()
        few_log_ticks(panel.xaxis)
    return plot.result
