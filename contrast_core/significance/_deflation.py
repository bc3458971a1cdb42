"""Components of two covariances, one after the other in what those before leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.significance._statistic import Leading, Statistic
from contrast_core.significance._units import Units


@dataclass
class Deflation:
    """Components found so far; what is left for component j are the coordinates from j on.

    Parameters
    ----------
    statistic : Statistic
        How a component is found.
    n_varying : int
        Features, or coordinates, that vary.
    """

    statistic: Statistic
    n_varying: int
    found: list[Leading] = field(default_factory=list)
    totals: list[tuple[float, float]] = field(default_factory=list)
    mirrors: list[FloatArray] = field(default_factory=list)

    def strengths(self) -> FloatArray:
        """Return the strengths of the components of the data without relabelling."""
        return np.array(
            [
                self.statistic.strength(found.statistic, totals, self.n_varying - j)
                for j, (found, totals) in enumerate(zip(self.found, self.totals, strict=True))
            ]
        )

    def components(self) -> FloatArray:
        """Their directions, as rows in the coordinates of the units."""
        rows = np.zeros((len(self.found), len(self.mirrors[0])))
        for j, found in enumerate(self.found):
            rows[j, j:] = found.direction
            for mirror in reversed(self.mirrors[:j]):
                rows[j] -= 2 * (rows[j] @ mirror) * mirror
        return rows

    def check(self, totals: Sequence[float], units: Units) -> None:
        """Raise ValueError if nothing is left for the next component.

        Raises
        ------
        ValueError
            If a dataset does not vary there, or nothing does.
        """
        j, rounding = len(self.found), units.rounding
        for total, name, whole in zip(
            totals, ("X", "background"), self.totals[0] if j else (0.0, 0.0), strict=True
        ):
            if not total > rounding * whole or j >= self.n_varying:
                raise ValueError(
                    f"component {j + 1} cannot be tested: {name} does not vary in what the {j} "
                    f"before it leave. Use n_components={j} or fewer."
                )

    def add(self, found: Leading, totals: tuple[float, float], n_features: int) -> FloatArray:
        """Take a component. Returns the normal (D,) of the mirror that turns it to coordinate j."""
        j = len(self.found)
        mirror = np.zeros(n_features)
        mirror[j:] = found.removed / np.linalg.norm(found.removed)
        mirror[j] += math.copysign(1.0, mirror[j])
        mirror /= np.linalg.norm(mirror)
        self.found.append(found)
        self.totals.append(totals)
        self.mirrors.append(mirror)
        return mirror
