"""Sizes of the chunks in which a stack is stored."""

from __future__ import annotations

from contrast_core.images._stacks import Stack


def chunk_side(stack: Stack, axis: int) -> int | None:
    """Return the length of stored chunks along an axis, or None if it is not known."""
    chunks = getattr(stack, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != len(stack.shape):
        return None
    side = chunks[axis]
    return int(max(side) if isinstance(side, tuple) else side)  # dask lists all lengths
