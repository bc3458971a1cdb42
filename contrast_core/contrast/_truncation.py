"""How many principal directions of S stand out of its noise."""

from __future__ import annotations

import math
from functools import lru_cache
from numbers import Integral, Real
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.contrast._automatic import _varying
from contrast_core.linalg import (
    Eigenpairs,
    EstimatedSpectrum,
    NotConvergedError,
    Spectrum,
    leading_eigenpairs,
)
from contrast_core.moments import ImplicitMoments, Moments, affordable, exact_moments

Truncation: TypeAlias = Literal["auto"] | int | float | None

_SETTLED = 0.02  # residual, relative to the edge, of an eigenvalue that counts as below it
_CHANCE_QUANTILE = 2.02  # 99% point of the Tracy-Widom law (beta = 1)


class NoiseBulk(NamedTuple):
    """Noise variance, the largest eigenvalue that noise alone gives, how many exceed it."""

    variance: float
    edge: float
    n_above: int


def noise_bulk(eigenvalues: FloatArray, n_features: int, n_samples: float) -> NoiseBulk:
    r"""Noise level and edge of the noise in the spectrum of a sample covariance.

    With isotropic noise of variance :math:`\sigma^2`, the eigenvalues beside those of signal and
    background fill the Marchenko-Pastur law, up to

    .. math:: \sigma^2 (1 + \sqrt{D/n})^2 .

    The noise variance is the ratio of the median eigenvalue to the law's median, a large signal
    having no more say in it than a small one. The eigenvalues above the edge are set aside and
    the rest, a noise spectrum with so many fewer dimensions and degrees of freedom, gives the
    next estimate, until no more stand out. With D > n the medians are those of the nonzero
    eigenvalues.

    Parameters
    ----------
    eigenvalues : ndarray of shape (n_features,) or (rank,)
        Eigenvalues of the covariance (divisor n), descending; zeros may be left out.
    n_features : int
        Number of features that vary, D.
    n_samples : float
        Effective number of independent rows, n, about whose mean the covariance was taken;
        greater than 1.

    Returns
    -------
    NoiseBulk
        The edge includes the fluctuation of the largest noise eigenvalue, at 99% of the
        Tracy-Widom law.

    Raises
    ------
    ValueError
        If no eigenvalue is positive.

    References
    ----------
    Gavish and Donoho, IEEE Transactions on Information Theory 60:5040, 2014 (median against
    median); Johnstone, Annals of Statistics 29:295, 2001 (centre and scale of the largest
    eigenvalue).
    """
    rank = numerical_rank(eigenvalues)
    if not rank:
        raise ValueError("the data are constant: no eigenvalue of their covariance is positive.")
    degrees = n_samples - 1
    # Fewer nonzero eigenvalues than features and rows allow: exactly collinear features.
    dimension = rank if rank < min(n_features, degrees) else n_features
    in_law = max(1, min(rank, int(degrees)))
    above = 0
    while True:
        p, n = dimension - above, max(degrees - above, 1.0)
        # The covariance was divided by n_samples, the law's by its degrees of freedom.
        scale = n / n_samples
        median = float(np.median(eigenvalues[above:in_law]))
        variance = median / (scale * marchenko_pastur_median(p / n))
        edge = scale * variance * _largest_eigenvalue(p, n)
        found = min(int((eigenvalues > edge).sum()), in_law - 1)
        if found <= above:
            return NoiseBulk(variance, edge, above)
        above = found


@lru_cache(maxsize=256)
def marchenko_pastur_median(aspect_ratio: float) -> float:
    """Median of the nonzero part of the Marchenko-Pastur law with unit variance, D/n given."""
    root = math.sqrt(aspect_ratio)
    angle = np.linspace(0.0, math.pi, 4001)
    # x = 1 + c - 2 sqrt(c) cos(angle) runs over the support and smooths the density's ends.
    x = (1 - root) ** 2 + 4 * root * np.sin(angle / 2) ** 2
    density = np.sin(angle) ** 2 / np.maximum(x, np.finfo(np.float64).tiny)
    if x[0] < 1e-12:  # c = 1: sin^2 / x has the limit 1 at 0
        density[0] = 1.0
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return float(np.interp(mass[-1] / 2, mass, x).item())


def _largest_eigenvalue(n_features: float, degrees: float) -> float:
    """99% point of the largest eigenvalue of a noise covariance with unit variance."""
    a, b = math.sqrt(max(degrees - 0.5, 0.5)), math.sqrt(max(n_features - 0.5, 0.5))
    spread = (a + b) * (1 / a + 1 / b) ** (1 / 3)
    return float(((a + b) ** 2 + _CHANCE_QUANTILE * spread) / degrees)


def numerical_rank(eigenvalues: FloatArray) -> int:
    """How many eigenvalues, descending, exceed the rounding of the largest."""
    rounding = len(eigenvalues) * np.finfo(np.float64).eps * max(float(eigenvalues[0]), 0.0)
    return int((eigenvalues > rounding).sum())


def truncated_eigenpairs(
    moments: Moments, truncation: Truncation, n_components: int, n_samples: float
) -> Eigenpairs:
    """Leading eigenpairs of a covariance, as many as a truncation rule keeps.

    Parameters
    ----------
    moments : SecondMoments
        Mean and covariance S.
    truncation : "auto", int, float or None
        "auto": the eigenvalues above the noise (see `noise_bulk`); an integer: so many; a fraction
        up to 1: the fewest that hold this part of the variance; None: all, S being nonsingular.
    n_components : int
        At least so many are kept, except with an integer.
    n_samples : float
        Effective number of rows, for "auto".

    Returns
    -------
    Eigenpairs
        Positive eigenvalues, descending (s,), and vectors in feature space as rows (s, D).

    Raises
    ------
    ValueError, TypeError
        If `truncation` is none of these, or S has too low a rank for it or for `n_components`.
    """
    _check_truncation(truncation, n_components, moments.n_features)
    if isinstance(moments, ImplicitMoments):
        try:
            return _eigenpairs_by_products(moments, truncation, n_components, n_samples)
        except NotConvergedError as error:
            if not affordable(moments.n_samples, moments.n_features):
                raise NotConvergedError(
                    f"truncation={truncation!r} of {moments.n_samples} rows and "
                    f"{moments.n_features} features: {error} Data of this size need a gap there: "
                    "use truncation='auto', an integer where the eigenvalues have a gap, or fewer "
                    "features."
                ) from error
        moments = exact_moments(moments)
    if truncation is None or isinstance(truncation, Integral):
        wanted = moments.n_features if truncation is None else int(truncation)
        pairs = leading_eigenpairs(moments.covariance, min(wanted, len(moments.covariance)))
        _check_rank(wanted, numerical_rank(pairs.values), f"truncation={truncation}", moments)
        return Eigenpairs(pairs.values, moments.lift(pairs.components))
    spectrum = Spectrum(moments.covariance)
    rank = numerical_rank(spectrum.values)
    _check_rank(n_components, rank, f"n_components={n_components}", moments)
    if isinstance(truncation, str):
        n_features = int(_varying(moments).sum())
        kept = noise_bulk(spectrum.values, n_features, n_samples).n_above
    else:
        held = np.cumsum(spectrum.values[:rank])
        kept = 1 + int(np.searchsorted(held, float(truncation) * held[-1] * (1 - 1e-12)))
    values, vectors = spectrum.leading(min(max(kept, n_components), rank))
    return Eigenpairs(values, moments.lift(vectors))


def _eigenpairs_by_products(
    moments: ImplicitMoments, truncation: Truncation, n_components: int, n_samples: float
) -> Eigenpairs:
    if not isinstance(truncation, str | Integral):
        raise NotConvergedError("this truncation needs the whole spectrum.")
    n_features = int(_varying(moments).sum())
    rank = min(n_features, moments.n_samples - 1)
    if isinstance(truncation, str):
        _check_rank(n_components, rank, f"n_components={n_components}", moments)
    else:
        _check_rank(int(truncation), rank, f"truncation={truncation}", moments)
    spectrum = EstimatedSpectrum(moments.covariance, rank, moments.total_variance)
    matrix_will_do = affordable(moments.n_samples, moments.n_features)
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
        case None | "auto":
            return
        case str():
            raise ValueError(f"truncation={truncation!r} is unknown; {expected}")
        case Integral() if not isinstance(truncation, bool):
            if not n_components <= int(truncation) <= n_features:
                raise ValueError(
                    f"truncation={truncation} is out of range: it must be from n_components="
                    f"{n_components} to the number of features, {n_features}."
                )
        case Real() if not isinstance(truncation, bool):
            if not 0 < float(truncation) <= 1:
                raise ValueError(
                    f"truncation={float(truncation):g} is out of range: as a fraction of the "
                    "variance it must be greater than 0 and at most 1."
                )
        case _:
            raise TypeError(
                f"truncation={truncation!r} ({type(truncation).__name__}) is unknown; {expected}"
            )


def _check_rank(wanted: int, rank: int, option: str, moments: Moments) -> None:
    if wanted > rank:
        raise ValueError(
            f"{option} asks for {wanted} directions in which the data vary, but to working "
            f"precision S has {rank} among {moments.n_features} features "
            f"({moments.n_samples} rows): beyond them S+ v = lambda S v has no solution. "
            "Use truncation='auto' or a smaller number."
        )
