"""LAPACK's leading eigenpairs without Python's global lock.

`scipy.linalg.eigh` holds the lock throughout: from another thread it freezes a window for seconds
at a few thousand features. SciPy exports its LAPACK for C callers; called through ctypes, which
gives the lock back, it is the same routine of the same library with the same result.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def _syevr(name: str) -> Any:
    """The C entry point of LAPACK's `name`: all arguments are pointers, as in Fortran."""
    from scipy.linalg import cython_lapack

    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule = cython_lapack.__pyx_capi__[name]
    pointer = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 21)(pointer)


def largest_eigenpairs(matrix: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The k largest eigenvalues, ascending (k,), and their vectors as columns (n, k).

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric, float32 or float64, Fortran-ordered; its lower triangle is read and overwritten.
    k : int
        From 1 to n.

    Raises
    ------
    numpy.linalg.LinAlgError
        If LAPACK does not converge.
    """
    if matrix.dtype not in (np.float32, np.float64) or not matrix.flags.f_contiguous:
        raise TypeError(
            f"the matrix is {matrix.dtype} with strides {matrix.strides}; expected a "
            "Fortran-ordered float32 or float64 matrix."
        )
    solve = _syevr("ssyevr" if matrix.dtype == np.float32 else "dsyevr")
    n = len(matrix)
    values, vectors = np.empty(n, matrix.dtype), np.empty((n, k), matrix.dtype, order="F")
    support = np.empty(2 * k, dtype=np.intc)
    order, low, high = (np.array(i, dtype=np.intc) for i in (n, n - k + 1, n))
    found, info = np.zeros((), dtype=np.intc), np.zeros((), dtype=np.intc)
    unused = np.zeros((), matrix.dtype)  # bounds by value; as the tolerance: the default

    def call(work: NDArray[Any], integer_work: NDArray[np.intc], lwork: int, liwork: int) -> None:
        sizes = np.array(lwork, dtype=np.intc), np.array(liwork, dtype=np.intc)
        arrays: list[NDArray[Any]] = [matrix, order, unused, unused, low, high, unused, found]
        arrays += [values, vectors, order, support, work, sizes[0], integer_work, sizes[1], info]
        pointers = [array.ctypes.data for array in arrays]
        # jobz, range, uplo, n come before the matrix.
        solve(b"V", b"I", b"L", order.ctypes.data, *pointers)

    work, integer_work = np.empty(1, matrix.dtype), np.empty(1, dtype=np.intc)
    call(work, integer_work, -1, -1)  # asks for the sizes
    lwork, liwork = int(work[0]), int(integer_work[0])
    call(np.empty(lwork, matrix.dtype), np.empty(liwork, dtype=np.intc), lwork, liwork)
    if info:
        raise np.linalg.LinAlgError(f"LAPACK's eigenvalue solver failed with info={int(info)}.")
    return values[:k], vectors
