"""Tests of every parameter of the public functions, with valid and invalid values.

Each kind of parameter has values with the same meaning and values that are refused. The error names
the parameter and shows the value. The parameters come from the signatures, and `KINDS` gives the
kind of each parameter by its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

import contrast_core as cc
from contrast_core import datasets, images, pairing
from tests.core.test_odd_inputs import complaint

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

RNG = np.random.default_rng(0)
SHARED = RNG.normal(size=(40, 1)) * [3.0, 1.0, 0.0, 0.0, 0.0]
X = RNG.normal(size=(40, 5)) * [3.0, 2.5, 2.0, 1.0, 1.0] + SHARED
Y = RNG.normal(size=(40, 5)) * [3.0, 1.0, 1.0, 1.0, 1.0] + SHARED
FITTED = cc.CPCA(2, alpha=1.0).fit(X, background=Y)
MODEL = cc.PCPCA(2).fit(X, background=Y)
LATENT = cc.CLVM().fit(X, background=Y)
KERNEL = cc.KernelCPCA(alpha=1.0).fit(X, background=Y)
STACK = RNG.normal(size=(6, 8, 9))


class ParameterKind(NamedTuple):
    """Values of a parameter: pairs with the same meaning, and values that are refused."""

    same: list[tuple[Any, Any]]
    refused: list[Any]


def optional(kind: ParameterKind) -> ParameterKind:
    """Return a kind of parameter that also takes None, for a default."""
    return kind._replace(refused=[value for value in kind.refused if value is not None])


def with_allowed(kind: ParameterKind, *allowed: Any) -> ParameterKind:
    """Return a kind of parameter that takes some more values."""
    return kind._replace(refused=[v for v in kind.refused if not any(v is a for a in allowed)])


def with_refused(kind: ParameterKind, *refused: Any) -> ParameterKind:
    """Return a kind of parameter that refuses some more values."""
    return kind._replace(refused=[*kind.refused, *refused])


NOT_NUMBERS = ["2", None, [2], np.array(2.0), np.array([1, 2]), True, np.True_, Decimal(2), 2 + 0j]
NOT_NUMBERS += [np.timedelta64(2)]
NOT_FINITE = [np.nan, np.inf, -np.inf]
HUGE = [10**400, 10**5000, np.longdouble("1e4000")]
NUMBER = ParameterKind(
    [(0.5, np.float32(0.5)), (0.5, Fraction(1, 2))], [*NOT_NUMBERS, *HUGE, *NOT_FINITE]
)
COUNT = with_refused(NUMBER, 0, -1, 2.0, 2.5, np.float64(2), Fraction(2))
COUNT = COUNT._replace(same=[(2, np.int64(2)), (2, np.uint8(2))])
ABOVE_ZERO = with_refused(NUMBER, 0, 0.0, -1, -1e-300)
FROM_ZERO = with_allowed(with_refused(NUMBER, -1, "automatic"), np.inf)
FRACTION = with_refused(NUMBER, -1, "automatic", 1.5)
FLAG = ParameterKind(
    [(True, np.True_), (False, np.False_)],
    ["yes", "False", None, 0, 1, 1.0, [True], np.array(True), np.nan],
)
SEED = ParameterKind(
    [(1, np.int64(1)), (1, np.uint8(1))],
    ["monday", -1, 1.5, [1], True, np.nan, np.array(1), -(10**400), {}, len],
)
WORD = ParameterKind(
    [], ["no such word", None, 1, ["auto"], np.array(["auto", "b"]), {}, b"auto", len]
)
NAMES = ["no such word", b"rows", {}]
FRAME = ParameterKind(
    [((5, 1), [5, 1])], [None, 5, "ab", (5,), (5, 2), (-5, -1), (5.0, 1), (0, 0), {}]
)

KINDS = {
    **dict.fromkeys(
        (
            *("n_components", "n_init", "n_passes", "batch_size", "max_iter", "n_samples"),
            *("n_permutations", "n_splits", "n_resamples", "n_features", "n_neighbors"),
        ),
        COUNT,
    ),
    **dict.fromkeys(("n_foreground", "n_background", "n_folds"), with_refused(COUNT, 1)),
    **dict.fromkeys(("n_shared", "n_salient"), with_allowed(COUNT, 0)),
    **dict.fromkeys(
        (
            *("orthogonal", "exchangeable", "weighted", "ard", "add_noise", "mutual", "raw"),
            "include_background",
        ),
        FLAG,
    ),
    **dict.fromkeys(
        ("solver", "dataset", "offset", "search", "regime", "precision", "inference", "noise"), WORD
    ),
    **dict.fromkeys(("degree", "tau", "tol", "ridge", "n_pairs"), ABOVE_ZERO),
    "alpha": FROM_ZERO,
    "alphas": ParameterKind(
        [([0, 1], (0.0, 1.0)), ([0, 1], np.array([1, 0], dtype=np.uint8)), ([2], 2)],
        [
            *("auto", [], [[], []], [0, 0], [0, "1"], [0, None], [0, -1], [np.nan], [10**400]),
            *(np.ma.masked_array([0.0, 1.0], [0, 1]), {}, [1j], [[0, 1], [2]], [True], len),
        ],
    ),
    "axis": with_refused(with_allowed(COUNT, 0, -1), 64, -65),
    "background_strength": WORD,
    "beta": FRACTION,
    "clip": with_allowed(ABOVE_ZERO, np.inf),
    "coef0": NUMBER,
    "condition_limit": ParameterKind(
        [(1e6, np.float32(1e6)), (7.5, Fraction(15, 2)), (1000.0, 1000)],
        optional(with_refused(ABOVE_ZERO, 1, 0.5, 1.01e13)).refused,
    ),
    "elements": optional(COUNT),
    "decay_steps": with_allowed(optional(ABOVE_ZERO), np.inf),
    "frame_shape": with_refused(FRAME, (1, 5, 1)),
    "gamma": FRACTION,
    "kernel": with_allowed(WORD, len),
    "kernel_gamma": optional(ABOVE_ZERO),
    "kernel_params": ParameterKind([], ["a", 1, [1], np.array([1])]),
    "learning_rate": ParameterKind(
        [(2**-8, np.float32(2**-8)), (2**-8, Fraction(1, 256))], [*ABOVE_ZERO.refused, 1.0, 2]
    ),
    "level": with_refused(ABOVE_ZERO, 1, 1.5),
    "max_pairs": optional(COUNT),
    "multiplicative": FLAG._replace(same=[(False, np.False_)]),
    "n_effective": ParameterKind([], [*optional(NUMBER).refused, 0, 1, 41, "all"]),
    "n_features_to_select": with_refused(optional(COUNT), 6),
    "n_representatives": with_refused(optional(COUNT), 4),
    "numbers": ParameterKind([([2], [np.int64(2)])], [[], "2", [0], [6], [None], [2.5], {}]),
    "penalties": ParameterKind([([0.5], (0.5,))], [[], "2", [1], [-0.1], [None], [np.nan], {}]),
    "penalty": with_refused(optional(FRACTION), 1),
    "progress": ParameterKind([], ["yes", None, 1, [True]]),
    "random_state": optional(SEED),
    "robust": ParameterKind([], NAMES),
    "size": with_refused(COUNT, (), (8,), (8, 2.5), (8, 0), (8, 10**400)),
    "stride": with_refused(COUNT, 5),
    "shape": ParameterKind(
        [*FRAME.same, ((4, 5, 1), (4, np.int64(5), 1))], [*FRAME.refused, (True, 5)]
    ),
    "sparsity": optional(with_refused(ABOVE_ZERO, *NAMES)),
    "spikes": ParameterKind(
        [(2, [2.0]), ([2, 3], np.array([3, 2], dtype=np.int8)), (2, np.float32(2))],
        [
            *("2", None, [], {}, [None], [-1], [np.nan], [10**400], True, 1j),
            *(np.ma.masked_array([1.0, 2.0], [1, 0]), [[1, 2], [3]]),
        ],
    ),
    "truncation": ParameterKind(
        [(3, np.int64(3)), (0.75, np.float32(0.75))],
        [*optional(NUMBER).refused, 0, -1, 6, 1.5, "mp"],
    ),
}
NO_WEIGHTS = ParameterKind([], [None, "CPCA", cc.CPCA, KERNEL, cc.SecondMoments, 3])
SAMPLINGS = ParameterKind(
    [], [*COUNT.refused, images.Patches, images.Channels(), np.array(["patches", "frames"])]
)
SPARSE_GROUPS = ParameterKind([(4, np.int64(4))], [*COUNT.refused, 3])
# Kinds of parameters of single functions, which differ from the kind in `KINDS`.
OWN = {
    ("make_sparse_groups", "n_foreground"): SPARSE_GROUPS,
    ("condition_shift", "n_resamples"): with_allowed(COUNT, 0),
}
# `CPCA.path` accepts these values, which `contrast_path` refuses.
AUTO_OR_TWICE = [v for v in KINDS["alphas"].refused if repr(v) in ("'auto'", "[0, 0]")]
# These parameters are left out, because other files test unusual data, labels and weights.
TESTED_ELSEWHERE = {
    *("X", "background", "positive", "rows", "y", "estimator", "sample_weight"),
    *("background_weight", "background_mix", "units", "background_units", "groups", "within"),
    *("background_within", "positive_within", "clusters", "positive_clusters"),
    *("feature_names", "name", "device", "priors", "stack", "mask"),
}


class Parameter(NamedTuple):
    """A parameter of a public function; `call(value)` calls the function with this value."""

    where: str
    name: str
    kind: ParameterKind
    call: Callable[[Any], Any]


def function(make: Callable[..., Any], **given: Any) -> list[Parameter]:
    """Return the parameters of a function; `given` has the arguments that it requires."""
    return [
        Parameter(
            make.__qualname__,
            each.name,
            OWN.get((make.__qualname__, each.name)) or KINDS[each.name],
            lambda v, name=each.name: make(**given | {name: v}),
        )
        for each in inspect.signature(make).parameters.values()
        if each.kind is not each.VAR_KEYWORD and each.name not in TESTED_ELSEWHERE
    ]


def estimator(make: Any, other: str = "background", **given: Any) -> list[Parameter]:
    """Return the parameters of an estimator."""

    def call(name: str, value: Any) -> Any:
        return make(**given | {name: value}).fit(X, **{other: Y}).transform(X)

    return [each._replace(call=lambda v, name=each.name: call(name, v)) for each in function(make)]


def suppressed(sampling: Any) -> Any:
    return images.suppress_background(STACK, STACK[::-1], sampling=sampling).denoised


SPARSE = cc.SparseCPCA(2, alpha=0.5)
DATA: dict[str, Any] = {"X": X, "background": Y, "random_state": 0}
TABLE = [
    *estimator(cc.CPCA),
    *estimator(cc.CPCAStar),
    *estimator(cc.PCPCA),
    *estimator(cc.SparseCPCA, alpha=0.5),
    *estimator(cc.KernelCPCA),
    *estimator(cc.OnlineCPCAStar),
    # CLVM shows progress only if inference="vi".
    *(each for each in estimator(cc.CLVM, random_state=0) if each.name != "progress"),
    *estimator(cc.PCAPlus, "positive"),
    *estimator(cc.PCAPlusPlus, "positive"),
    *estimator(images.StructuredBackgroundRemover),
    *function(cc.PCAPlusPlus(2).fit, X=X, positive=Y),
    *function(SPARSE.fit(X, background=Y).sparsity_path),
    *function(cc.cross_validated_penalty, **DATA, estimator=SPARSE, penalties=[0.1], n_folds=2),
    *function(cc.permutation_test, **DATA, estimator=cc.CPCA(2), n_permutations=2),
    *function(cc.cross_fitted_ratio, **DATA, n_splits=2),
    *function(cc.bootstrap_stability, **DATA, estimator=cc.CPCA(2), n_resamples=2),
    *function(cc.condition_test, **DATA, estimator=cc.CPCA(2), n_permutations=2),
    *function(cc.contrast_dimension, **DATA, n_resamples=2),
    *function(cc.condition_shift, **DATA, n_resamples=2),
    *function(cc.contrast_path, **DATA | {"alphas": [0, 1, 2]}),
    Parameter("CPCA.at", "alpha", FROM_ZERO, FITTED.at),
    Parameter("CPCA.path", "alpha", with_allowed(KINDS["alphas"], *AUTO_OR_TWICE), FITTED.path),
    *function(FITTED.denoise, X=X),
    *function(MODEL.sample_foreground, random_state=0),
    *function(LATENT.sample_background, random_state=0),
    *function(LATENT.transform_shared, X=X),
    *function(LATENT.score_samples, X=X),
    *function(cc.contrast.detectable_spike, n_features=3, n_pairs=10),
    *function(cc.contrast.expected_subspace_error, spikes=4.0, n_features=3, n_pairs=10),
    *function(pairing.neighbor_pairs, X=X, positive=Y),
    *function(pairing.pairing_basis, X=X, within=np.zeros(40)),
    *function(pairing.scaled_features, X=X),
    *estimator(images.FrameBackgroundRemover, frame_shape=(5, 1)),
    *function(images.weight_maps, estimator=FITTED),
    Parameter("weight_maps", "estimator", NO_WEIGHTS, lambda v: images.weight_maps(v, (5, 1))),
    Parameter("suppress_background", "sampling", SAMPLINGS, suppressed),
    *function(images.Patches, size=4),
    *function(images.Channels),
    *function(images.Patches(4, 2).rows, stack=STACK),
    *function(datasets.make_toy),
    *function(datasets.make_four_groups),
    *function(datasets.make_sparse_groups),
    *function(datasets.make_motion_sensors),
    *function(datasets.digits_on_photos, n_samples=2),
    *function(datasets.load_mouse_protein),
    *function(cc.SecondMoments.from_data, X=X),
]


def arrays_in(value: Any) -> list[Any]:
    """Return the arrays and numbers that a result holds."""
    if hasattr(value, "components_"):
        return [value.components_]
    if isinstance(value, tuple | list):
        return [array for each in value for array in arrays_in(each)]
    if hasattr(value, "__dict__") and not isinstance(value, np.ndarray):
        return [each for each in vars(value).values() if isinstance(each, np.ndarray | float)]
    return [value]


def shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # the integer has too many digits to print
        return "10**5000"


def fault_of_refusal(parameter: Parameter, value: Any) -> str:
    """Describe what is wrong with the refusal of an invalid value, or return an empty string."""
    try:
        parameter.call(value)
    except Exception as error:
        return complaint(error, parameter.name)
    return "is accepted"


def each_of(parameters: list[Parameter]) -> Any:
    """Parametrise a test over parameters."""
    return pytest.mark.parametrize("parameter", parameters, ids=lambda p: f"{p.where}-{p.name}")


@each_of(TABLE)
def test_invalid_values_are_refused_by_name(parameter: Parameter) -> None:
    found = {shown(value): fault_of_refusal(parameter, value) for value in parameter.kind.refused}
    assert not {value: text for value, text in found.items() if text}


@each_of([parameter for parameter in TABLE if parameter.kind.same])
def test_equivalent_values_give_the_same_result(parameter: Parameter) -> None:
    for plain, other in parameter.kind.same:
        results = arrays_in(parameter.call(plain)), arrays_in(parameter.call(other))
        for one, two in zip(*results, strict=True):
            np.testing.assert_array_equal(one, two, err_msg=f"{plain!r} and {other!r}")
