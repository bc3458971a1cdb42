"""The design of a study: groups and weights of rows, and one background or several.

Problem: groups of rows (such as donors or batches) and several backgrounds affect every method in
the same way. They determine the means about which a covariance is taken, and the weights of the
rows. This module attaches the labels of the groups and the weights to `Rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contrast_core.moments import is_moments
from contrast_core.rows import Rows, rows_of


@dataclass(frozen=True)
class Design:
    """Arguments of `fit` that describe groups, weights and the mix of backgrounds.

    See `CPCA.fit`.
    """

    within: ArrayLike | None = None
    background_within: Any = None
    sample_weight: ArrayLike | None = None
    background_weight: Any = None
    background_mix: ArrayLike | None = None

    @property
    def labels_rows(self) -> bool:
        """Whether any argument gives labels or weights to the rows."""
        options = (
            self.within,
            self.background_within,
            self.sample_weight,
            self.background_weight,
        )
        return any(option is not None for option in options)

    def foreground(self, X: Any, missing: bool = False) -> Rows:
        """Return the foreground's rows with their labels and weights."""
        return rows_of(X, "X", groups=self.within, weights=self.sample_weight, missing=missing)

    def backgrounds(
        self, backgrounds: Sequence[Any], several: bool, missing: bool = False
    ) -> list[Rows]:
        """Return the rows of each background with their labels and weights."""
        names = background_names(len(backgrounds), several)
        labels, weights = (
            _of_each(option, name, len(backgrounds), several)
            for option, name in (
                (self.background_within, "background_within"),
                (self.background_weight, "background_weight"),
            )
        )
        return [
            rows_of(data, name, groups=own, weights=weight, missing=missing)
            for data, name, own, weight in zip(backgrounds, names, labels, weights, strict=True)
        ]


def listed_backgrounds(background: Any) -> tuple[list[Any], bool]:
    """Return a list of the backgrounds, and whether `background` was such a list.

    A list or tuple counts as several backgrounds if its elements are matrices or moments.
    """
    several = type(background) in (list, tuple) and all(
        is_moments(one) or len(getattr(one, "shape", ())) == 2 for one in background
    )
    if not several or not len(background):
        return [background], False
    return list(background), True


def background_names(n: int, several: bool) -> list[str]:
    """Return the name of each background for error messages."""
    return [f"background[{i}]" for i in range(n)] if several else ["background"]


def _of_each(option: Any, name: str, n: int, several: bool) -> list[Any]:
    """Return the labels or the weights of each of n backgrounds."""
    if not several or option is None:
        return [option] * n
    if type(option) not in (list, tuple) or len(option) != n:
        kind = type(option).__name__
        shape = f"{kind} of shape {np.shape(option)}" if hasattr(option, "shape") else kind
        raise ValueError(
            f"{name} is {shape}, but {n} backgrounds were given. Give a list with one entry for "
            "each background: its labels or weights, or None."
        )
    return list(option)
