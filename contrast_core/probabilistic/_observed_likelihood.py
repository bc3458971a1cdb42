"""The contrastive likelihood of what is observed, and its gradient, by small stacked systems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._patterns import (
    Systems,
    latent_means,
    outer_products,
    patterns_of,
    systems_of,
)
from contrast_core.rows import ELEMENTS

_LOG_2PI = float(np.log(2 * np.pi))


class ContrastiveLikelihood(NamedTuple):
    """The objective, and its derivatives by W, (n_features, d), and by log sigma^2."""

    value: float
    by_loadings: FloatArray
    by_log_noise: float


class Ratio(NamedTuple):
    """Logarithm of a ratio of residuals, and its derivative by W, (n_features, d)."""

    value: float
    by_loadings: FloatArray


class _Span(NamedTuple):
    """Some rows, and the patterns that they have; rows of a pattern follow each other."""

    rows: slice
    patterns: slice


@dataclass(frozen=True, eq=False)
class ObservedRows:
    r"""Foreground and background rows about their means, 0 where a value is missing.

    Sorted by pattern, so that what depends on the pattern alone is computed once for all its rows.
    Nothing here is larger than the rows are: systems are d x d, and rows are taken in spans.

    Parameters
    ----------
    values : ndarray of shape (n, n_features)
        Centred rows, 0 where missing; those of both datasets.
    masks : ndarray of shape (P, n_features)
        1 where observed, of each pattern.
    starts : ndarray of shape (P,)
        The first row of each pattern.
    foreground, background : ndarray of shape (n,)
        Weight of each row in its dataset, which sum to one; 0 in the other.
    spans : tuple
        Rows that are taken together.
    """

    values: FloatArray
    masks: FloatArray
    starts: NDArray[np.intp]
    foreground: FloatArray
    background: FloatArray
    spans: tuple[_Span, ...]

    @classmethod
    def sorted(
        cls,
        values: FloatArray,
        observed: NDArray[np.bool_],
        foreground: FloatArray,
        background: FloatArray,
        d: int,
    ) -> ObservedRows:
        """Sort rows by pattern; `d` is the number of components that they will be used for."""
        masks, codes = patterns_of(observed)
        order = np.argsort(codes, kind="stable")
        n, n_features = values.shape
        edges = [*range(0, n, max(1, ELEMENTS // max(n_features, d * d))), n]
        # A pattern that reaches from one span into the next counts as two.
        begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
        starts = np.union1d(begins, edges[:-1])
        between = np.searchsorted(starts, edges)
        spans = (
            _Span(slice(*rows), slice(*patterns))
            for rows, patterns in zip(pairwise(edges), pairwise(between), strict=True)
        )
        return cls(
            values[order],
            masks[codes[order][starts]],
            starts,
            foreground[order],
            background[order],
            tuple(spans),
        )

    @property
    def squares(self) -> FloatArray:
        """Squared length of each row, (n,)."""
        return np.asarray(np.einsum("nf,nf->n", self.values, self.values))

    def likelihood(
        self, loadings: FloatArray, log_noise: float, gamma: float
    ) -> ContrastiveLikelihood:
        r"""Value and gradient of the objective at ``gamma``, the contrast adjusted for sizes.

        .. math:: \sum_i a_i \log N(x_i^o; 0, A_i) - \gamma \sum_j b_j \log N(y_j^o; 0, B_j)

        with weights a and b that sum to one. Of a row with D_o values observed and
        :math:`M = W_o^\top W_o + \sigma^2 I`, :math:`z = M^{-1} W_o^\top x_o`,

        .. math:: \log\det A = (D_o - d) \log\sigma^2 + \log\det M, \quad
            x_o^\top A^{-1} x_o = (x_o^\top x_o - z^\top W_o^\top x_o) / \sigma^2, \quad
            A^{-1} W_o = W_o M^{-1} .

        References
        ----------
        Li, Jones and Engelhardt 2020, Sec. 7.1.
        """
        noise, d = float(np.exp(log_noise)), loadings.shape[1]
        value, by_log_noise = 0.0, 0.0
        by_loadings = np.zeros_like(loadings)
        weights = self.foreground - gamma * self.background
        for rows, masks, starts, systems, projected, means in self._solved(loadings, noise):
            x, c = self.values[rows], weights[rows]
            in_pattern = np.add.reduceat(c, starts)
            n_observed = masks.sum(axis=1)
            left = np.einsum("nf,nf->n", x, x) - np.einsum("nk,nk->n", projected, means)
            densities = n_observed * _LOG_2PI + (n_observed - d) * log_noise
            value -= 0.5 * float(
                in_pattern @ (densities + systems.log_determinant) + c @ left / noise
            )
            inner = np.add.reduceat(c[:, None] * outer_products(means), starts) / noise
            inner += in_pattern[:, None] * systems.inverse.reshape(-1, d * d)
            by_loadings += x.T @ (c[:, None] * means) / noise - _times(masks, inner, loadings)
            traces = np.trace(systems.inverse, axis1=1, axis2=2)
            lengths = np.einsum("nk,nk->n", means, means)
            by_log_noise -= 0.5 * float(
                in_pattern @ (n_observed - d + noise * traces) - c @ (left / noise - lengths)
            )
        return ContrastiveLikelihood(value, by_loadings, by_log_noise)

    def residual_ratio(self, loadings: FloatArray, ridge: float) -> Ratio:
        r"""Foreground over background: what the columns of W leave of the observed values.

        .. math:: \log \frac{\sum_i a_i r(x_i)}{\sum_j b_j r(y_j)}, \qquad
            r(x) = \min_z \|x_o - W_o z\|^2 + \tau \|z\|^2, \quad
            \tau = \text{ridge} \cdot \|W\|_F^2 / d

        The ridge only keeps systems solvable where fewer values are observed than d; the ratio
        does not depend on the length of W.
        """
        d = loadings.shape[1]
        tau = ridge * float(np.einsum("fk,fk->", loadings, loadings)) / d
        solved = list(self._solved(loadings, tau))
        left = self.squares
        for rows, _, _, _, projected, means in solved:
            left[rows] -= np.einsum("nk,nk->n", projected, means)
        residuals = float(self.foreground @ left), float(self.background @ left)
        weights = self.foreground / residuals[0] - self.background / residuals[1]
        by_loadings = np.zeros_like(loadings)
        for rows, masks, starts, _, _, means in solved:
            x, c = self.values[rows], weights[rows]
            inner = np.add.reduceat(c[:, None] * outer_products(means), starts)
            by_loadings -= 2 * (x.T @ (c[:, None] * means) - _times(masks, inner, loadings))
            by_tau = float(c @ np.einsum("nk,nk->n", means, means))
            by_loadings += (2 * ridge / d * by_tau) * loadings
        return Ratio(float(np.log(residuals[0] / residuals[1])), by_loadings)

    def expected_variances(
        self, components: FloatArray, lengths: FloatArray, noise: float
    ) -> tuple[FloatArray, FloatArray]:
        r"""Variances of foreground and background along the model's axes, given what is observed.

        Missing values count with their conditional mean and covariance under the model, so that
        at a maximum :math:`v_X - \gamma v_Y = (1 - \gamma)(\ell^2 + \sigma^2)`, as for complete
        rows: the gradient of the density of what is observed is the expected one of the whole.

        Parameters
        ----------
        components : ndarray of shape (d, n_features)
            Orthonormal rows, of which the loadings are `lengths` times.
        lengths : ndarray of shape (d,)
        noise : float

        Returns
        -------
        ndarrays of shape (d,)
        """
        foreground, background = np.zeros((2, len(lengths)))
        axes = components.T
        for rows, masks, starts, systems, _, means in self._solved(axes * lengths, noise):
            d = len(lengths)
            codes = _codes(starts, len(means))
            unseen = ((1 - masks) @ outer_products(axes)).reshape(-1, d, d)
            through = lengths[:, None] * unseen  # W_u' v_u for each pattern
            covariance = noise * (
                np.einsum("pkj,pkl,plj->pj", through, systems.inverse, through)
                + np.diagonal(unseen, axis1=1, axis2=2)
            )
            along = self.values[rows] @ axes + np.einsum("nk,nkj->nj", means, through[codes])
            squared = along**2 + covariance[codes]
            foreground += self.foreground[rows] @ squared
            background += self.background[rows] @ squared
        return foreground, background

    def _solved(
        self, loadings: FloatArray, noise: float
    ) -> Iterator[tuple[slice, FloatArray, NDArray[np.intp], Systems, FloatArray, FloatArray]]:
        """Yield each span's rows, masks, starts of patterns, systems, ``X W`` and means of z."""
        for rows, patterns in self.spans:
            masks, starts = self.masks[patterns], self.starts[patterns] - rows.start
            systems = systems_of(masks, loadings, noise)
            projected = self.values[rows] @ loadings
            means = latent_means(systems, _codes(starts, len(projected)), projected)
            yield rows, masks, starts, systems, projected, means


def _codes(starts: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Which pattern each of n rows has."""
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=n))


def _times(masks: FloatArray, inner: FloatArray, loadings: FloatArray) -> FloatArray:
    """Each feature's sum of its patterns' d x d matrices, (P, d * d), times its row of W."""
    n_features, d = loadings.shape
    summed = (masks.T @ inner).reshape(n_features, d, d)
    return np.asarray(np.einsum("fij,fj->fi", summed, loadings))
