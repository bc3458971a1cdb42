"""Statistic of a permutation test: the contrast of the leading component of two covariances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contrast_core._moment_contrast import MomentContrast
from contrast_core._validation import FloatArray
from contrast_core.contrast._automatic import BACKGROUND_RIDGE
from contrast_core.linalg import RidgeWeights, leading_ratios, solve_contrast
from contrast_core.probabilistic import PCPCA
from contrast_core.solve import LIMITS, Plan
from contrast_core.spectral import CPCA, CPCAStar

_PLAN = Plan("dense", None, 0, "given", LIMITS)  # covariances are D x D matrices


class Leading(NamedTuple):
    """The leading component of two covariances, and its statistic."""

    statistic: float
    direction: FloatArray  # (D,)
    removed: FloatArray  # (D,), the direction that is projected out before the next component


@dataclass(frozen=True)
class Statistic:
    r"""Statistic of the leading component of two covariances P and Q of any scale.

    At a given strength, P and Q are scaled so that their traces are the total variances of the
    foreground and the background before relabelling. The statistic is the method's leading
    eigenvalue.

    Without a given strength, the automatic alpha of one component is the largest ratio of
    variances, :math:`\max_v v^\top P v / v^\top (Q + \tau I) v`, where :math:`\tau` is a quarter
    of the mean variance of a feature in Q. This maximum is attained by the leading direction of
    cPCA*, and also by the leading component of cPCA at that alpha. The statistic is
    alpha tr Q / tr P, which does not depend on the scales of P and Q.

    Parameters
    ----------
    alpha, beta : float or None
        Given strength of cPCA or cPCA*; if both are None, the strength is automatic. For PCPCA,
        alpha is ``gamma_``.
    star : bool
        Whether the method is cPCA*.
    orthogonal : bool
        Whether the components of cPCA* at a given beta are orthogonal.
    """

    alpha: float | None = None
    beta: float | None = None
    star: bool = False
    orthogonal: bool = False

    @classmethod
    def for_estimator(cls, estimator: MomentContrast, fitted: MomentContrast) -> Statistic:
        """Return the statistic for an estimator that was fitted to the data.

        Raises
        ------
        TypeError
            If the estimator is neither cPCA nor cPCA* nor PCPCA.
        ValueError
            If the estimator's strength cannot be tested.
        """
        match fitted:
            case CPCA() if estimator.get_params()["alpha"] == "denoise":
                raise ValueError(
                    "alpha='denoise' is chosen for two components together, so single components "
                    "cannot be tested; give alpha='auto' or a number."
                )
            case CPCA() if math.isinf(fitted.alpha_):
                raise ValueError(
                    "alpha=inf cannot be tested, because every relabelled background has a "
                    "different null space. Give a large finite alpha, or alpha='auto'."
                )
            case CPCA():
                return cls(alpha=_unless_auto(estimator, "alpha", fitted.alpha_))
            case CPCAStar() if estimator.get_params()["condition_limit"] is not None:
                raise ValueError(
                    "condition_limit leaves out different directions in each relabelling, so the "
                    "components cannot be tested; give condition_limit=None with a beta < 1."
                )
            case CPCAStar():
                beta = _unless_auto(estimator, "beta", fitted.beta_)
                return cls(beta=beta, star=True, orthogonal=estimator.get_params()["orthogonal"])
            case PCPCA():
                return cls(alpha=fitted.gamma_)
        raise TypeError(
            f"estimator is {type(fitted).__name__}, whose components cannot be tested from "
            "moments; expected CPCA(), CPCAStar() or PCPCA()."
        )

    def leading(
        self,
        x: FloatArray,
        y: FloatArray,
        totals: tuple[float, float],
        n_varying: int,
    ) -> Leading:
        """Compute the leading component of the covariances `x` and `y` (D, D), and its statistic.

        `totals` are the total variances of the original data. `n_varying` is the number of
        features, or coordinates, that vary.
        """
        free = self.alpha is None and self.beta is None
        p, q = (
            part * _ratio(1.0 if free else total, float(np.trace(part)))
            for part, total in zip((x, y), totals, strict=True)
        )
        if self.alpha is not None:
            budget = _PLAN.budget(len(p), 1)
            values, [v] = solve_contrast(p, q, self.alpha, 1, budget)[0]
            return Leading(float(values[0]), v, v)
        values, [v] = leading_ratios(p, q, self._ridge(n_varying), 1)
        v /= np.linalg.norm(v)
        removed = v if self.orthogonal and self.beta is not None else p @ v
        return Leading(float(values[0]), v, removed)

    def _ridge(self, n_varying: int) -> RidgeWeights:
        if self.beta is not None:
            return RidgeWeights(1 - self.beta, self.beta)
        return RidgeWeights(BACKGROUND_RIDGE / n_varying, 1.0)

    def strength(self, statistic: float, totals: tuple[float, float], n_varying: int) -> float:
        """Return the contrast strength of a component with this statistic."""
        given = self.beta if self.alpha is None else self.alpha
        if given is not None:
            return given
        if self.star:
            return 1 / (1 + BACKGROUND_RIDGE * totals[1] / n_varying)
        return statistic * totals[0] / totals[1]


def _unless_auto(estimator: MomentContrast, name: str, value: float) -> float | None:
    return None if estimator.get_params()[name] == "auto" else value


def _ratio(total: float, of: float) -> float:
    """Return the factor that scales the variance `of` to `total`, or 0 if `of` is 0."""
    return total / of if of > 0 else 0.0
