"""Which units could have been the foreground, as far as can be told without an effect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core.significance._units import TwoSamples


def count(samples: TwoSamples) -> int:
    """Distinct relabellings: swaps within shared units, times free choices among the others."""
    free_x, free_y = len(samples.only(0)), len(samples.only(1))
    swaps: int = 2 ** len(samples.shared)
    return swaps * math.comb(free_x + free_y, free_x)


class _Places(NamedTuple):
    """Positions, among all n units, of the shared pairs (S, 2) and of the free units."""

    n: int
    pairs: NDArray[np.intp]
    free: NDArray[np.intp]
    n_chosen: int

    @classmethod
    def of(cls, samples: TwoSamples) -> _Places:
        n = samples.foreground.n_units
        pairs = samples.shared + np.array([0, n], dtype=np.intp)
        free = np.concatenate([samples.only(0), samples.only(1) + n])
        return cls(samples.n_units, pairs, free, len(samples.only(0)))

    def labels(self, swapped: ArrayLike, chosen: ArrayLike) -> NDArray[np.bool_]:
        """With the given pairs swapped and the chosen free units in the foreground."""
        labels = np.zeros(self.n, dtype=bool)
        labels[self.pairs[:, 0]] = ~np.asarray(swapped, dtype=bool)
        labels[self.pairs[:, 1]] = swapped
        labels[self.free[np.asarray(chosen, dtype=np.intp)]] = True
        return labels


def every(samples: TwoSamples) -> Iterator[NDArray[np.bool_]]:
    """Each relabelling once: which units, first those of the foreground, are foreground."""
    places = _Places.of(samples)
    for swapped in product([False, True], repeat=len(places.pairs)):
        for chosen in combinations(range(len(places.free)), places.n_chosen):
            yield places.labels(swapped, chosen)


def random(
    samples: TwoSamples, total: int, rng: np.random.Generator
) -> Iterator[NDArray[np.bool_]]:
    """So many relabellings, drawn with replacement."""
    places = _Places.of(samples)
    for _ in range(total):
        swapped = rng.random(len(places.pairs)) < 0.5
        yield places.labels(swapped, rng.permutation(len(places.free))[: places.n_chosen])
