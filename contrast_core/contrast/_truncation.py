"""The leading eigenpairs of S, as many as a rule keeps."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Literal, TypeAlias

import numpy as np

from contrast_core._validation import NO_NUMBERS, shown
from contrast_core.contrast._noise_bulk import noise_bulk, numerical_rank
from contrast_core.linalg import (
    Eigenpairs,
    EstimatedSpectrum,
    NotConvergedError,
    Spectrum,
    leading_eigenpairs,
)
from contrast_core.moments import Moments
from contrast_core.solve import Plan

Truncation: TypeAlias = Literal["auto"] | int | float | None

_SETTLED = 0.02  # residual, relative to the edge, of an eigenvalue that counts as below it


def truncated_eigenpairs(
    moments: Moments, truncation: Truncation, n_components: int, n_samples: float, plan: Plan
) -> Eigenpairs:
    """Leading eigenpairs of a covariance, as many as a truncation rule keeps.

    Parameters
    ----------
    moments : moments
        Mean and covariance S, in any form.
    truncation : "auto", int, float or None
        "auto": the eigenvalues above the noise (see `noise_bulk`); an integer: so many; a fraction
        up to 1: the fewest that hold this part of the variance; None: all, S being nonsingular.
    n_components : int
        At least so many are kept, except with an integer.
    n_samples : float
        Effective number of rows, for "auto".
    plan : Plan
        The moments'.

    Returns
    -------
    Eigenpairs
        Positive eigenvalues, descending (s,), and vectors in feature space as rows (s, D).

    Raises
    ------
    ValueError, TypeError
        If `truncation` is none of these, or S has too low a rank for it or for `n_components`.
    NotConvergedError
        If S is known by its products, and those do not give the pairs.
    """
    _check_truncation(truncation, n_components, moments.n_features)
    if moments.form == "products":
        return _eigenpairs_by_products(moments, truncation, n_components, n_samples, plan)
    if truncation is None or isinstance(truncation, Integral):
        wanted = moments.n_features if truncation is None else int(truncation)
        if not moments.size:
            _check_rank(wanted, 0, f"truncation={truncation}", moments)
        pairs = leading_eigenpairs(moments.matrix(), min(wanted, moments.size))
        _check_rank(wanted, numerical_rank(pairs.values), f"truncation={truncation}", moments)
        return Eigenpairs(pairs.values, moments.lift(pairs.components))
    spectrum = Spectrum(moments.matrix())
    rank = numerical_rank(spectrum.values)
    _check_rank(n_components, rank, f"n_components={n_components}", moments)
    if isinstance(truncation, str):
        n_features = int(moments.varies.sum())
        kept = noise_bulk(spectrum.values, n_features, n_samples).n_above
    else:
        held = np.cumsum(spectrum.values[:rank])
        kept = 1 + int(np.searchsorted(held, float(truncation) * held[-1] * (1 - 1e-12)))
    values, vectors = spectrum.leading(min(max(kept, n_components), rank))
    return Eigenpairs(values, moments.lift(vectors))


def _eigenpairs_by_products(
    moments: Moments, truncation: Truncation, n_components: int, n_samples: float, plan: Plan
) -> Eigenpairs:
    if not isinstance(truncation, str | Integral):
        raise NotConvergedError("this truncation needs the whole spectrum.")
    n_features = int(moments.varies.sum())
    rank = min(n_features, int(moments.n_samples) - 1)
    if isinstance(truncation, str):
        _check_rank(n_components, rank, f"n_components={n_components}", moments)
    else:
        _check_rank(int(truncation), rank, f"truncation={truncation}", moments)
    spectrum = EstimatedSpectrum(
        moments.apply,
        moments.size,
        rank,
        moments.total_variance,
        max_products=plan.max_products,
    )
    matrix_will_do = plan.fallback is not None
    if not isinstance(truncation, str):
        return spectrum.leading(int(truncation), only_if_separated=matrix_will_do)
    while True:
        bulk = noise_bulk(spectrum.values, n_features, n_samples)
        in_noise = bulk.n_above < n_components
        pairs = spectrum.leading(
            max(bulk.n_above, n_components), only_if_separated=in_noise and matrix_will_do
        )
        spectrum.settle(bulk.n_above, _SETTLED * bulk.edge)
        # What was learnt meanwhile can change the number.
        if noise_bulk(spectrum.values, n_features, n_samples).n_above == bulk.n_above:
            return pairs


def _check_truncation(truncation: object, n_components: int, n_features: int) -> None:
    expected = "expected 'auto', an integer, a fraction of the variance up to 1, or None."
    match truncation:
        case None:
            return
        case str() if truncation == "auto":
            return
        case str():
            raise ValueError(f"truncation={shown(truncation)} is unknown; {expected}")
        case Integral() if not isinstance(truncation, NO_NUMBERS):
            if not n_components <= int(truncation) <= n_features:
                raise ValueError(
                    f"truncation={shown(truncation)} is out of range: it must be from n_components="
                    f"{n_components} to the number of features, {n_features}."
                )
        case Real() if not isinstance(truncation, NO_NUMBERS):
            if not 0 < float(truncation) <= 1:
                raise ValueError(
                    f"truncation={float(truncation):g} is out of range: as a fraction of the "
                    "variance it must be greater than 0 and at most 1."
                )
        case _:
            raise TypeError(
                f"truncation={shown(truncation)} ({type(truncation).__name__}) is unknown; "
                f"{expected}"
            )


def _check_rank(wanted: int, rank: int, option: str, moments: Moments) -> None:
    if wanted > rank:
        raise ValueError(
            f"{option} asks for {wanted} directions in which the data vary, but to working "
            f"precision S has {rank} among {moments.n_features} features "
            f"({moments.n_samples} rows): beyond them S+ v = lambda S v has no solution. "
            "Use truncation='auto' or a smaller number."
        )
