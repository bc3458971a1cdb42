"""What the tests of significance share: estimators, errors, progress."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from contrast_core import (
    CPCA,
    PCPCA,
    CPCAStar,
    SecondMoments,
    bootstrap_stability,
    cross_fitted_ratio,
    permutation_test,
)
from contrast_core.spectral import KernelCPCA
from tests.core.samples import SD, quiet, rows


@quiet
@pytest.mark.parametrize("function", [permutation_test, bootstrap_stability])
@pytest.mark.parametrize("estimator", [CPCA(2), CPCA(2, alpha=0.0), CPCAStar(2), PCPCA(2)])
def test_every_linear_method(function: Any, estimator: Any) -> None:
    rng = np.random.default_rng(6)
    X, Y = rows(40, rng, spike=3.0), rows(30, rng)
    number = {"n_permutations" if function is permutation_test else "n_resamples": 19}
    before = estimator.get_params()
    result = function(estimator, X, background=Y, random_state=0, **number)
    assert estimator.get_params() == before
    assert not hasattr(estimator, "components_")
    if function is permutation_test:
        assert result.null_statistics.shape == (19, 2)
        assert result.p_values[0] <= result.p_values[1] <= 1
    else:
        assert result.matched.shape == result.retained.shape == result.angles.shape == (19, 2)


@quiet
@pytest.mark.parametrize("function", [permutation_test, bootstrap_stability])
def test_more_features_than_rows(function: Any) -> None:
    rng = np.random.default_rng(9)
    X, Y = rows(30, rng, spike=2.0), rows(25, rng)
    wide = np.linalg.qr(rng.normal(size=(200, len(SD))))[0].T
    number = {"n_permutations" if function is permutation_test else "n_resamples": 19}
    low, high = (
        function(CPCA(2, alpha=1.0), a, background=b, random_state=0, **number)
        for a, b in ((X, Y), (X @ wide, Y @ wide))
    )
    name = "null_statistics" if function is permutation_test else "retained"
    np.testing.assert_allclose(getattr(high, name), getattr(low, name), atol=1e-9)


def test_what_cannot_be_resampled_is_refused() -> None:
    rng = np.random.default_rng(15)
    X, Y = rows(20, rng), rows(16, rng)
    x = np.arange(20) % 4

    def test(*, estimator: Any = None, X: Any = X, Y: Any = Y, **given: Any) -> None:
        permutation_test(estimator or CPCA(), X, background=Y, **given)

    y = np.arange(16) % 4 + 4
    with pytest.raises(ValueError, match="groups was given without background_groups"):
        test(groups=x)
    with pytest.raises(ValueError, match="background_groups was given without groups"):
        test(background_groups=y)
    with pytest.raises(ValueError, match=r"groups has shape \(5,\); .* each of the 20 rows"):
        test(groups=x[:5], background_groups=y)
    with pytest.raises(ValueError, match="background_groups has missing labels"):
        test(groups=x, background_groups=[*y[:-1].astype(float), np.nan])
    with pytest.raises(ValueError, match="groups names a single group"):
        test(groups=np.zeros(20), background_groups=y)
    with pytest.raises(ValueError, match="background is constant"):
        test(Y=np.ones_like(Y))
    with pytest.raises(ValueError, match="background has 5 features but X has 6"):
        test(Y=Y[:, :5])
    with pytest.raises(TypeError, match="X is SecondMoments, but rows are needed"):
        test(X=SecondMoments.from_data(X))
    with pytest.raises(TypeError, match="estimator is KernelCPCA; expected a linear"):
        test(estimator=KernelCPCA())
    with pytest.raises(ValueError, match="n_permutations=0 is out of range"):
        test(n_permutations=0)
    with pytest.raises(ValueError, match="n_resamples=0 is out of range"):
        bootstrap_stability(CPCA(), X, background=Y, n_resamples=0)
    with pytest.raises(ValueError, match="n_splits=0 is out of range"):
        cross_fitted_ratio(X, background=Y, n_splits=0)
    with pytest.raises(ValueError, match="need at least 4 of both"):
        cross_fitted_ratio(X[:3], background=Y)
    with pytest.raises(TypeError, match="progress must be True, False or a callable"):
        test(progress="yes")


@quiet
def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(16)
    X, Y = rows(20, rng), rows(16, rng)
    seen = []

    def bar(items: Any, total: int, desc: str) -> Any:
        for i, item in enumerate(items):
            seen.append((desc, i, total))
            yield item

    permutation_test(CPCA(), X, background=Y, n_permutations=3, progress=bar)
    bootstrap_stability(CPCA(), X, background=Y, n_resamples=2, progress=bar)
    assert seen == [("permute", i, 3) for i in range(3)] + [("bootstrap", i, 2) for i in range(2)]
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="progress=True needs tqdm"):
        permutation_test(CPCA(), X, background=Y, n_permutations=3, progress=True)
    assert capsys.readouterr().err == ""
