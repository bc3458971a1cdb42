"""Priors and penalties of the loadings, which are maximised with the likelihood, and their M-steps.

Everything that can be set about a prior of `CLVM` is in `PriorSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import (
    FloatArray,
    check_flag,
    check_labels,
    check_number,
    shown,
)
from contrast_core.probabilistic._row_posterior import DEGREES

_NEWTON_STEPS = 50  # about five in practice


@dataclass(frozen=True)
class PriorSettings:
    """Parameters of the priors, under the names that `CLVM(priors=...)` takes.

    `feature_groups` holds a number from 0 for each feature.
    """

    degrees_of_freedom: float = DEGREES
    horseshoe_scale: float = 1.0
    horseshoe_threshold: float | None = None
    horseshoe_probability: float = 0.5
    ard_shape: float = 1e-3
    ard_rate: float = 1e-3  # in units of the noise variance
    adaptive_penalty: bool = True
    feature_groups: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, given: object, n_features: int) -> PriorSettings:
        """Return the settings that a mapping asks for, checked; the others are the defaults."""
        if given is None:
            return cls()
        names = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping):
            raise TypeError(
                f"priors={shown(given)} is {type(given).__name__}; expected a dict with some of "
                f"{', '.join(names)}."
            )
        checked: dict[str, Any] = {}
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"priors has {shown(name)}; expected some of {', '.join(names)}.")
            label = f"priors[{name!r}]"
            if name == "adaptive_penalty":
                checked[name] = check_flag(value, label)
            elif name == "feature_groups":
                labels = check_labels(value, n_features, label, "features")
                checked[name] = np.unique(labels, return_inverse=True)[1]
            elif name == "horseshoe_probability":
                checked[name] = check_number(value, label, above=0, below=1)
            else:
                checked[name] = check_number(value, label, above=0)
        return cls(**checked)

    def groups_of(self, some: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return the group of each of some features; without groups each is one of its own."""
        if self.feature_groups is None:
            return np.arange(int(some.sum()))
        return np.unique(self.feature_groups[some], return_inverse=True)[1]


class Sums(NamedTuple):
    """Sums of the E-step over a share ``1 / n_rows`` of the rows, from which an M-step is made.

    cross : ndarray of shape (D, K)
        Products of rows with latent variables.
    second : ndarray of shape (K, K), or (D, K, K) where values have weights of their own
        Products of latent variables with each other.
    noise : float
        Noise variance.
    n_rows : float
    """

    cross: FloatArray
    second: FloatArray
    noise: float
    n_rows: float = 1.0


@dataclass(frozen=True)
class Prior:
    """Base of the priors; it adds nothing to the likelihood."""

    smooth: ClassVar[bool] = True

    def value(self, loadings: FloatArray) -> float:
        """Return the logarithm of the prior, which is added to the log-likelihood of all rows."""
        return 0.0

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Return the gradient per row, given that of the likelihood."""
        return of_likelihood

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the M-step's loadings, given those before."""
        return solved(sums.second, sums.cross)


LIKELIHOOD_ALONE = Prior()


@dataclass(frozen=True)
class Support(Prior):
    """Constraint that rows of the salient loadings are zero, except for those that are kept."""

    n_shared: int
    kept: NDArray[np.bool_]

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Return the gradient, zero where loadings are held at zero."""
        found = of_likelihood.copy()
        found[~self.kept, self.n_shared :] = 0.0
        return found

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the loadings, by regression on the shared variables alone for the other rows."""
        cross, second = sums.cross, sums.second
        found, k, without = solved(second, cross), self.n_shared, ~self.kept
        of_these = second if second.ndim == 2 else second[without]
        found[without, k:] = 0.0
        found[without, :k] = solved(of_these[..., :k, :k], cross[without, :k])
        return found


@dataclass(frozen=True)
class Penalty(Prior):
    """Penalty on the lengths of groups of rows of the salient loadings, with a rate for each.

    `groups` has a number from 0 for each row, and a group's length is that of all its entries.
    """

    n_shared: int
    rates: FloatArray
    groups: NDArray[np.intp]
    smooth: ClassVar[bool] = False

    @classmethod
    def adaptive(
        cls, penalty: float, dense: FloatArray, n_shared: int, groups: NDArray[np.intp]
    ) -> Penalty:
        """Return the penalty whose rates are rho over the most likely lengths."""
        lengths = group_lengths(dense[:, n_shared:], groups)
        rates = np.full(len(lengths), np.inf)
        np.divide(penalty, lengths, out=rates, where=lengths > 0)
        return cls(n_shared, rates, groups)

    def value(self, loadings: FloatArray) -> float:
        """Return minus the penalty."""
        lengths = group_lengths(loadings[:, self.n_shared :], self.groups)
        return -float((self.rates[lengths > 0] * lengths[lengths > 0]).sum())

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the exact minimum, in which rows can be zero."""
        thresholds = sums.noise * self.rates / sums.n_rows
        return proximal(sums.cross, sums.second, self.n_shared, thresholds, self.groups)


@dataclass(frozen=True)
class Relevance(Prior):
    r"""Normal prior of each column of S, whose variance has a vague inverse gamma prior.

    With the variances integrated out,

    .. math:: \log p(S) = -(D / 2 + a) \log \det(b I + S^\top S / 2),

    which does not depend on the rotation of S. The log-determinant is concave, so that its tangent
    gives a lower bound of the prior that is quadratic in S; the M-step maximises this bound.
    """

    n_shared: int
    n_features: int
    shape: float
    rate: float

    def _inner(self, loadings: FloatArray) -> tuple[FloatArray, FloatArray]:
        shared = loadings[:, : self.n_shared]
        values, vectors = np.linalg.eigh(self.rate * np.eye(self.n_shared) + shared.T @ shared / 2)
        return values, vectors

    @property
    def _weight(self) -> float:
        return self.n_features / 2 + self.shape

    def _precision(self, loadings: FloatArray, n_rows: float) -> FloatArray:
        values, vectors = self._inner(loadings)
        return np.asarray(self._weight / n_rows * vectors / values @ vectors.T)

    def value(self, loadings: FloatArray) -> float:
        """Return the logarithm of p(S)."""
        return -self._weight * float(np.log(self._inner(loadings)[0]).sum())

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Return the gradient of the log-likelihood plus the prior."""
        found, k = of_likelihood.copy(), self.n_shared
        found[:, :k] -= loadings[:, :k] @ self._precision(loadings, n_rows)
        return found

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the loadings by ridge regression."""
        with_prior, k = sums.second.copy(), self.n_shared
        with_prior[..., :k, :k] += sums.noise * self._precision(loadings, sums.n_rows)
        return solved(with_prior, sums.cross)


def group_lengths(rows: FloatArray, groups: NDArray[np.intp]) -> FloatArray:
    """Return the length of all rows of each group together, (n_groups,)."""
    return np.asarray(np.sqrt(np.bincount(groups, (rows**2).sum(axis=1))))


def proximal(
    cross: FloatArray,
    second: FloatArray,
    n_shared: int,
    thresholds: FloatArray,
    groups: NDArray[np.intp],
) -> FloatArray:
    """Return the exact M-step's loadings with a penalty on the length of each group of rows.

    Shared loadings are eliminated. The salient rows w of a group then minimise the sum of
    ``w A w^T / 2 - w b^T``, plus ``threshold * r`` with r the length of them all. They are zero if
    all b together are shorter than the threshold, and ``b (A + threshold / r)^-1`` otherwise.
    """
    k, several = n_shared, second[None] if second.ndim == 2 else second
    of_shared, mixed = several[:, :k, :k], several[:, :k, k:]
    shared, salient = np.split(cross, [k], axis=1)
    regression = np.asarray(np.linalg.solve(of_shared, mixed), np.float64)
    values, vectors = np.linalg.eigh(several[:, k:, k:] - mixed.swapaxes(1, 2) @ regression)
    along = _turned(salient - _turned(shared, regression), vectors)
    left = group_lengths(along, groups) > thresholds
    kept, limits = left[groups], thresholds[left]
    curvatures, some = np.broadcast_to(values, along.shape)[kept], along[kept]
    group = (np.cumsum(left) - 1)[groups[kept]]  # of each row that is kept, among these groups
    length = np.zeros(len(limits))
    for _ in range(_NEWTON_STEPS):  # on 1 / |..| - 1, which is nearly linear in the length
        systems = curvatures * length[group, None] + limits[group, None]
        squares = (some / systems) ** 2
        square = np.bincount(group, squares.sum(axis=1), len(limits))
        slope = np.bincount(group, (squares * curvatures / systems).sum(axis=1), len(limits))
        change = (square**0.5 - 1) * square / slope
        length += change
        if np.all(np.abs(change) <= 1e-12 * length):
            break
    along = np.zeros(along.shape)
    lengths = length[group, None]
    along[kept] = some * lengths / (curvatures * lengths + limits[group, None])
    rows = _turned(along, vectors.swapaxes(1, 2))
    return np.hstack(
        [solved(second[..., :k, :k], shared - _turned(rows, mixed.swapaxes(1, 2))), rows]
    )


def _turned(rows: FloatArray, matrices: FloatArray) -> FloatArray:
    """Return each row times its matrix, or times the matrix that all share."""
    if len(matrices) == 1:
        return np.asarray(rows @ matrices[0])
    return np.asarray((rows[:, None, :] @ matrices)[:, 0, :])


def solved(second: FloatArray, cross: FloatArray) -> FloatArray:
    """Return ``cross @ inv(second)``, row by row where each has a matrix of its own."""
    if second.ndim == 2:
        return np.asarray(np.linalg.lstsq(second, cross.T, rcond=None)[0].T, np.float64)
    return np.asarray(np.linalg.solve(second, cross[:, :, None])[:, :, 0], np.float64)
