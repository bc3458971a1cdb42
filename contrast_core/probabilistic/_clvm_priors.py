"""Priors and penalties on the loadings, and the M-step with each of them.

`PriorSettings` holds all parameters of the priors that a user of `CLVM` can set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

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

Sparsity: TypeAlias = float | Literal["auto", "horseshoe"]

_NEWTON_STEPS = 50  # largest number of steps; about five in practice


@dataclass(frozen=True)
class PriorSettings:
    """Parameters of the priors, under the names that `CLVM(priors=...)` takes.

    `feature_groups` holds the group of each feature as an integer, counted from 0.
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
    def from_mapping(cls, given: object, n_features: int) -> PriorSettings:
        """Check the settings in a mapping, and add defaults for the missing settings."""
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
        """Return the groups of the features in the mask `some`, counted from 0.

        Without `feature_groups` each feature is its own group.
        """
        if self.feature_groups is None:
            return np.arange(int(some.sum()))
        return np.unique(self.feature_groups[some], return_inverse=True)[1]


class Sums(NamedTuple):
    """Sums over rows from the E-step, divided by `n_rows`. The M-step is computed from them.

    D is the number of rows of the loadings, and K is the number of latent variables.

    cross : ndarray of shape (D, K)
        Products of rows with latent variables.
    second : ndarray of shape (K, K), or (D, K, K) if each value of the data has its own weight
        Products of latent variables with each other.
    noise : float
        Noise variance.
    n_rows : float
        Divisor of the sums: the number of rows, or 1 for plain sums.
    """

    cross: FloatArray
    second: FloatArray
    noise: float
    n_rows: float = 1.0


@dataclass(frozen=True)
class Prior:
    """Flat prior, and base class of the other priors."""

    smooth: ClassVar[bool] = True

    def value(self, loadings: FloatArray) -> float:
        """Return the log-prior, which is added to the log-likelihood of all rows."""
        return 0.0

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Return the gradient of the log-likelihood plus the log-prior, divided by `n_rows`.

        `of_likelihood` is the gradient of the log-likelihood, divided by `n_rows`.
        """
        return of_likelihood

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the loadings of the M-step, given the loadings of the last iteration."""
        return solved(sums.second, sums.cross)


LIKELIHOOD_ALONE = Prior()


@dataclass(frozen=True)
class Support(Prior):
    """Constraint that rows of the salient loadings are zero unless they are in `kept`."""

    n_shared: int
    kept: NDArray[np.bool_]

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Return the gradient, which is zero where loadings are held at zero."""
        found = of_likelihood.copy()
        found[~self.kept, self.n_shared :] = 0.0
        return found

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the loadings of the M-step.

        Rows that are not in `kept` are regressed on the shared latent variables only.
        """
        cross, second = sums.cross, sums.second
        found, k, without = solved(second, cross), self.n_shared, ~self.kept
        of_these = second if second.ndim == 2 else second[without]
        found[without, k:] = 0.0
        found[without, :k] = solved(of_these[..., :k, :k], cross[without, :k])
        return found


@dataclass(frozen=True)
class Penalty(Prior):
    """Penalty on the length of each group of rows of the salient loadings.

    `groups` holds the group of each row, counted from 0. The length of a group is the Euclidean
    norm of all its entries. It is multiplied by the group's rate in `rates`.
    """

    n_shared: int
    rates: FloatArray
    groups: NDArray[np.intp]
    smooth: ClassVar[bool] = False

    @classmethod
    def adaptive(
        cls, penalty: float, dense: FloatArray, n_shared: int, groups: NDArray[np.intp]
    ) -> Penalty:
        """Return the penalty with the rate rho / length for each group.

        `penalty` is rho. The length is the group's length in `dense`, the loadings of the fit
        without a penalty.
        """
        lengths = group_lengths(dense[:, n_shared:], groups)
        rates = np.full(len(lengths), np.inf)
        np.divide(penalty, lengths, out=rates, where=lengths > 0)
        return cls(n_shared, rates, groups)

    def value(self, loadings: FloatArray) -> float:
        """Return minus the penalty."""
        lengths = group_lengths(loadings[:, self.n_shared :], self.groups)
        return -float((self.rates[lengths > 0] * lengths[lengths > 0]).sum())

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the loadings of the penalised M-step, some of whose rows can be zero."""
        thresholds = sums.noise * self.rates / sums.n_rows
        return proximal(sums.cross, sums.second, self.n_shared, thresholds, self.groups)


@dataclass(frozen=True)
class Relevance(Prior):
    r"""Normal prior of each column of the shared loadings S, with an unknown variance per column.

    The variances have a vague inverse gamma prior. After they are integrated out, the log-prior of
    a matrix S with orthogonal columns is, up to a constant,

    .. math:: \log p(S) = -(D / 2 + a) \log \det(b I + S^\top S / 2),

    where D is `n_features`, a is `shape` and b is `rate`. This formula is used for every S, so that
    the prior does not depend on the rotation of S. The log-determinant is concave, so its tangent
    gives a lower bound of the log-prior that is quadratic in S. The M-step maximises this bound.
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
        """Return the gradient of the log-likelihood plus the log-prior, divided by `n_rows`."""
        found, k = of_likelihood.copy(), self.n_shared
        found[:, :k] -= loadings[:, :k] @ self._precision(loadings, n_rows)
        return found

    def maximised(self, sums: Sums, loadings: FloatArray) -> FloatArray:
        """Return the loadings of the M-step by ridge regression."""
        with_prior, k = sums.second.copy(), self.n_shared
        with_prior[..., :k, :k] += sums.noise * self._precision(loadings, sums.n_rows)
        return solved(with_prior, sums.cross)


def group_lengths(rows: FloatArray, groups: NDArray[np.intp]) -> FloatArray:
    """Return the Euclidean norm of all entries of each group of rows, (n_groups,)."""
    return np.asarray(np.sqrt(np.bincount(groups, (rows**2).sum(axis=1))))


def proximal(
    cross: FloatArray,
    second: FloatArray,
    n_shared: int,
    thresholds: FloatArray,
    groups: NDArray[np.intp],
) -> FloatArray:
    """Return the loadings of the M-step with a penalty on the length of each group of rows.

    The solution is exact. First the shared loadings are eliminated. What is left of `second` for
    the salient latent variables is called A, and what is left of a row of `cross` is called b. The
    remaining problem is solved for each group. Its salient rows w minimise the sum of
    ``w A w^T / 2 - w b^T`` over the rows, plus ``threshold * r``, where r is the norm of all
    entries of the rows. If the norm of all vectors b of the group is at most the threshold, the
    rows are zero. Otherwise each row is ``b (A + (threshold / r) I)^-1``.
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
    group = (np.cumsum(left) - 1)[groups[kept]]  # index of each kept row's group
    length = np.zeros(len(limits))
    # Newton's method finds the length r of each group. `square` is the squared norm of the group's
    # rows divided by r^2, so it must be 1. The function 1 / sqrt(square) - 1, whose root is found,
    # is nearly linear in r.
    for _ in range(_NEWTON_STEPS):
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
    """Multiply each row by its own matrix, or all rows by the same matrix if only one is given."""
    if len(matrices) == 1:
        return np.asarray(rows @ matrices[0])
    return np.asarray((rows[:, None, :] @ matrices)[:, 0, :])


def solved(second: FloatArray, cross: FloatArray) -> FloatArray:
    """Return ``cross @ inv(second)``, where `second` is one matrix, or one matrix for each row."""
    if second.ndim == 2:
        return np.asarray(np.linalg.lstsq(second, cross.T, rcond=None)[0].T, np.float64)
    return np.asarray(np.linalg.solve(second, cross[:, :, None])[:, :, 0], np.float64)
