"""Tests of CVAE's densities: the bound of a linear model, and the likelihood of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

torch = pytest.importorskip("torch", reason="torch is not installed")

from contrast_core.deep._coding import Coder  # noqa: E402
from contrast_core.deep._likelihoods import Gaussian, NegativeBinomial  # noqa: E402
from contrast_core.deep._networks import ContrastiveNetworks, sizes_of  # noqa: E402
from contrast_core.deep._objective import bounds  # noqa: E402
from contrast_core.deep._reading import Measured, normalised  # noqa: E402


def linear(matrix: Any, offset: Any = 0.0) -> Any:
    layer = torch.nn.Linear(*np.shape(matrix)[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(matrix))
        layer.bias.copy_(torch.tensor(np.broadcast_to(offset, np.shape(matrix)[0]).copy()))
    return layer


def test_the_bound_is_the_density_where_the_posterior_is_exact() -> None:
    """Check a linear model whose encoders give the exact posterior.

    The model is x = unit (S z + W t + e) + mean, so the density of x is normal. S and W are
    orthogonal.
    """
    S, W = np.array([[1.5, 0, 0, 0.5]]).T, np.array([[0, 2.0, 1.0, 0]]).T
    sd, unit, mean = 0.7, 2.5, np.array([1.0, -2.0, 0.0, 5.0])

    def exact(loading: Any) -> Any:
        variance = 1 / (1 + (loading.T @ loading).item() / sd**2)
        weights = np.vstack([variance * loading.T / sd**2, np.zeros((1, 4))])
        return linear(weights, [0.0, np.log(variance)])

    given = {
        "salient_encoder": exact(W),
        "shared_encoder": exact(S),
        "salient_decoder": linear(W),
        "shared_decoder": linear(S),
    }
    networks = ContrastiveNetworks(given, sizes_of(4, 1, 1), (), torch.Generator())
    torch.nn.init.constant_(networks.log_noise, np.log(sd))
    coder = Coder(networks, Measured(mean, unit), torch.device("cpu"))
    own = unit**2 * (S @ S.T + sd**2 * np.eye(4))
    for bound, covariance in (
        (coder.foreground_bounds, own + unit**2 * W @ W.T),
        (coder.background_bounds, own),
    ):
        density = scipy.stats.multivariate_normal(mean, covariance)
        rows = density.rvs(size=4000, random_state=0)
        difference = bound(rows)[:, 0] - density.logpdf(rows)
        # The cubature is exact for linear decoders, but log_noise has the precision of float32.
        np.testing.assert_allclose(difference, 0, atol=1e-5)
    # A wrong posterior lowers the bound by its divergence from the exact posterior.
    torch.nn.init.constant_(networks.shared_encoder.bias, 0.3)
    assert (coder.background_bounds(rows)[:, 0] - density.logpdf(rows)).mean() < -0.05


def test_counts_have_the_negative_binomial_of_their_sum() -> None:
    rng = np.random.default_rng(0)
    rows = rng.poisson(rng.gamma(2, 3, size=(5, 7))).astype(np.float64)
    rows[0] = 0
    mean, rates = rng.normal(size=7), rng.dirichlet(np.ones(7))
    model = NegativeBinomial(mean, 1.7, rates, torch.device("cpu"))
    decoded, log_noise = rng.normal(size=(5, 7)), rng.normal(size=7)
    shares = rates * np.exp(decoded)
    expected = shares / shares.sum(axis=1, keepdims=True) * np.maximum(rows.sum(1), 1)[:, None]
    theta = np.exp(-2 * log_noise)
    reference = scipy.stats.nbinom.logpmf(rows, theta, theta / (theta + expected)).sum(axis=1)
    tensors = [torch.tensor(a, dtype=torch.float32) for a in (rows, decoded, log_noise)]
    np.testing.assert_allclose(model.log_density(*tensors), reference, rtol=2e-5)
    seen = (np.log1p(1e4 * rows / np.maximum(rows.sum(1), 1)[:, None]) - mean) / 1.7
    np.testing.assert_allclose(model.seen(tensors[0]), seen, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(normalised(rows), seen * 1.7 + mean, atol=1e-12)
    np.testing.assert_allclose(normalised(sp.csr_matrix(rows)).toarray(), normalised(rows))


@pytest.mark.parametrize("counted", [False, True])
def test_products_in_bfloat16_leave_a_loss_in_float32(counted: bool) -> None:
    """Check the loss when networks multiply in half precision, as on a GPU.

    Densities and sums stay in float32.
    """
    rng, n_features = np.random.default_rng(0), 30
    mean, rates = rng.normal(size=n_features), rng.dirichlet(np.ones(n_features))
    model: Any = Gaussian()
    if counted:
        model = NegativeBinomial(mean, 1.7, rates, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    noise_shape = (n_features,) if counted else ()
    networks = ContrastiveNetworks(None, sizes_of(n_features, 2, 3), noise_shape, generator)
    x, y = (torch.tensor(rng.poisson(900, size=(40, n_features)) + 0.0).float() for _ in range(2))
    if not counted:
        x, y = (x - 900) / 30, (y - 900) / 30
    t, z = torch.randn(40, 2, generator=generator), torch.randn(80, 3, generator=generator)
    losses, slopes = [], []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            losses.append(bounds(networks, model, x, y, (t, z)))
        networks.zero_grad()
        losses[-1].mean().backward()
        slopes.append(torch.cat([p.grad.flatten() for p in networks.parameters()]))
    assert losses[1].dtype == torch.float32 and (losses[0] != losses[1]).any()
    torch.testing.assert_close(losses[1], losses[0], rtol=0.01, atol=0.05)
    assert torch.linalg.norm(slopes[1] - slopes[0]) < 0.02 * torch.linalg.norm(slopes[0])
