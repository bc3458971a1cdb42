"""Moments within groups of rows, such as donors or batches, and between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import FloatArray, check_labels, check_weights, shown
from contrast_core.moments._accumulator import Summary
from contrast_core.moments._covariance import Centres, Formed, Moments
from contrast_core.moments._given import check_means, names_of_both
from contrast_core.moments._second_moments import SecondMoments


@dataclass(frozen=True, eq=False)
class GroupedMoments(Formed, Moments):
    r"""Moments of a dataset whose rows belong to groups, as two parts that add up exactly.

    .. math:: C = W + B, \qquad
        W = \frac1n \sum_i (x_i - m_{g(i)})(x_i - m_{g(i)})^\top, \qquad
        B = \sum_g \frac{n_g}{n} (m_g - m)(m_g - m)^\top

    What `SecondMoments.from_data` makes of data with ``groups=``. As moments they are those of all
    rows, C; `within` and `between` are moments themselves. W is taken about the groups' means
    row by row, so it loses no digits where groups lie far apart. With a divisor of n its
    expectation is :math:`(1 - G/n)` times the covariance within groups, G being their number
    (:math:`1 - \frac1n \sum_g \sum_{i \in g} w_i^2 / w_g` with weights).

    Parameters
    ----------
    groups : ndarray of shape (G,)
        The groups' labels, ascending.
    group_weights : ndarray of shape (G,)
        Number of rows of each, or their total weight.
    group_means : ndarray of shape (G, n_features)
        Mean of each.
    within_covariance : ndarray of shape (n_features, n_features)
        W.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.

    Raises
    ------
    ValueError, TypeError
        If these are not moments: shapes that differ, a label twice, NaN, a weight that is not
        positive, a covariance that is not symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import SecondMoments
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [10.0, 5.0], [12.0, 5.0]])
    >>> moments = SecondMoments.from_data(X, groups=["a", "a", "b", "b"])
    >>> moments.within.covariance
    array([[1., 0.],
           [0., 0.]])
    >>> moments.between.covariance
    array([[25., 10.],
           [10.,  4.]])
    """

    groups: NDArray[Any]
    group_weights: NDArray[Any]
    group_means: FloatArray
    within_covariance: FloatArray
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        means = check_means(self.group_means, "group_means")
        groups = check_labels(self.groups, len(means), "groups")
        if len(np.unique(groups)) < len(groups):
            raise ValueError(f"groups={shown(groups.tolist())} names a group twice.")
        weights = np.asarray(self.group_weights)
        if check_weights(weights, len(means), "group_weights").min() <= 0:
            raise ValueError("group_weights holds 0; leave out groups without rows.")
        n = weights.sum().item()
        within = SecondMoments(n, weights @ means / n, self.within_covariance, self.feature_names)
        order = np.argsort(groups)
        vars(self).update(
            groups=groups[order],
            group_weights=weights[order],
            group_means=means[order],
            within_covariance=within.covariance,
            feature_names=within.feature_names,
        )

    @classmethod
    def _of_summary(
        cls, summary: Summary, groups: NDArray[Any], feature_names: tuple[str, ...] | None
    ) -> GroupedMoments:
        """Of the groups that have rows."""
        there = np.flatnonzero(summary.weights)
        moments = object.__new__(cls)
        vars(moments).update(
            groups=groups[there],
            group_weights=summary.weights[there],
            group_means=summary.means[there],
            within_covariance=summary.within,
            feature_names=feature_names,
        )
        return moments

    @property
    def n_samples(self) -> Any:
        """Number of rows, n, or their total weight."""
        return self.group_weights.sum().item()

    @cached_property
    def mean(self) -> FloatArray:
        """Mean of all rows, (n_features,)."""
        return np.asarray(self.group_weights @ self.group_means / self.n_samples)

    @property
    def within(self) -> SecondMoments:
        """What varies within groups, W."""
        within = SecondMoments._unchecked(
            self.n_samples, self.mean, self.within_covariance, self.feature_names
        )
        vars(within)["centres"] = Centres(self.groups, self.group_means)
        return within

    @property
    def between(self) -> SecondMoments:
        """What varies between groups' means, B, of rank G - 1 at most."""
        shares = np.sqrt(self.group_weights / self.n_samples)
        away = shares[:, None] * (self.group_means - self.mean)
        return SecondMoments._unchecked(
            self.n_samples, self.mean, np.asarray(away.T @ away), self.feature_names
        )

    @cached_property
    def covariance(self) -> FloatArray:
        """C = W + B, of shape (n_features, n_features)."""
        return self.between.covariance + self.within_covariance

    def merge(self, other: GroupedMoments) -> GroupedMoments:
        """Moments of the two datasets together, in which groups of the same label are one.

        Raises ValueError if the features differ, TypeError if one of them has no groups.
        """
        advice = "take them with groups= too, or merge `within` or `between` alone"
        names = names_of_both(self, other, advice)
        listed = [*self.groups.tolist(), *other.groups.tolist()]
        labels = np.unique(check_labels(listed, len(listed), "the groups of both"))
        first, second = (moments._summary_of(labels) for moments in (self, other))
        return GroupedMoments._of_summary(first.merge(second), labels, names)

    def _summary_of(self, labels: ArrayLike) -> Summary:
        """Of these groups, which include all that there are."""
        labels = np.asarray(labels)
        at = np.searchsorted(labels, self.groups)
        weights = np.zeros(len(labels), self.group_weights.dtype)
        means = np.zeros((len(labels), self.n_features))
        weights[at], means[at] = self.group_weights, self.group_means
        return Summary(weights, means, self.within_covariance)
