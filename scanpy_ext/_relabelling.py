"""Whether other donors, or by chance other cells, would show the components of a contrast."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from anndata import AnnData

from contrast_core import condition_test, permutation_test
from contrast_core.feedback import Progress
from contrast_core.significance import PermutationTest

from . import _read
from ._arguments import is_anndata


class Resampled(NamedTuple):
    """Foreground and background in memory, and the donors of their cells, if these are told."""

    foreground: Any
    background: Any
    donors: dict[str, Any]
    data: _read.ContrastInput

    def permuted(
        self, model: Any, n_permutations: int, random_state: int | None, progress: Progress
    ) -> PermutationTest:
        """Change donors, or cells without them, between the two sets."""
        given: dict[str, Any] = {
            "background": self.background,
            "n_permutations": n_permutations,
            "random_state": random_state,
            "progress": progress,
        }
        shared = self.data.shared
        if not self.donors and not shared.any():
            return permutation_test(model, self.foreground, **given)
        treated = ~shared[self.data.selection.foreground]
        if self.donors:
            given["units"] = self.donors["units"][treated]
            given["background_units"] = self.donors["background_units"]
        try:
            return condition_test(
                model, self.foreground[treated], include_background=bool(shared.any()), **given
            )
        except ValueError as error:  # units are donors here
            words = re.sub(r"\bunits\b", "donors", str(error)).replace("in X ", "in foreground ")
            raise ValueError(words) from None


def resampled(
    adata: AnnData, data: _read.ContrastInput, donor: str | None, other: object = None
) -> Resampled:
    """Load what is to be resampled; `other` is another AnnData whose cells are the background.

    Raises
    ------
    ValueError
        If donors are not known, or some of the background is in the foreground and some is not.
    """
    donors: dict[str, Any] = {}
    front, back = data.selection.foreground, data.selection.background
    if data.shared.any() and (back & ~front).any():
        raise ValueError(
            f"{int(data.shared.sum())} of the {int(back.sum())} background cells are in the "
            "foreground too. Put all of them there, so that the difference between the sets "
            "is asked about, or none."
        )
    if donor is not None:
        donors["units"] = _read.known_labels(adata, donor, "donor", front)
        donors["background_units"] = (
            _read.known_labels(other, donor, "donor")
            if is_anndata(other)
            else _read.known_labels(adata, donor, "donor", back)
        )
    return Resampled(*data.loaded(), donors, data)
