"""Plot the training loss and the held-out loss of a contrastive VAE."""

from __future__ import annotations

import numpy as np
from anndata import AnnData

from .._docs import documented
from .._stored import stored_result
from ._figure import AxesGiven, Drawn, Save, drawing


@documented
def cvae(
    adata: AnnData,
    *,
    key: str = "cvae",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot the training loss and the held-out loss of each epoch of `scanpy_ext.tl.cvae`.

    If the held-out loss still falls at the end, train for more epochs. If it is far above the
    training loss, the model needs more cells. A dotted line marks the epoch whose weights are kept.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cvae` was run.
    key
        Name of the result in `.uns`: the name of the function, or the given `key_added`.
    {FIGURE}

    Returns
    -------
    The figure if `return_fig=True`, or a list with the axes if `show=False` or `ax` was given. In
    all other cases `None`.

    Raises
    ------
    ValueError
        If there is no such result.
    """
    result = stored_result(adata, key, "tl.cvae", "training_loss")
    epochs = np.arange(1, len(result["training_loss"]) + 1)
    with drawing("cvae", (1, 1), (4.2, 3.2), ax, figsize, show, save, return_fig) as plot:
        [panel] = plot.axes
        for name, label in (("training_loss", "training"), ("held_out_loss", "held out")):
            panel.plot(epochs, result[name], ".-", label=label)
        panel.axvline(result["best_epoch"], color="0.6", linestyle=":", label="kept")
        panel.set(xlabel="epoch", ylabel="negative lower bound per cell", title=key)
        panel.legend(fontsize="small")
    return plot.result
