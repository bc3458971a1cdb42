"""Draw the pictures of the documentation, from bundled and simulated data, into docs/pictures/.

    python docs/draw.py              # all pictures but cvae, in half a minute
    python docs/draw.py front alpha  # only these pictures

Each function of a module in docs/drawings draws the picture with its name. The pictures `front` and
`cvae` are kept in the repository, in docs/. `cvae` trains networks and needs torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from drawings import curves, images, scatter, track_record
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
KEPT = ("front", "cvae")
# The condition leaves out functions that a module imports.
DRAWINGS = {
    name: draw
    for module in (scatter, curves, images, track_record)
    for name, draw in vars(module).items()
    if getattr(draw, "__module__", "") == module.__name__
}


def main() -> None:
    """Draw the pictures that the command line names, or all but `cvae`."""
    PICTURES.mkdir(exist_ok=True)
    plt.style.use(HERE / "pictures.mplstyle")
    for name in sys.argv[1:] or [name for name in DRAWINGS if name != "cvae"]:
        DRAWINGS[name]()
        target = (HERE if name in KEPT else PICTURES) / f"{name}.png"
        plt.gcf().savefig(target)
        plt.close("all")


if __name__ == "__main__":
    main()
