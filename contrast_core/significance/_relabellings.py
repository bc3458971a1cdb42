"""Relabellings of a permutation test, which choose other units as the foreground."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import FloatArray
from contrast_core.feedback import Progress, warn, with_progress
from contrast_core.significance._units import TwoSamples

LEVEL = 0.05  # significance level; the smallest possible p-value must not exceed it


@dataclass(frozen=True)
class Relabellings:
    """Relabellings of a permutation test: all of them, or some drawn at random.

    A unit is a single row, or a set of rows such as a donor. A unit that occurs in both datasets
    has one part in each, and the two parts are either swapped or left in place. All other units are
    distributed freely, but each dataset keeps its number of units. `n_distinct` is the number of
    distinct relabellings, and `total` is the number that is used.
    """

    samples: TwoSamples
    n_distinct: int
    total: int

    @classmethod
    def from_samples(cls, samples: TwoSamples, n_permutations: int) -> Relabellings:
        """Use all relabellings if at most `n_permutations` exist, and random ones otherwise.

        Raises
        ------
        ValueError
            If there are so few different relabellings that no p-value could reach 0.05, or if units
            occur in one dataset alone and none occurs in the other dataset alone.

        Warns
        -----
        ContrastWarning
            If `n_permutations` is too small for a p-value of 0.05.
        """
        free = [len(samples.unshared(side)) for side in (0, 1)]
        n_distinct = 2 ** len(samples.shared) * math.comb(sum(free), free[0])
        total = min(n_distinct, n_permutations)
        _check_resolution(free, n_distinct, total, grouped=samples.foreground.grouped)
        return cls(samples, n_distinct, total)

    @property
    def is_exact(self) -> bool:
        """Return whether all relabellings are used, including the original labels."""
        return self.total == self.n_distinct

    @property
    def given(self) -> NDArray[np.bool_]:
        """Return the original labels: a mask of the foreground among the units of both datasets."""
        return np.arange(self.samples.n_units) < self.samples.foreground.n_units

    def statistics(
        self,
        statistics_of: Callable[[NDArray[np.bool_]], list[float]],
        rng: np.random.Generator,
        progress: Progress,
    ) -> FloatArray:
        """Return the statistics of all components, with one row for each relabelling."""
        bar = with_progress(self._labels(rng), self.total, "permute", progress)
        return np.array([statistics_of(chosen) for chosen in bar])

    def _labels(self, rng: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
        """Yield masks of the foreground: each relabelling once, or random ones with replacement."""
        pairs, n_shared = self.samples.pairs, len(self.samples.shared)
        alone_x, alone_y = (self.samples.unshared(side) for side in (0, 1))
        free = np.concatenate([alone_x, alone_y + self.samples.foreground.n_units])
        choices: Iterable[tuple[ArrayLike, ArrayLike]] = (
            product(
                product([False, True], repeat=n_shared),
                combinations(range(len(free)), len(alone_x)),
            )
            if self.is_exact
            else (
                (rng.random(n_shared) < 0.5, rng.permutation(len(free))[: len(alone_x)])
                for _ in range(self.total)
            )
        )
        for swapped, chosen in choices:
            labels = np.zeros(self.samples.n_units, dtype=bool)
            labels[pairs[:, 0]] = ~np.asarray(swapped, dtype=bool)
            labels[pairs[:, 1]] = swapped
            labels[free[np.asarray(chosen, dtype=np.intp)]] = True
            yield labels


def _check_resolution(free: Sequence[int], n_distinct: int, total: int, *, grouped: bool) -> None:
    """Raise if no p-value could reach the level; warn if too few relabellings are drawn."""
    what = "units" if grouped else "rows"
    if min(free) == 0 < max(free):
        where = "X" if free[0] else "background"
        raise ValueError(
            f"{max(free)} units occur in {where} alone, and no unit occurs in the other dataset "
            "alone, so a relabelling could never move these units. Leave them out, or add units "
            "that occur in the other dataset alone."
        )
    if n_distinct < 1 / LEVEL:
        raise ValueError(
            f"there are only {n_distinct} ways to say which {what} are foreground, so no "
            f"p-value can be below {1 / n_distinct:.2g}. At least {1 / LEVEL:.0f} are needed: 3 "
            f"{what} against 3" + (", or 5 units that occur in both datasets." if grouped else ".")
        )
    if total < n_distinct and 1 / (1 + total) > LEVEL:
        ways = str(n_distinct) if n_distinct < 10**15 else "very many"
        warn(
            f"there are {ways} ways to say which {what} are foreground and {total} are used: "
            f"no p-value can be below {1 / (1 + total):.2g}. More permutations are needed.",
        )
