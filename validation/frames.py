"""Frames freed of a structured background: the automatic filter beside cPCA's projection.

The methods are `FrameBackgroundRemover` and `CPCA(10, alpha="denoise")`. The measure is the squared
error after the best affine fit of every frame, relative to that of the noisy frames. It is computed
on the frames of the fit and on 1,000 new ones. The films are:

- faint digits on the bundled photographs;
- faint digits on outdoor scenes (CONTRAST_DATA), with twelve assignments of the scenes to
  foreground and background, and other digits than those that were used for tuning;
- stripes of varying strength, and blobs at random places, which need `stationary_signal=True`.

    [CONTRAST_DATA=...] python -m validation.frames [photographs] [scenes] [other_films]

A fit of 2,000 frames of 784 pixels takes at most 2.5 seconds of one thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.digits import N_DEALS, digits_on_scenes
from benchmarks.common.measures import seconds
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import data_folder
from contrast_core import CPCA
from contrast_core.images import FrameBackgroundRemover, Frames, block_moments, verdicts
from tests.core.images.pictures import (
    Film,
    blobs_on_photographs,
    digits_on_photographs,
    digits_on_stripes,
    relative_frame_error,
)

NEW = 1000
BOUNDS = {50: 0.90, 200: 0.71, 500: 0.65, 2000: 0.58}  # photographs
MORE_ON_NEW = 0.06
NEVER_ABOVE = 1.02


def errors(film: Film, n: int, denoise: Any) -> tuple[float, float]:
    """Return the error on the first n frames, and on the last thousand."""
    parts = (slice(n), slice(len(film.clean) - NEW, None))
    X, clean = film.foreground, film.clean
    found = [relative_frame_error(denoise(X[s]), clean[s], X[s]) for s in parts]
    return found[0], found[1]


def automatic(film: Film, n: int, **options: Any) -> FrameBackgroundRemover:
    remover = FrameBackgroundRemover(film.shape, **options)
    return remover.fit(film.foreground[:n], background=film.background[:n])


def projection(film: Film, n: int) -> Any:
    fitted = CPCA(10, alpha="denoise").fit(film.foreground[:n], background=film.background[:n])
    return lambda rows: fitted.denoise(rows, offset="difference")


def compare(name: str, film: Film, sizes: tuple[int, ...]) -> dict[int, tuple[float, ...]]:
    """Map the number of frames to the errors of the automatic filter and of the projection.

    Each method has its error on the fitted frames first, then its error on new frames.
    """
    print(f"\n{name}\n  frames   automatic (new)   projection (new)   components", flush=True)
    table = {}
    for n in sizes:
        remover = automatic(film, n)
        table[n] = (*errors(film, n, remover.transform), *errors(film, n, projection(film, n)))
        a, b, c, d = table[n]
        print(f"  {n:6d}   {a:.3f} ({b:.3f})     {c:.3f} ({d:.3f})      {remover.n_components_}")
    return table


def other_digits(folder: Path, digits: tuple[int, ...], n: int) -> Film:
    """Return frames with the given digits, instead of zeros and ones, on the scenes."""
    deal = digits_on_scenes(folder, n)
    mnist = np.load(folder / "mnist" / "mnist_train_subset.npz")
    images = mnist["images"].reshape(-1, 784) / 255.0
    chosen = np.flatnonzero(np.isin(mnist["labels"], digits))
    order = np.random.default_rng(0).choice(chosen, n, replace=len(chosen) < n)
    clean = 0.25 * images[order]
    crops = deal.foreground - deal.clean
    return Film(crops + clean, deal.background, clean, (28, 28))


def never_worse(report: Report, name: str, table: dict[int, tuple[float, ...]]) -> None:
    """Check that the automatic filter is no worse than the noisy frames and the projection."""
    for n, (fitted, new, projected, _) in table.items():
        report.measured(f"{name}, {n} frames, never above", max(fitted, new), most=NEVER_ABOVE)
        report.measured(f"{name}, {n} frames, new frames' excess", new - fitted, most=MORE_ON_NEW)
        report.measured(f"{name} less projection, {n} frames", fitted - projected, most=0.0)


def photographs(report: Report) -> None:
    film = digits_on_photographs(5000)
    table = compare("digits on photographs", film, tuple(BOUNDS))
    for n, most in BOUNDS.items():
        report.measured(f"automatic, {n} frames", table[n][0], most=most)
    never_worse(report, "automatic", table)
    found = errors(film, 5000, projection(film, 5000))[0]
    report.measured("projection, 5000 frames", found, most=0.78)
    [(taken, remover)] = seconds(lambda: automatic(film, 2000))
    report.measured("seconds of a fit of 2000 frames", taken, most=2.5)
    support = (film.clean > 0).mean(axis=0) > 0.05
    weights = remover.feature_weights()[0]
    outside = 1 - weights[support].sum() / weights.sum()
    what = f"component 1's weight outside the digits ({support.mean():.0%})"
    report.measured(what, outside, most=0.10)
    [(taken, kinds)] = seconds(lambda: verdict_kinds(film), repeats=1)
    print(f"  verdicts on 2000 frames: {kinds}, {taken:.1f} s")


def verdict_kinds(film: Film) -> list[str]:
    sets = (rows[:2000].reshape(-1, 28, 28) for rows in (film.foreground, film.background))
    return [verdict.kind for verdict in verdicts(*(block_moments(Frames(), each) for each in sets))]


def scenes(report: Report) -> None:
    folder = data_folder()
    if folder is None:
        print("left out: CONTRAST_DATA does not name the folder of the larger data")
        return
    films = []
    for seed in range(N_DEALS):
        deal = digits_on_scenes(folder, 5000, seed=seed)
        films.append(Film(deal.foreground, deal.background, deal.clean, (28, 28)))
    table = compare("digits on scenes, the first deal", films[0], tuple(BOUNDS))
    never_worse(report, "automatic on scenes", table)
    found = [errors(film, 1000, automatic(film, 1000).transform) for film in films]
    report.measured("twelve deals, 1000 frames, median", np.median(found, 0)[0], most=0.58)
    report.measured("  worst deal, never above", np.max(found), most=NEVER_ABOVE)
    projected = [errors(film, 5000, projection(film, 5000))[0] for film in films]
    report.measured("projection, 5000 frames, median", np.median(projected), most=0.70)
    for digits in ((2, 3), (4, 7), tuple(range(10))):
        name = "/".join(map(str, digits)) if len(digits) == 2 else "0-9"
        film = other_digits(folder, digits, 2000)
        table = compare(f"digits {name} on scenes", film, (50, 200, 1000))
        for n, (fitted, _, projected, _) in table.items():
            what = f"automatic less projection on {name}, {n} frames"
            report.measured(what, fitted - projected, most=0.0)


def other_films(report: Report) -> None:
    rng, sizes = np.random.default_rng(0), (50, 200, 500, 2000)
    compare("digits on stripes of varying strength", digits_on_stripes(3000, rng), sizes)
    film = blobs_on_photographs(3000, rng)
    compare("blobs at random places on photographs", film, sizes)
    for n in sizes:
        fitted, new = errors(film, n, automatic(film, n, stationary_signal=True).transform)
        print(f"  {n:6d}   {fitted:.3f} ({new:.3f})     with stationary_signal=True", flush=True)


if __name__ == "__main__":
    run(photographs, scenes, other_films)
