"""Pictures of images before and after denoising; two of them also show rows as points."""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

from contrast_core import CPCA
from contrast_core.datasets import cells_behind_fringes, digits_on_photos, load_mouse_protein
from contrast_core.images import FrameBackgroundRemover, suppress_background

from .parts import GROUPS, MICE, PAGE, TREATED, bare, legend_below, panels, points


def front() -> None:
    """Draw PCA beside contrastive PCA of mice, and an image beside its denoised form."""
    mice = load_mouse_protein()
    cpca = CPCA(n_components=2).fit(mice.foreground, background=mice.background)
    field = cells_behind_fringes((448, 448))
    result = suppress_background(field.image, field.empty)
    axes = panels(4, 2.6)
    for ax, model, name in zip(
        axes, (cpca.at(0), cpca), ("PCA:\nmice mixed", "contrastive PCA:\nmice apart"), strict=False
    ):
        points(ax, model.transform(mice.foreground), mice.labels, MICE)
        bare(ax, name)
    legend_below(axes[0])
    names = "image:\ncells and fringes", "denoised:\ncells only"
    for ax, picture, name in zip(axes[2:], (field.image, result.denoised), names, strict=True):
        ax.imshow(picture, cmap="gray")
        bare(ax, name)


def fringes() -> None:
    """Draw an image with fringes, the denoised image, the removed background and the truth."""
    image, clean, empty = cells_behind_fringes((448, 448))
    result = suppress_background(image, empty)
    shown = {
        "image, empty box": image,
        "denoised": result.denoised,
        "removed": result.removed,
        "truth": clean,
    }
    axes = panels(4, 2.2)
    for ax, (name, picture) in zip(axes, shown.items(), strict=True):
        ax.imshow(picture, cmap="gray")
        bare(ax, name)
    axes[0].contour(empty, levels=[0.5], colors=TREATED)


def frames() -> None:
    """Draw digits on photographs: noisy, denoised by three methods, and clean."""
    digits = digits_on_photos(2000)
    filtered = FrameBackgroundRemover(digits.frame_shape).fit(
        digits.foreground, background=digits.background
    )
    model = CPCA(10, alpha="denoise").fit(digits.foreground, background=digits.background)
    rows = {
        "foreground": digits.foreground,
        "PCA": model.at(0).denoise(digits.foreground, offset="difference"),
        "cPCA": model.denoise(digits.foreground, offset="difference"),
        "frame filter": filtered.transform(digits.foreground),
        "truth": digits.clean,
    }
    _figure, axes = plt.subplots(5, 8, figsize=(PAGE, 4.6))
    for row, (name, frames_) in zip(axes, rows.items(), strict=True):
        for ax, frame in zip(row, frames_[:8], strict=False):
            ax.imshow(frame.reshape(28, 28), cmap="gray")
            bare(ax, "")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")


def cvae() -> None:
    """Draw frames before and after denoising, sampled frames, and left-out digits in 2D."""
    from contrast_core import CVAE

    data = digits_on_photos(5000)
    X, new = data.foreground[:4500], data.foreground[4500:]
    model = CVAE(max_iter=20, random_state=0).fit(X, background=data.background)
    shown = {
        "foreground": new[:6],
        "denoised": model.denoise(new[:6]),
        "new foreground": model.sample_foreground(6, random_state=3),
        "new background": model.sample_background(6, random_state=3),
    }
    montage, *others = panels(3, 2.9)
    rows = [np.hstack([image.reshape(28, 28) for image in images]) for images in shown.values()]
    bright = [np.clip((row - row.min()) / np.quantile(row - row.min(), 0.98), 0, 1) for row in rows]
    montage.imshow(np.concatenate(bright), cmap="gray")
    bare(montage, "frames")
    montage.set_yticks(14 + 28 * np.arange(4), shown)
    pca = CPCA(alpha=0.0).fit(X, background=data.background)
    digits = {0: ("zero", GROUPS[0]), 1: ("one", GROUPS[1])}
    titles = "PCA: mixed", "CVAE: apart"
    for ax, fitted, title in zip(others, (pca, model), titles, strict=True):
        points(ax, fitted.transform(new), data.labels[4500:], digits)
        bare(ax, title)
    legend_below(others[0])
