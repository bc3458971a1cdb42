"""Simulated data and a quick model for the tests of CVAE."""

from __future__ import annotations

from typing import Any

import numpy as np

from contrast_core import CVAE

D = 12


def ring(n: int = 800, m: int = 600, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return a foreground with a circle, a background, the circle's angles and its clean rows.

    Both datasets contain a curve that is stronger than the circle; only the foreground contains the
    circle.
    """
    rng = np.random.default_rng(seed)

    def shared(size: int) -> Any:
        s = rng.normal(size=(size, 1))
        return np.hstack([4 * s, s**2, *(np.sin(s + i) for i in range(D - 2))])

    turn = rng.uniform(0, 2 * np.pi, n)
    clean = np.zeros((n, D))
    clean[:, -2:] = 3 * np.column_stack([np.cos(turn), np.sin(turn)])
    X = shared(n) + clean + 0.2 * rng.normal(size=(n, D))
    return X, shared(m) + 0.2 * rng.normal(size=(m, D)), turn, clean


def counts(seed: int = 0, n: int = 300) -> tuple[Any, Any]:
    """Return Poisson counts whose log-rates are the foreground and background of `ring`."""
    X, Y, *_ = ring(n, n, seed)
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(0.3 * X)), rng.poisson(np.exp(0.3 * Y))


def quick(**options: Any) -> CVAE:
    """Return a CVAE that trains for three epochs, unless the options say otherwise."""
    return CVAE(**({"max_iter": 3, "random_state": 0} | options))
