"""What moments of blocks say against a contrast of images."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import ArpackNoConvergence

from contrast_core import SecondMoments
from contrast_core.images import (
    Channels,
    Frames,
    Patches,
    block_moments,
    suppress_background,
    verdicts,
)
from contrast_core.images._blocks import wide_stride
from contrast_core.images._verdicts import participation_ratio, resemblance
from tests.core.images.pictures import PATTERNS, cells, noisy, white

QUICK = Patches(size=8, stride=4)
SHAPE = (160, 170)
EMPTY = 80


def kinds(found: Any) -> list[str]:
    return [verdict.kind for verdict in found]


def blocks(image: Any, mask: Any = None) -> Any:
    return block_moments(QUICK, image, mask)


def scene(pattern: Any, seed: int = 0) -> tuple[Any, Any, Any]:
    """Cells on a pattern, the pattern alone, and which part of the former is empty."""
    rng = np.random.default_rng(seed)
    clean = cells(SHAPE, rng, empty=EMPTY)
    image = noisy(clean, pattern(SHAPE, rng), rng)
    alone = clean.std() * (pattern(SHAPE, rng) + 0.3 * rng.normal(size=SHAPE))
    mask = np.zeros(SHAPE, dtype=bool)
    mask[:EMPTY, :EMPTY] = True
    return image, alone, mask


@pytest.mark.parametrize("pattern", PATTERNS)
def test_cells_on_a_pattern_are_sound(pattern: str) -> None:
    image, _, mask = scene(PATTERNS[pattern])
    assert verdicts(blocks(image), blocks(image, mask)) == ()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_layers_that_are_swapped(pattern: str) -> None:
    image, alone, _ = scene(PATTERNS[pattern])
    (verdict,) = verdicts(blocks(alone), blocks(image))
    assert verdict.kind == "layers probably swapped"
    assert verdict.value > verdict.threshold >= 2
    assert f"{verdict.value:.2g} times" in verdict.sentence


@pytest.mark.parametrize("pattern", PATTERNS)
def test_nothing_is_found_where_nothing_is(pattern: str) -> None:
    image, alone, _ = scene(PATTERNS[pattern], seed=1)
    if pattern != "stripes":  # of which two halves show different ones
        (verdict,) = verdicts(blocks(alone[:, :85]), blocks(alone[:, 85:]))
        assert verdict.kind == "nothing found"
        assert 0.5 < verdict.value < verdict.threshold
    assert kinds(verdicts(blocks(image), blocks(image))) == ["nothing found"]


@pytest.mark.parametrize("pattern", ["grid", "fringes", "white"])
def test_a_background_of_the_signals_own_patterns(pattern: str) -> None:
    alone = scene(PATTERNS.get(pattern, white), seed=1)[1]
    verdict = verdicts(blocks(2 * alone[:, :85]), blocks(alone[:, 85:]))[0]
    assert verdict.kind == "background resembles the signal"


def test_camera_noise_has_no_structure() -> None:
    image, alone, mask = scene(white)
    (verdict,) = verdicts(blocks(image), blocks(image, mask))
    assert verdict.kind == "unstructured background"
    assert verdict.value > 0.9
    assert "Noise2Void or BM3D" in verdict.sentence
    assert kinds(suppress_background(image, alone, sampling=QUICK).verdicts) == [verdict.kind]


def test_resemblance_is_one_for_proportional_covariances_and_zero_for_disjoint_ones() -> None:
    rng = np.random.default_rng(0)
    D = 30
    half = np.diag(np.repeat([1.0, 0.0], D // 2))

    def moments(covariance: Any) -> SecondMoments:
        return SecondMoments(1000, np.zeros(D), covariance)

    mixed = rng.normal(size=(D, D))
    N = mixed @ mixed.T
    unit = np.trace(N) / D
    assert resemblance(moments(N + 5 * (N + 0.03 * unit * np.eye(D))), moments(N)) == pytest.approx(
        1
    )
    assert resemblance(moments(half + 9 * (np.eye(D) - half)), moments(half)) < 0.1
    assert resemblance(moments(N), moments(N)) == 0.0
    # By its definition, from the covariances of signal and background.
    S = np.diag(rng.random(D))
    noise = N + 0.03 * unit * np.eye(D)
    s, n = S / np.trace(S), noise / np.trace(noise)
    error = 2 * np.trace(s @ np.linalg.inv(s + n) @ n)
    for strength in (1e-3, 1, 1e3):
        found = resemblance(moments(N + strength * S), moments(N))
        assert found == pytest.approx(error, rel=1e-6)


def test_what_is_found_is_the_ratio_of_a_few_lines_of_numpy() -> None:
    rng = np.random.default_rng(0)
    halves = [[rng.normal(size=(30, 6)) * [2, 1, 1, 1, 1, 1] for _ in "xy"] for _ in range(2)]

    def ratio(fitted: Any, measured: Any) -> float:
        (P, Q), (A, B) = (
            [np.cov(rows.T, bias=True) for rows in half] for half in (fitted, measured)
        )
        alpha = 0.0
        while True:
            V = np.linalg.eigh(P - alpha * Q)[1][:, -2:]
            here, there = (
                np.trace(V.T @ x @ V) / (np.trace(V.T @ y @ V) + 2 * np.trace(y) / 24)
                for x, y in ((P, Q), (A, B))
            )
            if here <= 1.05 * alpha:
                return there
            alpha = here

    x, y = ([SecondMoments.from_data(half[side]) for half in halves] for side in (0, 1))
    verdict = verdicts(x, y)[0]
    assert verdict.kind == "nothing found"
    expected = np.median([ratio(*halves), ratio(*halves[::-1])])
    assert verdict.value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [40, 200, 4000])
def test_few_rows_do_not_bias_the_participation_ratio(n: int) -> None:
    rng = np.random.default_rng(0)
    film = rng.normal(size=(n, 10, 12)) + 3 * rng.normal(size=(n, 1, 1))  # flicker is no structure
    assert participation_ratio(block_moments(Frames(), film)) == pytest.approx(1, abs=0.1)
    assert participation_ratio([SecondMoments(n, np.zeros(5), np.eye(5))]) == pytest.approx(1)
    structured = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 120))
    assert participation_ratio(block_moments(Frames(), structured.reshape(n, 10, 12))) < 0.05


@pytest.mark.parametrize("d", [40, 90])  # features: by LAPACK, and by iteration
@pytest.mark.parametrize("n", [100, 400])
def test_a_weak_signal_is_found_beside_a_strong_background(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    strong = rng.normal(size=(3, d)) * 3

    def film(signal: float) -> Any:
        rows = rng.normal(size=(n, d)) + rng.normal(size=(n, 3)) @ strong
        rows[:, :4] += signal * rng.normal(size=(n, 1))
        return block_moments(Frames(), rows.reshape(n, d // 10, 10))

    (null,) = verdicts(film(0), film(0))
    assert null.kind == "nothing found"
    assert 0.5 < null.value < 1.5
    assert verdicts(film(4), film(0)) == ()
    assert kinds(verdicts(film(0), film(4))) == ["layers probably swapped"]


def test_blocks_that_do_not_vary_say_nothing() -> None:
    varied = [
        SecondMoments.from_data(np.random.default_rng(i).normal(size=(9, 30))) for i in (0, 1)
    ]
    constant = [SecondMoments.from_data(np.ones((9, 30)))] * 2
    assert "nothing found" not in kinds(verdicts(constant, varied))


def test_blocks_share_no_pixels_and_hold_all_that_fits() -> None:
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(3, 48, 64))
    parts = block_moments(QUICK, stack)
    assert len(parts) == 4
    tiles = [stack[:, i : i + 24, j : j + 32] for i in (24, 0) for j in (32, 0)]
    # Two tiles along the first axis, two along the second: quarters, at stride 1.
    for part, tile in zip(parts, tiles, strict=True):
        expected = SecondMoments.from_data(Patches(8, 1).rows(tile))
        assert part.n_samples == expected.n_samples == 3 * 17 * 25
        np.testing.assert_allclose(part.covariance, expected.covariance, atol=1e-12)
    film = block_moments(Frames(), stack[:, :4, :4].repeat(9, axis=0))
    assert [part.n_samples for part in film] == [3, 4, 3, 4, 3, 3, 4, 3]
    assert len(block_moments(Channels(0), stack)) == 8


def test_large_stacks_are_cut_at_a_stride_that_leaves_some_thousands_of_patches() -> None:
    large, mask = np.broadcast_to(np.uint8(1), (40, 512, 512)), np.zeros((512, 512), dtype=bool)
    mask[:256] = True
    assert wide_stride(Patches(16), large) == 13  # the root of 40 * 512**2 / 65536, upwards
    assert wide_stride(Patches(16), large, mask) == 9
    assert wide_stride(Patches(8), large) == 8
    assert wide_stride(Patches(16), large[0, :99, :99]) == 1


def test_small_parts_are_one_block_and_a_mask_may_have_any_shape() -> None:
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(60, 60))
    small = np.zeros(stack.shape, dtype=bool)
    small[20:31, 5:18] = True
    (only,) = block_moments(QUICK, stack, small)
    assert only.n_samples == 4 * 6
    assert len(block_moments(Frames(), rng.normal(size=(3, 4, 4)))) == 1
    y, x = np.mgrid[:60, :60]
    disc = (y - 30) ** 2 + (x - 30) ** 2 < 28**2
    assert len(block_moments(QUICK, stack, disc)) == 4
    # One block of either can say that a background is noise, and nothing about the contrast.
    assert kinds(verdicts([only], block_moments(QUICK, stack, disc))) == ["unstructured background"]


def test_bad_input() -> None:
    constant = SecondMoments.from_data(np.ones((9, 4)))
    varied = SecondMoments.from_data(np.random.default_rng(0).normal(size=(9, 4)))
    with pytest.raises(ValueError, match="at least one block of each"):
        verdicts([], [varied])
    with pytest.raises(ValueError, match="the background is constant"):
        verdicts([varied], [constant])
    with pytest.raises(ValueError, match="no window of 8 x 8 pixels of the box lies in the mask"):
        block_moments(QUICK, np.ones((20, 20)), np.zeros((20, 20), dtype=bool), name="the box")
    with pytest.raises(TypeError, match="the mask of the stack has dtype float64"):
        block_moments(QUICK, np.ones((20, 20)), np.ones((20, 20)))


def test_directions_that_no_iteration_finds_are_decomposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As among eigenvalues that lie close, of a background of one strong pattern."""
    image, alone, _ = scene(next(iter(PATTERNS.values())))
    patches = Patches(size=9, stride=4)
    sides = block_moments(patches, alone), block_moments(patches, image)
    (expected,) = verdicts(*sides)

    def give_up(*_: Any, **__: Any) -> Any:
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr("contrast_core.contrast._held_out.eigsh", give_up)
    (found,) = verdicts(*sides)
    assert found.kind == expected.kind == "layers probably swapped"
    assert found.value == pytest.approx(expected.value, rel=0.01)


def test_tiles_follow_the_height_and_the_width_of_the_image() -> None:
    """Windows of 4 x 6 pixels, each in one kind of the tiles that three windows a side make."""
    image = np.random.default_rng(0).normal(size=(25, 90))
    blocks = block_moments(Patches((4, 6), 1), image)
    down, across = (np.arange(n) * k // n % 2 for n, k in ((25, 2), (90, 5)))
    windows = product(range(25 - 3), range(90 - 5))
    sides = [(down[y : y + 4], across[x : x + 6]) for y, x in windows]
    whole = [(a[0], b[0]) for a, b in sides if np.ptp(a) == 0 and np.ptp(b) == 0]
    assert sorted(block.n_samples for block in blocks) == sorted(Counter(whole).values())
