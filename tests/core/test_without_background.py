"""Tests of CPCA, CPCAStar and PCPCA without a background, where they are PCA of the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from contrast_core import (
    CLVM,
    CPCA,
    PCPCA,
    CPCAStar,
    KernelCPCA,
    OnlineCPCAStar,
    SecondMoments,
    SparseCPCA,
    load,
    save,
)
from contrast_core.linalg import subspace_error

METHODS = [CPCA, CPCAStar, PCPCA]
X = np.random.default_rng(0).normal(size=(60, 8)) * np.arange(1, 9)
Y = np.random.default_rng(1).normal(size=(50, 8))


# Some checks have two features, and PCPCA needs more features than components.
@parametrize_with_checks([CPCA(), CPCAStar(), PCPCA(1)])
def test_the_estimators_pass_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("method", METHODS)
def test_without_a_background_each_method_is_pca_of_the_foreground(method: Any) -> None:
    pca = PCA(3).fit(X)
    fitted = method(3).fit(X)
    assert subspace_error(fitted.components_, pca.components_) < 1e-12
    np.testing.assert_allclose(fitted.foreground_variance_, pca.explained_variance_ * 59 / 60)
    assert fitted.strength_ == 0
    assert not [name for name in vars(fitted) if "background" in name or "contrast_index" in name]
    np.testing.assert_array_equal(method(3).fit_transform(X), fitted.transform(X))
    contrasted = method(2).fit(X, background=Y)
    assert not {name for name in vars(contrasted.fit(X)) if name not in vars(fitted)}


@pytest.mark.parametrize("method", METHODS)
def test_groups_weights_moments_and_sparse_rows_are_accepted(method: Any) -> None:
    groups = np.arange(60) % 3
    centred = X - np.array([X[groups == group].mean(axis=0) for group in groups])
    weights = np.random.default_rng(0).integers(0, 4, 60)
    for given, options, rows in (
        (X, {"within": groups}, centred),
        (X, {"sample_weight": weights}, np.repeat(X, weights, axis=0)),
        (SecondMoments.from_data(X), {}, X),
        (sp.csr_array(X * (X > 0)), {}, X * (X > 0)),
    ):
        fitted = method(2).fit(given, **options)
        assert subspace_error(fitted.components_, PCA(2).fit(rows).components_) < 1e-10


def test_pcpca_of_missing_values_without_a_background_equals_the_fit_at_gamma_zero() -> None:
    gappy = np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)
    alone = PCPCA(2).fit(gappy)
    assert not [name for name in vars(alone) if "background" in name]
    compared = PCPCA(2, gamma=0.0).fit(gappy, background=Y)
    np.testing.assert_allclose(alone.loadings_, compared.loadings_, atol=1e-4)
    np.testing.assert_allclose(alone.impute(gappy), compared.impute(gappy), atol=1e-4)
    np.testing.assert_allclose(alone.transform(gappy), compared.transform(gappy), atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_need_a_background_raise_an_error_that_says_so(
    method: Any, tmp_path: Path
) -> None:
    fitted = method(2).fit(X)
    with pytest.raises(ValueError, match=r"fitted without a background, .*fit\(X, back"):
        fitted.at(0.5)
    with pytest.raises(ValueError, match="offset='difference' is unknown"):
        fitted.denoise(X, offset="difference")
    with pytest.raises(ValueError, match=r"=0\.5 was given without a background"):
        method(2, **{method._strength: 0.5}).fit(X)
    with pytest.raises(ValueError, match="is unknown; expected 'auto'"):
        method(2, **{method._strength: "some"}).fit(X)
    with pytest.raises(ValueError, match="background_weight was given without a background"):
        method(2).fit(X, background_weight=np.ones(60))
    save(fitted, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(X), fitted.transform(X))


@pytest.mark.parametrize("method", [*METHODS, CLVM, SparseCPCA, KernelCPCA, OnlineCPCAStar])
def test_a_background_given_without_its_keyword_is_refused_with_advice(method: Any) -> None:
    with pytest.raises(TypeError, match=r"y is ndarray .*: fit\(X, background=\.\.\.\)"):
        method().fit(X, Y)
    if method not in METHODS:
        with pytest.raises(ValueError, match=r"background=None was given; .* fit\(X, background="):
            method().fit(X)
