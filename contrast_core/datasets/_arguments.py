"""Checks of the arguments that several datasets share."""

import operator

import numpy as np

__all__ = ["as_generator", "check_count"]


def as_generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """Random generator of a seed; a generator is passed through."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"random_state is {random_state!r}; give a non-negative integer, a "
            "numpy.random.Generator, or None for a different result on every call."
        ) from error


def check_count(value: int, *, name: str, at_least: int, at_most: int | None = None) -> int:
    """`value` as an integer within its limits."""
    limits = f"at least {at_least}" if at_most is None else f"between {at_least} and {at_most}"
    try:
        count = operator.index(value)
    except TypeError as error:
        raise TypeError(
            f"{name} is {value!r} of type {type(value).__name__}; give an integer {limits}."
        ) from error
    if count < at_least or (at_most is not None and count > at_most):
        raise ValueError(f"{name} is {count}; give an integer {limits}.")
    return count
