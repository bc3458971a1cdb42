"""The range of contrast strengths at which probabilistic contrastive PCA has a maximum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contrast_core._validation import as_number, check_choice, check_n_components
from contrast_core.moments import Moments
from contrast_core.solve import Plan, solve_contrasts

_AUTO_FRACTION = 0.9  # gamma="auto" is this share of gamma_max; measured in papers/pcpca.py
_MAX_ITERATIONS = 100  # largest number of steps of Newton's method; under ten in practice


class ValidRange(NamedTuple):
    """Range of contrast strengths, from 0 to below `end`, at which PCPCA has a solution.

    `observed` is the share of values that are not missing. `reason` is the part of the error
    message that says what ends the range.
    """

    end: float
    n_components: int
    observed: float = 1.0
    reason: str = "where the noise variance is positive"

    @property
    def automatic(self) -> float:
        """Contrast strength for gamma="auto", which is smaller if more values are missing."""
        return _AUTO_FRACTION * self.observed * self.end

    def error(self, gamma: float) -> ValueError:
        """Return the error for a contrast strength outside the range."""
        return ValueError(
            f"gamma={gamma:.9g} is out of range: for these data and "
            f"n_components={self.n_components} it must be from 0 to below {self.end:.9g} "
            f"(gamma_max_), {self.reason}. This gamma corresponds to CPCA's alpha and to the "
            "paper's gamma times m / n, for n foreground and m background rows. Use a smaller "
            f"gamma, or gamma='auto' for {_AUTO_FRACTION * self.observed:.3g} of that limit."
        )


def check_gamma(gamma: object, valid: ValidRange) -> float:
    """Check that the contrast strength is within the valid range, and return it."""
    if isinstance(gamma, str):
        check_choice(gamma, "gamma", ["auto"], "a number")
        return valid.automatic
    number = as_number(gamma, "gamma", "'auto' or a number")
    if not 0 <= number < valid.end:
        raise valid.error(number)
    return number


def check_latent_dimension(n_components: object, n_features: int) -> int:
    """Check that `n_components` leaves at least one direction for the noise, and return it."""
    d = check_n_components(n_components, n_features)
    if d == n_features:
        raise ValueError(
            f"n_components={d} with {n_features} feature(s) leaves no direction for the noise; "
            "PCPCA needs n_components below the number of features. CPCA has no such limit."
        )
    return d


def largest_gamma(foreground: Moments, background: Moments, d: int, plan: Plan) -> float:
    r"""Return the gamma at which the noise variance becomes zero, or 1 if that gamma is above 1.

    The noise variance is proportional to the tail :math:`t(\gamma)`, the sum of all but the d
    largest eigenvalues of the contrast :math:`C_X - \gamma C_Y`, where :math:`C_X` and :math:`C_Y`
    are the covariances of foreground and background. The tail is concave and does not increase: its
    derivative is minus the background variance outside the d leading eigenvectors V. Newton's
    iteration from 1 therefore decreases monotonically to the root of the tail,

    .. math:: \gamma \leftarrow
        \frac{\operatorname{tr} C_X - \operatorname{tr} V^\top C_X V}
        {\operatorname{tr} C_Y - \operatorname{tr} V^\top C_Y V} .

    Raises
    ------
    ValueError
        If the background is constant, or if the foreground varies in at most d directions, which
        makes the range empty.
    """
    if not background.varies.any():
        raise ValueError(
            f"the background is constant (none of its {background.n_features} features varies over "
            f"{background.n_samples} rows), so there is nothing to contrast with and no gamma to "
            "choose. Check the rows of the background, or leave it out for probabilistic PCA of X."
        )
    total = foreground.total_variance
    rounding = 8 * np.finfo(np.float64).eps * total
    [found] = solve_contrasts(foreground, background, [0.0], d, plan)
    if total - found.values.sum() <= rounding:
        raise ValueError(
            f"the foreground varies in no more than n_components={d} directions (to working "
            "precision), so nothing is left to estimate the noise from and no gamma is valid, not "
            "even 0; use fewer components or more rows. CPCA has no such limit."
        )
    gamma = 1.0
    for _ in range(_MAX_ITERATIONS):
        [found] = solve_contrasts(foreground, background, [gamma], d, plan)
        tail_x = total - float(found.foreground_variance.sum())
        tail_y = background.total_variance - float(found.background_variance.sum())
        if tail_x >= gamma * tail_y * (1 - 1e-14):
            break
        gamma = tail_x / tail_y
    return gamma
