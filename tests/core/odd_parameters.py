"""Every parameter of the public functions, in one table: what takes it, and of what kind it is.

A kind has plain values, others that mean the same, and others that are refused with a message that
names the parameter and shows the value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import contrast_core as cc
from contrast_core import datasets, images, pairing

RNG = np.random.default_rng(0)
SHARED = RNG.normal(size=(40, 1)) * [3.0, 1.0, 0.0, 0.0, 0.0]
X = RNG.normal(size=(40, 5)) * [3.0, 2.5, 2.0, 1.0, 1.0] + SHARED
Y = RNG.normal(size=(40, 5)) * [3.0, 1.0, 1.0, 1.0, 1.0] + SHARED
FITTED = cc.CPCA(2, alpha=1.0).fit(X, background=Y)
MODEL = cc.PCPCA(2).fit(X, background=Y)
LATENT = cc.CLVM().fit(X, background=Y)
STACK = RNG.normal(size=(4, 5, 1))


class Kind(NamedTuple):
    """Values of a parameter: pairs that mean the same, and what is refused."""

    same: list[tuple[Any, Any]]
    refused: list[Any]


NO_NUMBERS = ["2", None, [2], np.array(2.0), np.array([1, 2]), True, np.True_, Decimal(2), 2 + 0j]
NO_NUMBERS += [np.timedelta64(2)]
NO_WORTH = [value for value in NO_NUMBERS if value is not None]
NOT_FINITE = [np.nan, np.inf, -np.inf]
HUGE = [10**400, 10**5000, np.longdouble("1e4000")]

COUNT = Kind(
    [(2, np.int64(2)), (2, np.uint8(2))],
    [*NO_NUMBERS, *NOT_FINITE, *HUGE, 0, -1, 2.0, 2.5, np.float64(2), Fraction(2)],
)
ABOVE_ZERO = Kind(
    [(0.5, np.float32(0.5)), (0.5, Fraction(1, 2)), (1, np.int8(1)), (1.0, 1)],
    [*NO_NUMBERS, *NOT_FINITE, *HUGE, 0, 0.0, -1, -1e-300],
)
FROM_ZERO = Kind(
    [(0.5, np.float16(0.5)), (0.5, Fraction(1, 2)), (0, np.int8(0)), (0.0, 0)],
    [*NO_NUMBERS, *HUGE, np.nan, -np.inf, -1, "automatic"],
)
FRACTION = Kind(FROM_ZERO.same, [*FROM_ZERO.refused, np.inf, 1.5])
LEVEL = Kind(
    [(0.5, np.float32(0.5)), (0.5, Fraction(1, 2))],
    [*NO_NUMBERS, *NOT_FINITE, *HUGE, 0, 1, -0.1],
)
FLAG = Kind(
    [(True, np.True_), (False, np.False_)],
    ["yes", "False", None, 0, 1, 1.0, [True], np.array(True), np.nan],
)
SEED = Kind(
    [(1, np.int64(1)), (1, np.uint8(1))],
    ["monday", -1, 1.5, [1], True, np.nan, np.array(1), -(10**400), {}, len],
)
PROGRESS = ["yes", None, 1, [True]]
WORD = Kind([], ["no such word", None, 1, ["auto"], np.array(["auto", "b"]), {}, b"auto", len])


def optional(kind: Kind) -> Kind:
    """The same, where None stands for a default."""
    return kind._replace(refused=[value for value in kind.refused if value is not None])


def but(kind: Kind, *allowed: Any) -> Kind:
    """The same, where some are allowed for a reason of their own."""
    return kind._replace(refused=[v for v in kind.refused if not any(v is a for a in allowed)])


def with_refused(kind: Kind, *values: Any) -> Kind:
    """The same, where further values are refused."""
    return kind._replace(refused=[*kind.refused, *values])


class Parameter(NamedTuple):
    """A public function of one of its parameters."""

    where: str
    name: str
    kind: Kind
    call: Callable[[Any], Any]


def fitted(make: Callable[..., Any], name: str, kind: Kind) -> Parameter:
    """A parameter of an estimator."""
    other = "positive" if make in (cc.PCAPlus, cc.PCAPlusPlus) else "background"

    def call(value: Any) -> Any:
        return make(**{name: value}).fit(X, **{other: Y}).transform(X)

    return Parameter(make.__name__, name, kind, call)


def function(make: Callable[..., Any], name: str, kind: Kind, *args: Any, **more: Any) -> Parameter:
    """A parameter of a function."""
    return Parameter(make.__name__, name, kind, lambda v: make(*args, **more | {name: v}))


def sparse(name: str, value: Any) -> Any:
    given = {} if name == "numbers" else {name: value}
    model = cc.SparseCPCA(2, alpha=0.5, **given).fit(X, background=Y)
    if name == "numbers":
        return [one.components_ for one in model.sparsity_path(value)]
    return model.components_


def cross_validated(name: str, value: Any) -> Any:
    given = {"penalties": [0.1, 0.5], "n_folds": 2, "random_state": 0, name: value}
    choice = cc.cross_validated_penalty(cc.SparseCPCA(2, alpha=0.5), X, background=Y, **given)
    return choice.contrasts


def resampled(call: Callable[..., Any], name: str, value: Any) -> list[Any]:
    """What a test of significance finds, at little cost unless the parameter has it otherwise."""
    tests = (cc.permutation_test, cc.condition_test)
    few = "n_splits" if call is cc.cross_fitted_ratio else "n_resamples"
    few = "n_permutations" if call in tests else few
    estimator = [cc.CPCA(2)] if call in (*tests, cc.bootstrap_stability) else []
    found = call(*estimator, X, background=Y, **{few: 2, "random_state": 0, name: value})
    return [np.asarray(each) for each in vars(found).values() if each is not None]


LIMIT = Kind(
    [(1e6, np.float32(1e6)), (7.5, Fraction(15, 2)), (1000.0, 1000)],
    [*optional(ABOVE_ZERO).refused, 1, 0.5, 1.01e13],
)
RATE = Kind([(2**-8, np.float32(2**-8)), (2**-8, Fraction(1, 256))], [*ABOVE_ZERO.refused, 1.0, 2])
TRUNCATION = Kind(
    [(3, np.int64(3)), (0.75, np.float32(0.75))],
    [*NO_WORTH, *HUGE, *NOT_FINITE, 0, -1, 6, 1.5, "mp"],
)
ESTIMATORS: dict[Any, dict[str, Kind]] = {
    cc.CPCA: {
        "n_components": COUNT,
        "alpha": FROM_ZERO,
        "solver": WORD,
        "random_state": optional(SEED),
    },
    cc.CPCAStar: {
        "n_components": COUNT,
        "beta": FRACTION,
        "orthogonal": FLAG,
        "condition_limit": LIMIT,
    },
    cc.PCPCA: {"n_components": COUNT, "gamma": with_refused(FRACTION, np.inf)},
    cc.SparseCPCA: {"n_components": COUNT, "alpha": with_refused(FROM_ZERO, np.inf)},
    cc.CLVM: {
        "n_shared": but(COUNT, 0),
        "n_salient": but(COUNT, 0),
        "tol": ABOVE_ZERO,
        "sparsity": optional(ABOVE_ZERO),
        "ard": FLAG,
        "robust": Kind([], ["no such word", b"rows", {}]),
        "max_iter": COUNT,
        "random_state": optional(SEED),
    },
    cc.KernelCPCA: {
        "n_components": COUNT,
        "alpha": FROM_ZERO,
        "kernel": but(WORD, len),
        "kernel_gamma": optional(ABOVE_ZERO),
        "degree": ABOVE_ZERO,
        "coef0": Kind(FROM_ZERO.same, [*NO_NUMBERS, *HUGE, *NOT_FINITE]),
        "kernel_params": Kind([], ["a", 1, [1], np.array([1])]),
    },
    cc.OnlineCPCAStar: {
        "n_components": COUNT,
        "beta": FRACTION,
        "learning_rate": RATE,
        "decay_steps": but(optional(ABOVE_ZERO), np.inf),
        "tau": ABOVE_ZERO,
        "batch_size": COUNT,
        "n_passes": COUNT,
        "random_state": optional(SEED),
    },
    cc.PCAPlus: {"n_components": COUNT, "exchangeable": FLAG},
    cc.PCAPlusPlus: {
        "n_components": COUNT,
        "exchangeable": FLAG,
        "weighted": FLAG,
        "truncation": TRUNCATION,
    },
}
TABLE = [
    *(
        fitted(estimator, name, kind)
        for estimator, parameters in ESTIMATORS.items()
        for name, kind in parameters.items()
    ),
    *(
        Parameter("SparseCPCA", name, kind, partial(sparse, name))
        for name, kind in [
            ("penalty", FRACTION._replace(refused=[*optional(FRACTION).refused, 1])),
            ("n_features_to_select", with_refused(optional(COUNT), 6)),
            ("ridge", ABOVE_ZERO),
            ("numbers", Kind([([2], [np.int64(2)])], [[], "2", [0], [6], [None], [2.5], {}])),
        ]
    ),
    *(
        Parameter("cross_validated_penalty", name, kind, partial(cross_validated, name))
        for name, kind in [
            ("n_folds", with_refused(COUNT, 1)),
            ("random_state", optional(SEED)),
            ("penalties", Kind([([0.5], (0.5,))], [[], "2", [1], [-0.1], [None], [np.nan], {}])),
        ]
    ),
    Parameter(
        "CLVM",
        "n_init",
        COUNT,
        lambda v: cc.CLVM(n_init=v, random_state=0).fit(X, background=Y).transform(X),
    ),
    fitted(cc.CLVM, "sparsity", Kind([], ["no such word", b"auto", {}])),
    function(LATENT.transform_shared, "dataset", WORD, X),
    function(LATENT.score_samples, "dataset", WORD, X),
    function(LATENT.sample_background, "n_samples", COUNT, random_state=0),
    function(LATENT.sample_background, "add_noise", FLAG, random_state=0),
    function(LATENT.sample_background, "random_state", optional(SEED)),
    function(
        cc.PCAPlusPlus(2).fit,
        "n_effective",
        Kind([], [*NO_WORTH, *HUGE, *NOT_FINITE, 0, 1, 41, "all"]),
        X,
        positive=Y,
    ),
    function(FITTED.denoise, "offset", WORD, X),
    Parameter("CPCA.at", "alpha", FROM_ZERO, lambda v: FITTED.at(v).components_),
    Parameter(
        "CPCA.path",
        "alpha",
        Kind([([0.5, 2], np.array([0.5, 2]))], [[], "2", [None], [-1], [10**400], [True], [{}]]),
        lambda v: [f.components_ for f in FITTED.path(v)],
    ),
    Parameter(
        "PCPCA.sample_foreground",
        "n_samples",
        COUNT,
        lambda v: MODEL.sample_foreground(v, random_state=0),
    ),
    function(MODEL.sample_foreground, "add_noise", FLAG, random_state=0),
    function(MODEL.sample_foreground, "random_state", optional(SEED)),
    Parameter(
        "contrast_path",
        "n_components",
        COUNT,
        lambda v: cc.contrast_path(X, background=Y, n_components=v, alphas=[0, 1, 2]).components,
    ),
    Parameter(
        "contrast_path",
        "n_representatives",
        optional(Kind(COUNT.same, [*COUNT.refused, 4])),
        lambda v: cc.contrast_path(X, background=Y, n_representatives=v, alphas=[0, 1, 9]).labels,
    ),
    Parameter(
        "contrast_path",
        "random_state",
        optional(SEED),
        lambda v: cc.contrast_path(X, background=Y, random_state=v, alphas=[0, 1, 2, 9]).labels,
    ),
    Parameter(
        "contrast_path",
        "alphas",
        Kind(
            [([0, 1], (0.0, 1.0)), ([0, 1], np.array([1, 0], dtype=np.uint8)), ([2], 2)],
            [
                *("auto", [], [[], []], [0, 0], [0, "1"], [0, None], [0, -1], [np.nan], [10**400]),
                *(np.ma.masked_array([0.0, 1.0], [0, 1]), {}, [1j], [[0, 1], [2]], [True], len),
            ],
        ),
        lambda v: cc.contrast_path(X, background=Y, alphas=v, n_representatives=1).components,
    ),
    function(cc.contrast.detectable_spike, "n_features", COUNT, n_pairs=10),
    function(cc.contrast.detectable_spike, "n_pairs", ABOVE_ZERO, 3),
    function(cc.contrast.detectable_spike, "exchangeable", FLAG, 3, 10),
    function(cc.contrast.expected_subspace_error, "n_features", COUNT, 4.0, n_pairs=10),
    function(cc.contrast.expected_subspace_error, "n_pairs", ABOVE_ZERO, 4.0, 3),
    function(cc.contrast.expected_subspace_error, "exchangeable", FLAG, 4.0, 3, 10),
    function(cc.contrast.expected_subspace_error, "regime", WORD, 4.0, 3, 10),
    function(
        cc.contrast.expected_subspace_error,
        "spikes",
        Kind(
            [(2, [2.0]), ([2, 3], np.array([3, 2], dtype=np.int8)), (2, np.float32(2))],
            [
                *("2", None, [], {}, [None], [-1], [np.nan], [10**400], True, 1j),
                *(np.ma.masked_array([1.0, 2.0], [1, 0]), [[1, 2], [3]]),
            ],
        ),
        n_features=3,
        n_pairs=10,
    ),
    *(
        Parameter(call.__name__, name, kind, partial(resampled, call, name))
        for call, name, kind in [
            (cc.permutation_test, "n_permutations", COUNT),
            (cc.permutation_test, "random_state", optional(SEED)),
            (cc.permutation_test, "progress", Kind([], PROGRESS)),
            (cc.cross_fitted_ratio, "n_components", with_refused(COUNT, 6)),
            (cc.cross_fitted_ratio, "n_splits", COUNT),
            (cc.cross_fitted_ratio, "random_state", optional(SEED)),
            (cc.bootstrap_stability, "n_resamples", COUNT),
            (cc.bootstrap_stability, "random_state", optional(SEED)),
            (cc.bootstrap_stability, "progress", Kind([], PROGRESS)),
            (cc.bootstrap_stability, "level", LEVEL),
            (cc.condition_test, "n_permutations", COUNT),
            (cc.condition_test, "include_background", FLAG),
            (cc.contrast_dimension, "n_resamples", COUNT),
            (cc.contrast_dimension, "level", LEVEL),
            (cc.condition_shift, "n_resamples", but(COUNT, 0)),
            (cc.condition_shift, "level", LEVEL),
            (cc.condition_shift, "random_state", optional(SEED)),
        ]
    ),
    function(pairing.neighbor_pairs, "n_neighbors", COUNT, X, Y),
    function(pairing.neighbor_pairs, "max_pairs", optional(COUNT), X, Y),
    function(pairing.neighbor_pairs, "mutual", FLAG, X, Y),
    function(pairing.neighbor_pairs, "search", WORD, X, Y),
    function(pairing.neighbor_pairs, "random_state", optional(SEED), X, Y),
    function(pairing.pairing_basis, "n_components", COUNT, X, np.zeros(40)),
    function(pairing.scaled_features, "clip", but(ABOVE_ZERO, np.inf), X),
    function(
        images.rows_to_stack,
        "shape",
        Kind(
            [((5, 1), [5, 1]), ((5, 1), np.array([5, 1])), ((4, 5, 1), (4, np.int64(5), 1))],
            [None, 5, "ab", (5,), (5, 2), (-5, -1), (5.0, 1), (4, 5, "1"), (0, 0), (True, 5), {}],
        ),
        STACK.reshape(4, 5),
    ),
    function(
        images.weight_maps,
        "frame_shape",
        Kind([((5, 1), [5, 1])], [None, 5, "ab", (5,), (5, 2), (-5, -1), (5.0, 1), (1, 5, 1)]),
        FITTED,
    ),
    *(
        function(make, "random_state", optional(SEED))
        for make in (
            *(datasets.make_toy, datasets.make_four_groups),
            *(datasets.make_sparse_groups, datasets.make_motion_sensors),
        )
    ),
    *(
        function(make, name, with_refused(COUNT, 1))
        for make in (datasets.make_toy, datasets.make_motion_sensors)
        for name in ("n_foreground", "n_background")
    ),
    function(
        datasets.make_sparse_groups, "n_foreground", Kind([(4, np.int64(4))], [*COUNT.refused, 3])
    ),
    function(datasets.make_sparse_groups, "n_background", with_refused(COUNT, 1)),
    function(datasets.digits_on_photos, "n_samples", Kind(COUNT.same, [*COUNT.refused, 5001])),
    Parameter(
        "digits_on_photos",
        "random_state",
        optional(SEED),
        lambda v: datasets.digits_on_photos(2, random_state=v),
    ),
    function(datasets.load_mouse_protein, "raw", FLAG),
    function(cc.SecondMoments.from_data, "progress", Kind([], PROGRESS), X),
]
