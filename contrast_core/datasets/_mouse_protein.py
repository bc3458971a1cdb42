"""Load protein levels in the cortex of trisomic and control mice (Higuera et al., 2015)."""

import csv
import gzip
import io
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import check_flag
from contrast_core.datasets._contrast_data import ContrastData


def load_mouse_protein(*, raw: bool = False) -> ContrastData:
    """Load protein levels of mice with a trisomy that models Down syndrome, and of control mice.

    The trisomic mice are of the strain Ts65Dn. The foreground consists of trisomic and control mice
    that received a shock as soon as they were placed in a new cage (shock-context, class
    ``*-SC-s``). The background consists of control mice that explored the cage before the shock
    (context-shock, class ``c-CS-s``). All mice were treated with saline. cPCA should separate the
    two genotypes of the foreground, whereas PCA shows other differences among mice.

    Parameters
    ----------
    raw : bool, default=False
        If False, the data are prepared as in the scripts of the papers on cPCA and PCPCA (see the
        references). Missing values are replaced by 0. Foreground and background are then
        standardised separately to mean 0 and standard deviation 1 (with the divisor n). If True,
        the levels are returned as published, with NaN for missing values.

    Returns
    -------
    ContrastData
        `foreground` (270, 77) and `background` (135, 77) hold the levels. `labels` (270,) holds the
        genotypes, 135 times "Control" and 135 times "Ts65Dn". `feature_names` holds the names of
        the 77 proteins. `units` and `background_units` hold the mouse of each row.

    Notes
    -----
    Each mouse was measured 15 times. The foreground holds 18 mice, and the background holds 9. The
    rows of a mouse are repeated measurements and not independent samples. Therefore keep all rows
    of a mouse in the same part when you split the rows.

    References
    ----------
    Higuera C, Gardiner KJ, Cios KJ. Self-organizing feature maps identify proteins critical to
    learning in a mouse model of Down syndrome. PLOS ONE 10(6): e0129126, 2015.
    Split and scaling: Abid et al., arXiv:1709.06716; Li et al., arXiv:2012.07977.

    Examples
    --------
    >>> from contrast_core.datasets import load_mouse_protein
    >>> data = load_mouse_protein()
    >>> data.foreground.shape, data.background.shape, len(set(data.units))
    ((270, 77), (135, 77), 18)
    """
    raw = check_flag(raw, "raw")
    packed = files(__package__) / "data" / "mouse_cortex_protein_saline.csv.gz"
    # The file starts with a byte order mark. "utf-8-sig" removes it from the first column's name.
    text = gzip.decompress(packed.read_bytes()).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    proteins = tuple(name for name in rows[0] if name.endswith("_N"))

    def levels(part: list[dict[str, str]]) -> NDArray[np.float64]:
        values = np.array([[float(row[name] or "nan") for name in proteins] for row in part])
        return values if raw else _standardised(np.nan_to_num(values, nan=0.0))

    def mice(part: list[dict[str, str]]) -> NDArray[np.str_]:
        return np.array([row["MouseID"].rpartition("_")[0] for row in part])

    foreground = [row for row in rows if row["class"] in ("c-SC-s", "t-SC-s")]
    background = [row for row in rows if row["class"] == "c-CS-s"]
    return ContrastData(
        levels(foreground),
        levels(background),
        np.array([row["Genotype"] for row in foreground]),
        feature_names=proteins,
        units=mice(foreground),
        background_units=mice(background),
        description="Protein levels in mouse cortex, Down syndrome model against control (Higuera, "
        "Gardiner and Cios, PLOS ONE 10(6): e0129126, 2015). CC BY 4.0.",
    )


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled
