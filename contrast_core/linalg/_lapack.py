"""BLAS and LAPACK routines that release Python's global interpreter lock.

Problem: SciPy's wrappers hold the lock while they compute. If a worker thread calls
`scipy.linalg.eigh` with a few thousand features, the window of an application freezes for seconds.
SciPy exports its BLAS and LAPACK for C callers (`scipy.linalg.cython_blas` and
`scipy.linalg.cython_lapack`). Calls through ctypes release the lock. They use the same routines of
the same library, so the results are the same.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def _routine(library: str, name: str, n_arguments: int) -> Any:
    """Return a C entry point of `scipy.linalg`, whose arguments are all pointers."""
    exported = import_module(f"scipy.linalg.{library}").__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = api.PyCapsule_GetPointer(exported, api.PyCapsule_GetName(exported))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(pointer)


def add_products(rows: NDArray[Any], products: NDArray[Any]) -> None:
    """Add ``rows.T @ rows`` to the upper triangle of `products`, in place.

    This takes half the work of a general matrix product. NumPy's ``rows.T @ rows`` also takes half
    the work, but fills the other triangle slowly and cannot add to an existing matrix.

    Parameters
    ----------
    rows : ndarray of shape (n, D)
        float32 or float64, C- or Fortran-ordered.
    products : ndarray of shape (D, D)
        The same type as the rows, C- or Fortran-ordered.
    """
    given = [(a.dtype.type, a.flags.c_contiguous, a.flags.f_contiguous) for a in (rows, products)]
    kind = given[0][0]
    if kind not in (np.float32, np.float64) or any(
        a[0] is not kind or not any(a[1:]) for a in given
    ):
        raise TypeError(
            "expected arrays in C or Fortran order, both float32 or both float64; got types and "
            f"orders {given}."
        )
    n, n_features = rows.shape
    if products.shape != (n_features, n_features):
        raise ValueError(
            f"products has shape {products.shape}; expected {(n_features, n_features)}."
        )
    if not n or not n_features:
        return
    multiply = _routine("cython_blas", "ssyrk" if kind is np.float32 else "dsyrk", 10)
    by_row = rows.flags.c_contiguous
    # Fortran reads a C-ordered array as its transpose.
    triangle = b"L" if products.flags.c_contiguous else b"U"
    sizes = [np.array(i, dtype=np.intc) for i in (n_features, n, n_features if by_row else n)]
    one = np.ones((), dtype=kind)
    arrays = [sizes[0], sizes[1], one, rows, sizes[2], one, products, sizes[0]]
    multiply(triangle, b"N" if by_row else b"T", *(array.ctypes.data for array in arrays))


def mirror_upper(matrix: NDArray[Any]) -> None:
    """Copy the upper triangle of a square matrix to the lower one, in place."""
    step = 256  # block size that fits into the cache
    for start in range(0, len(matrix), step):
        rows = slice(start, start + step)
        corner = np.triu(matrix[rows, rows])
        matrix[rows, rows] = corner + np.triu(corner, 1).T
        matrix[start + step :, rows] = matrix[rows, start + step :].T


def largest_eigenpairs(matrix: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the k largest eigenvalues, ascending (k,), and their vectors as columns (n, k).

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric, float32 or float64, Fortran-ordered; its lower triangle is read and overwritten.
    k : int
        Number of eigenpairs, from 1 to n.

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
    solve = _routine("cython_lapack", "ssyevr" if matrix.dtype == np.float32 else "dsyevr", 21)
    n = len(matrix)
    values, vectors = np.empty(n, matrix.dtype), np.empty((n, k), matrix.dtype, order="F")
    support = np.empty(2 * k, dtype=np.intc)
    order, low, high = (np.array(i, dtype=np.intc) for i in (n, n - k + 1, n))
    n_found, info = np.zeros((), dtype=np.intc), np.zeros((), dtype=np.intc)
    # The eigenvalues are selected by index, so the bounds of their range are not used. A tolerance
    # of 0 stands for the default.
    unused = np.zeros((), matrix.dtype)

    def call(work: NDArray[Any], integer_work: NDArray[np.intc], lwork: int, liwork: int) -> None:
        sizes = np.array(lwork, dtype=np.intc), np.array(liwork, dtype=np.intc)
        arrays: list[NDArray[Any]] = [matrix, order, unused, unused, low, high, unused, n_found]
        arrays += [values, vectors, order, support, work, sizes[0], integer_work, sizes[1], info]
        pointers = [array.ctypes.data for array in arrays]
        # The arguments jobz, range, uplo and n come before the matrix.
        solve(b"V", b"I", b"L", order.ctypes.data, *pointers)

    work, integer_work = np.empty(1, matrix.dtype), np.empty(1, dtype=np.intc)
    call(work, integer_work, -1, -1)  # queries the sizes of the work arrays
    lwork, liwork = int(work[0]), int(integer_work[0])
    call(np.empty(lwork, matrix.dtype), np.empty(liwork, dtype=np.intc), lwork, liwork)
    if info:
        raise np.linalg.LinAlgError(f"LAPACK's eigenvalue solver failed with info={int(info)}.")
    return values[:k], vectors
