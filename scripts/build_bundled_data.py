"""Rebuild the files in contrast_core/datasets/data from their sources.

The script needs Pillow, scikit-image and scikit-learn. The variable CONTRAST_DATA names the folder
that holds the larger real datasets:

    CONTRAST_DATA=... python scripts/build_bundled_data.py
"""

import os
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

SOURCE = Path(os.environ["CONTRAST_DATA"])
TARGET = Path(__file__).parents[1] / "contrast_core" / "datasets" / "data"
SIDE = 100
# The first, third, fifth, ... photograph belongs to the foreground, the others to the background.
PHOTOGRAPHS = {
    "camera": "skimage/data/camera.png",
    "coffee": "skimage/data/coffee.png",
    "chelsea": "skimage/data/chelsea.png",
    "clock": "skimage/data/clock_motion.png",
    "grass": "skimage/data/grass.png",
    "gravel": "skimage/data/gravel.png",
    "hubble": "skimage/data/hubble_deep_field.jpg",
    "coins": "skimage/data/coins.png",
    "astronaut": "skimage/data/astronaut.png",
    "brick": "skimage/data/brick.png",
    "china": "sklearn/datasets/images/china.jpg",
    "flower": "sklearn/datasets/images/flower.jpg",
}


def photograph(path: str) -> np.ndarray:
    """Return the central square of a picture in grey, resized to SIDE x SIDE pixels."""
    package, _, inside = path.partition("/")
    with Image.open(files(package).joinpath(inside)) as picture:
        grey = picture.convert("L")
    scale = SIDE / min(grey.size)
    grey = grey.resize((round(grey.width * scale), round(grey.height * scale)), Image.BICUBIC)
    left, top = (grey.width - SIDE) // 2, (grey.height - SIDE) // 2
    return np.asarray(grey.crop((left, top, left + SIDE, top + SIDE)))


mouse = "mouse_cortex_protein_saline.csv.gz"
shutil.copyfile(SOURCE / "mouse_protein" / mouse, TARGET / mouse)

with np.load(SOURCE / "mnist" / "mnist_train_subset.npz") as mnist:
    images, labels = mnist["images"][:5000], mnist["labels"][:5000]
np.savez_compressed(TARGET / "mnist_zeros_ones.npz", images=images, labels=labels)

np.savez_compressed(
    TARGET / "photographs.npz",
    images=np.stack([photograph(path) for path in PHOTOGRAPHS.values()]),
    names=np.array(list(PHOTOGRAPHS)),
)
