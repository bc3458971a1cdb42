"""Deflation, which finds components one after the other and removes each from the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.significance._statistic import Leading, Statistic
from contrast_core.significance._units import Units


@dataclass
class Deflation:
    """Components of two datasets, and the units of the datasets with these components removed.

    A unit is a single row, or a set of rows such as a donor. To remove component j (counted from
    0), the units are reflected so that the direction that is projected out becomes coordinate axis
    j. The next component is then found in the coordinates after j. A subclass defines
    `_original_covariances`.

    Parameters
    ----------
    statistic : Statistic
        The object that computes the statistic and finds the leading component.
    n_varying : int
        Number of features, or coordinates, that vary.
    units : tuple of Units
        Either two entries, the units of foreground and of background, or one entry, which stacks
        the units of both.
    found : list of Leading
        The components found so far.
    totals : list of (float, float)
        Total variances of both datasets before each component was removed.
    mirrors : list of ndarray of shape (D,)
        Unit normal vectors of the reflections.
    """

    statistic: Statistic
    n_varying: int
    units: tuple[Units, ...]
    found: list[Leading] = field(default_factory=list)
    totals: list[tuple[float, float]] = field(default_factory=list)
    mirrors: list[FloatArray] = field(default_factory=list)

    def find(self, n_components: int) -> Self:
        """Find the components of the original data.

        Raises
        ------
        ValueError
            If a dataset does not vary after the earlier components are removed.
        """
        for j in range(n_components):
            x, y = self._original_covariances(j)
            totals = float(np.trace(x)), float(np.trace(y))
            self._check(totals)
            found = self.statistic.leading(x, y, totals, self.n_varying - j)
            mirror = self._add(found, totals)
            self.units = tuple(part.mirrored(mirror) for part in self.units)
        return self

    def _original_covariances(self, j: int) -> tuple[FloatArray, FloatArray]:
        """Return the covariances of both original datasets, in the coordinates from j on."""
        raise TypeError(f"{type(self).__name__} does not define the covariances of the data.")

    def relabelled(
        self, covariances: Callable[[int], tuple[FloatArray, FloatArray]]
    ) -> list[float]:
        """Return the statistic of every component in relabelled data.

        `covariances(j)` returns the covariances of foreground and background in the coordinates
        from j on.
        """
        return [
            self.statistic.leading(*covariances(j), totals, self.n_varying - j).statistic
            for j, totals in enumerate(self.totals)
        ]

    def strengths(self) -> FloatArray:
        """Return the contrast strengths of the components of the original data."""
        return np.array(
            [
                self.statistic.strength(found.statistic, totals, self.n_varying - j)
                for j, (found, totals) in enumerate(zip(self.found, self.totals, strict=True))
            ]
        )

    def components(self) -> FloatArray:
        """Return the directions of the components, as rows in the coordinates of the units."""
        rows = np.zeros((len(self.found), len(self.mirrors[0])))
        for j, found in enumerate(self.found):
            rows[j, j:] = found.direction
            for mirror in reversed(self.mirrors[:j]):
                rows[j] -= 2 * (rows[j] @ mirror) * mirror
        return rows

    def _check(self, totals: tuple[float, float]) -> None:
        """Raise ValueError if a dataset is constant after removal of the earlier components."""
        j, rounding = len(self.found), self.units[0].rounding
        for total, name, whole in zip(
            totals, ("X", "background"), self.totals[0] if j else (0.0, 0.0), strict=True
        ):
            if not total > rounding * whole or j >= self.n_varying:
                raise ValueError(
                    f"component {j + 1} cannot be tested: {name} does not vary after the earlier "
                    f"components are removed. Use n_components={j} or fewer."
                )

    def _add(self, found: Leading, totals: tuple[float, float]) -> FloatArray:
        """Add component j, and return the normal (D,) of a reflection.

        The reflection maps the direction that is projected out to axis j.
        """
        j = len(self.found)
        mirror = np.zeros(self.units[0].means.shape[1])
        mirror[j:] = found.removed / np.linalg.norm(found.removed)
        mirror[j] += math.copysign(1.0, mirror[j])
        mirror /= np.linalg.norm(mirror)
        self.found.append(found)
        self.totals.append(totals)
        self.mirrors.append(mirror)
        return mirror
