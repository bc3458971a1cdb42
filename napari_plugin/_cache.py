"""Readings kept, so that another run of the same layers reads nothing."""

from __future__ import annotations

import weakref
import zlib
from collections import OrderedDict
from typing import Any

import numpy as np

from napari_plugin._pair import Pair
from napari_plugin._read import reads_frames
from napari_plugin._reading import Reading
from napari_plugin._settings import Samples, Settings

_MOST_BYTES = 2**29
_SAMPLED = 2**14  # pixels that tell an edited array


class ReadingCache:
    """Readings by images, region and samples; the oldest go first.

    Images are told by their identity, and arrays in memory by some of their pixels too, for they
    can be painted on.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[Any, tuple[tuple[Any, ...], Reading]] = OrderedDict()

    def get(self, pair: Pair, samples: Samples, settings: Settings) -> Reading | None:
        """The reading of these, or None."""
        key = _key(pair, samples, settings)
        found = self._kept.get(key)
        if found is None:
            return None
        references, reading = found
        if any(each() is None for each in references):  # and its identity may be another's now
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return reading

    def put(self, pair: Pair, samples: Samples, settings: Settings, reading: Reading) -> None:
        """Keep a reading, and drop the oldest beyond the limit."""
        self._kept[_key(pair, samples, settings)] = (_references(pair), reading)
        while len(self._kept) > 1 and self._size() > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def _size(self) -> int:
        return sum(reading.nbytes for _, reading in self._kept.values())


def _key(pair: Pair, samples: Samples, settings: Settings) -> Any:
    mask = pair.mask
    region = None if mask is None else (mask.shape, zlib.crc32(np.packbits(mask).tobytes()))
    sides = tuple(_told(each.data) for each in (pair.foreground, pair.behind))
    return sides, region, samples, reads_frames(pair, samples, settings)


def _told(data: Any) -> Any:
    if not isinstance(data, np.ndarray):
        return id(data), tuple(data.shape)
    step = max(1, data.size // _SAMPLED)
    # An odd step, so that it is not always the same column.
    places = np.arange(0, data.size, step | 1)
    return id(data), data.shape, zlib.crc32(data.flat[places].tobytes())


def _references(pair: Pair) -> tuple[Any, ...]:
    found: list[Any] = []
    for images in (pair.foreground, pair.behind):
        try:
            found.append(weakref.ref(images.data))
        except TypeError:  # lists and the like have none: held, so that the identity stays theirs
            found.append(lambda held=images.data: held)
    return tuple(found)
