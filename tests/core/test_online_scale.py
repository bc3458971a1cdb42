"""Tests that the steps of `OnlineCPCAStar` do not depend on the scale of the data."""

from __future__ import annotations

import numpy as np
import pytest

from contrast_core import ContrastWarning, CPCAStar, OnlineCPCAStar
from contrast_core.datasets import load_mouse_protein
from tests.core.test_online_cpca_star import alignment, stream

# The plain beta is 0.5. Then 1 - beta is proportional to scale**2, which float64 cannot represent
# below 1e-16.
SCALES = [1e-6, 0.01, 100.0, 1e140]
CASES = [(0.5, c) for c in SCALES] + [(b, c) for b in (0.0, 1.0) for c in (1e-140, *SCALES)]


def same_contrast(beta: float, scale: float) -> float:
    """Return the beta for data times `scale` that is equivalent to `beta` for the data."""
    return beta / (beta + (1 - beta) * scale**2)


@pytest.mark.parametrize(("beta", "scale"), CASES)
@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_scaling_both_datasets_changes_no_step(beta: float, scale: float) -> None:
    """Check that the steps do not change if the data and beta are rescaled together."""
    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    plain = OnlineCPCAStar(beta=beta).fit(X, background=Y)
    scaled = OnlineCPCAStar(beta=same_contrast(beta, scale)).fit(scale * X, background=scale * Y)
    rounding = 1e-3 if scale < 1e-4 and beta == 0.5 else 1e-7  # rounding of 1 - beta
    np.testing.assert_allclose(scaled.components_, plain.components_, atol=rounding)

    rows, flags = stream()
    plain = OnlineCPCAStar(beta=beta).partial_fit(rows, flags)
    scaled = OnlineCPCAStar(beta=same_contrast(beta, scale)).partial_fit(scale * rows, flags)
    np.testing.assert_allclose(scaled.components_, plain.components_, atol=rounding)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 3.0])
def test_small_data_reach_the_batch_solution(scale: float) -> None:
    mice = load_mouse_protein()
    X, Y = scale * mice.foreground, scale * mice.background
    batch = CPCAStar(beta=0.5).fit(X, background=Y)
    online = OnlineCPCAStar(beta=0.5, n_passes=60, decay_steps=3000).fit(X, background=Y)
    assert alignment(online, batch) >= 0.995
    np.testing.assert_allclose(
        online.generalized_eigenvalues_, batch.generalized_eigenvalues_, rtol=0.05
    )
    np.testing.assert_allclose(online.directions_, batch.directions_, atol=0.1 / scale)


@pytest.mark.parametrize("scale", [10.0, 1e4])
def test_data_that_take_more_steps_are_said_to(scale: float) -> None:
    """Check large data, for which the background variance along the components is small."""
    mice = load_mouse_protein()
    with pytest.warns(ContrastWarning, match=r"10800 steps are few .*more n_passes, a smaller b"):
        OnlineCPCAStar(beta=0.5).fit(scale * mice.foreground, background=scale * mice.background)


def test_squares_beyond_float64_are_refused() -> None:
    rows, flags = stream()
    for scale in (1e-170, 1e155, 1e300):
        with pytest.raises(ValueError, match=r"squares of X add up to .* bring"):
            OnlineCPCAStar().fit(scale * rows[flags], background=scale * rows[~flags])
        with pytest.raises(ValueError, match=r"squares of X's foreground rows add up to .* bring"):
            OnlineCPCAStar().partial_fit(scale * rows, flags)


def test_constant_data_are_refused() -> None:
    rows, flags = stream()
    X, Y = rows[flags], rows[~flags]
    with pytest.raises(ValueError, match="X is constant"):
        OnlineCPCAStar().fit(np.full_like(X, 0.1), background=Y)
    with pytest.raises(ValueError, match="beta=1 divides by the background's variance"):
        OnlineCPCAStar(beta=1).fit(X, background=np.full_like(Y, 0.1))
    pca = CPCAStar(beta=0.5).fit(X, background=np.full_like(Y, 0.1))
    online = OnlineCPCAStar(beta=0.5, n_passes=60, decay_steps=3000)
    online.fit(X, background=np.full_like(Y, 0.1))
    assert alignment(online, pca) > 0.99


def test_too_large_a_learning_rate_is_refused_with_one_that_works() -> None:
    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    with pytest.raises(ValueError, match=r"must stay below 1 .*Use learning_rate=0\.003 or less"):
        OnlineCPCAStar(beta=0.5, learning_rate=0.03).fit(X, background=Y)
    rows, flags = np.vstack([X, Y]), np.arange(405) < 270
    order = np.random.default_rng(0).permutation(405)
    begun = OnlineCPCAStar(beta=0.5, learning_rate=0.03)
    with pytest.raises(ValueError, match="too large for these background rows"):
        begun.partial_fit(rows[order], flags[order])
    assert not hasattr(begun, "components_")
    fitted = OnlineCPCAStar(beta=0.5, learning_rate=0.003, n_passes=60).fit(X, background=Y)
    assert np.isfinite(fitted.components_).all()


def test_steps_that_decay_early_are_said_to_be_few() -> None:
    mice = load_mouse_protein()
    with pytest.warns(ContrastWarning, match=r"10800 steps are few"):
        OnlineCPCAStar(decay_steps=10).fit(mice.foreground, background=mice.background)
