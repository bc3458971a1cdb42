"""Base class of the linear methods on positive pairs, ``fit(X, positive=...)``."""

from __future__ import annotations

from typing import ClassVar

from contrast_core._base import LinearEmbedding
from contrast_core._validation import check_number
from contrast_core.moments import Form
from contrast_core.solve import Plan


class PositivePairEmbedding(LinearEmbedding):
    """Base class of the methods that find directions shared by two views of the same rows."""

    _of_moments = ("plan_",)

    plan_: Plan

    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "positive": True,
        "sample_weight": True,
    }

    @property
    def form_(self) -> Form:
        """Return the form of the covariances, which is "dense", "span" or "products"."""
        return self.plan_.form


def check_n_effective(n_effective: object, n_pairs: float) -> float:
    """Check and return the effective number of independent pairs, by default `n_pairs`."""
    if n_effective is None:
        return float(n_pairs)
    # Kish's effective number of pairs may exceed the number of pairs by rounding.
    most = n_pairs * (1 + 1e-9)
    return check_number(n_effective, "n_effective", above=1, at_most=most, expected="None, or")
