"""Odd arguments of the methods that model cells, of what they are checked by, and of figures."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from matplotlib import pyplot as plt

import scanpy_ext as cx
from tests.core.test_odd_inputs import complaint
from tests.scanpy_ext.test_odd_arguments import (
    NO_COUNTS,
    NO_FLAGS,
    NO_NAMES,
    NO_WORDS,
    cells,
    contrasted,
    paired,
)

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

TORCH = importlib.util.find_spec("torch") is not None
REFERENCE = {"groupby": "condition", "reference": "ctrl"}
SEEDS = ["3", 2.5, [3], -1, True]
KEYS = [3, "", "a/b", ["a"], {}, np.array([1, 2])]
STRENGTHS = ["3", None, [1.0], -1, True, np.nan]


def tool(function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    def call(adata: AnnData, **options: Any) -> Any:
        return function(adata, **REFERENCE | given | options)

    call.__name__ = function.__name__
    return call


def drawn(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(adata: AnnData, **options: Any) -> Any:
        return function(adata, **{"show": False} | options)

    call.__name__ = f"pl.{function.__name__}"
    return call


clvm = tool(cx.tl.clvm, n_shared=1, model_kwargs={"max_iter": 2})
cvae = tool(cx.tl.cvae, noise="normal", model_kwargs={"max_iter": 1})
star = tool(cx.tl.cpca_star)
kernel = tool(cx.tl.kernel_cpca)
pcpca = tool(cx.tl.pcpca)
FEW = {"n_permutations": 20, "n_resamples": 2}
significance = tool(cx.tl.significance, donor="animal", test_kwargs=FEW)
check = tool(cx.pp.contrast_check)


def clvm_model(adata: AnnData, **options: Any) -> Any:
    return clvm(adata, model_kwargs={"max_iter": 2} | options)


def vi_model(adata: AnnData, **options: Any) -> Any:
    return clvm(adata, model_kwargs={"max_iter": 2, "inference": "vi"} | options)


def by_donor(adata: AnnData, **options: Any) -> Any:
    return significance(adata, test_kwargs=FEW | options)


def cvae_model(adata: AnnData, **options: Any) -> Any:
    return cvae(adata, model_kwargs={"max_iter": 1} | options)


def by_clusters(adata: AnnData, **options: Any) -> Any:
    return paired(adata, **{"method": "clusters", "clusters": "condition"} | options)


def plus(adata: AnnData, **options: Any) -> Any:
    return cx.tl.pca_plus(adata, **{"n_comps": 2} | options)


DRAWN = (
    cx.pl.cpca_path,
    cx.pl.loadings,
    cx.pl.contrast_curve,
    cx.pl.match_pairs,
    cx.pl.contrast_check,
    cx.pl.cvae,
)
CALLS: list[tuple[Callable[..., Any], str, list[Any], str]] = [
    (clvm, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (clvm, "n_shared", ["3", None, 2.5, -1, True, [3], 10**400, np.nan, 9], "n_shared|n_salient"),
    (clvm_model, "sparsity", ["no", True, -1, [1.0], np.nan, {}], "sparsity"),
    (clvm_model, "ard", NO_FLAGS, "ard"),
    (clvm_model, "robust", ["no", True, 1, ["rows"], {}], "robust"),
    (clvm_model, "inference", NO_WORDS, "inference"),
    (clvm, "noise", NO_WORDS, "noise"),
    (clvm_model, "n_init", NO_COUNTS, "n_init"),
    (clvm_model, "max_iter", NO_COUNTS, "max_iter"),
    (clvm_model, "random_state", SEEDS, "random_state"),
    (clvm, "model_kwargs", [3, "robust", ["robust"], {"n_comps": 2}], "model_kwargs"),
    (clvm, "within", NO_NAMES, "within"),
    (clvm, "layer", NO_NAMES, "layer"),
    (clvm, "copy", NO_FLAGS, "copy"),
    (clvm, "key_added", KEYS, "key_added"),
    (star, "beta", STRENGTHS, "beta"),
    (star, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (star, "key_added", KEYS, "key_added"),
    (kernel, "alpha", STRENGTHS, "alpha"),
    (kernel, "kernel", NO_WORDS[:-1], "kernel"),
    (kernel, "kernel_gamma", ["3", [1.0], -1, True, np.nan], "gamma"),
    (kernel, "key_added", KEYS, "key_added"),
    (pcpca, "gamma", STRENGTHS, "gamma"),
    (pcpca, "key_added", KEYS, "key_added"),
    (by_donor, "strength", STRENGTHS, "strength|alpha"),
    (significance, "test_kwargs", [3, "strength", ["strength"], {"n_comps": 2}], "test_kwargs"),
    (by_donor, "n_permutations", NO_COUNTS, "n_permutations"),
    (by_donor, "n_resamples", NO_COUNTS, "n_resamples|n_samples"),
    (by_donor, "random_state", SEEDS, "random_state"),
    (check, "donor", NO_NAMES, "donor"),
    (check, "cell_type", NO_NAMES, "cell_type"),
    (check, "batch", NO_NAMES, "batch"),
    (check, "controls", NO_NAMES, "controls"),
    (check, "copy", NO_FLAGS, "copy"),
    (check, "key_added", KEYS, "key_added"),
    (plus, "pairs", [*NO_NAMES[:4], "no"], "pairs|key_added"),
    (plus, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (plus, "scale", NO_FLAGS, "scale"),
    (plus, "exchangeable", NO_FLAGS, "exchangeable"),
    (by_clusters, "clusters", NO_NAMES, "clusters"),
    (paired, "random_state", SEEDS, "random_state"),
    *((drawn(one), "ax", ["no", 3, [], ["no"]], "ax holds") for one in DRAWN),
    *((drawn(one), "figsize", ["no", 3, (1,), (0, 1), (np.nan, 2)], "figsize") for one in DRAWN),
    *((drawn(one), "save", [3, ["a.png"], 2.5], "save") for one in DRAWN),
    (drawn(cx.pl.cvae), "key", [*NO_NAMES, None], "no result"),
]
WITH_TORCH: list[tuple[Callable[..., Any], str, list[Any], str]] = [
    (vi_model, "device", ["no", 3.5, ["cpu"], "cuda:99"], "device"),
    (vi_model, "n_init", [2.5, 0], "n_init"),
    (vi_model, "max_iter", NO_COUNTS, "max_iter"),
    (cvae, "n_comps", [*NO_COUNTS, 9], "n_comps|n_salient"),
    (cvae, "n_shared", [one for one in NO_COUNTS if one != 0], "n_shared"),
    (cvae, "noise", NO_WORDS, "noise"),
    (cvae_model, "max_iter", [one for one in NO_COUNTS if one is not None], "max_iter"),
    (cvae_model, "device", ["no", 3.5, ["cpu"], "cuda:99"], "device"),
    (cvae, "model_file", [3, ["a"], "no/such/folder/model"], "model_file|path|folder|directory"),
    (cvae_model, "random_state", SEEDS, "random_state"),
    (cvae, "layer", NO_NAMES, "layer"),
    (cvae, "key_added", KEYS, "key_added"),
    (cvae, "copy", NO_FLAGS, "copy"),
]


@pytest.fixture(scope="module")
def done() -> AnnData:
    adata = cells(animal=[f"a{i % 8}" for i in range(60)])
    contrasted(adata)
    cx.tl.cpca_path(adata, **REFERENCE, n_representatives=2)
    paired(adata)
    check(adata)
    adata.uns["cvae"] = {
        "training_loss": [2.0, 1.0],
        "held_out_loss": [2.0, 1.0],
        "best_epoch": 1,
        "slots": {},
    }
    return adata


@pytest.mark.parametrize(
    ("call", "name", "values", "words"),
    [
        pytest.param(*case, id=f"{case[0].__name__}-{case[1]}", marks=marks)
        for cases, marks in (
            (CALLS, ()),
            (WITH_TORCH, pytest.mark.skipif(not TORCH, reason="torch is not installed")),
        )
        for case in cases
    ],
)
def test_odd_arguments_are_refused_by_name(
    call: Callable[..., Any],
    name: str,
    values: list[Any],
    words: str,
    done: AnnData,
    untouched: Any,
) -> None:
    for value in values:
        with untouched(done), pytest.raises((TypeError, ValueError)) as caught:
            call(done, **{name: value})
        assert not complaint(caught.value, words), value
    assert not plt.get_fignums()
