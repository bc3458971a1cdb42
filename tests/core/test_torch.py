"""Tests of rows in torch tensors and of moments on a device, against results from arrays.

All tests but the last one run on torch's CPU device, with the code that CUDA also uses. If there is
a CUDA device, most of them also run there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, PCPCA, ContrastByLabel, CPCAStar, SecondMoments
from contrast_core.linalg import subspace_error
from contrast_core.moments._torch import DeviceAccumulator
from contrast_core.rows import rows_of
from tests.core.kinds import assert_same_moments
from tests.core.test_contract import planted

torch = pytest.importorskip("torch", reason="torch is not installed")

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])


@pytest.fixture
def pair() -> tuple[Any, Any]:
    return planted(700, 500)


# Blocks have 64 rows on the host and 256 rows on a device, so each dataset has several blocks, and
# the last one is shorter.
small = partial(rows_of, elements=64 * 12)
LAYOUTS: list[Callable[[Any], Any]] = [
    lambda rows: rows,
    lambda rows: rows.T.contiguous().T,
    lambda rows: rows.repeat_interleave(2, dim=1)[:, ::2],
    lambda rows: rows.clone().requires_grad_(),
]


@on_each_device
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "bool"])
def test_moments_of_a_tensor_agree_with_the_array(pair: Any, device: str, dtype: str) -> None:
    rows = (torch.as_tensor(pair[0]) * 4).to(getattr(torch, dtype))
    expected = SecondMoments.from_data(rows.to(torch.float64).numpy())
    assert expected.covariance.dtype == np.float64
    for layout in LAYOUTS[: None if rows.is_floating_point() else 3]:
        made = layout(rows.to(device))
        for where in (None, device):  # if None, NumPy computes the moments of a CPU tensor
            assert_same_moments(SecondMoments.from_data(small(made), device=where), expected)
    parts = map(small, rows.to(device).split(90))
    assert_same_moments(SecondMoments.from_chunks(parts, device=device), expected)


@on_each_device
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.int64])
def test_moments_of_host_rows_are_computed_on_a_device(pair: Any, device: str, dtype: Any) -> None:
    """Use read-only, column-major and sparse rows, and chunks smaller or larger than a block."""
    rows = pair[0].astype(dtype)
    expected = SecondMoments.from_data(rows)
    read_only = rows.copy()
    read_only.flags.writeable = False
    for data in (rows, read_only, np.asfortranarray(rows), rows.tolist(), sp.csr_array(rows)):
        assert_same_moments(SecondMoments.from_data(small(data), device=device), expected)
    chunks = [small(chunk) for chunk in np.split(rows, [1, 30, 31, 400])]
    assert_same_moments(SecondMoments.from_chunks(chunks, device=device), expected)
    assert_same_moments(SecondMoments.from_chunks(iter(chunks), device=device), expected)


@on_each_device
@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_covariance_that_is_summed_over_blocks_of_rows_is_precise(
    pair: Any, device: str, precision: Any
) -> None:
    """Use several blocks of rows, and means far from zero."""
    rows = pair[0] + 2.0**14
    expected = SecondMoments.from_data(rows).covariance
    sums = DeviceAccumulator("X", device, precision, elements=64 * 12)
    sums.consume(rows_of(rows, elements=64 * 12))
    found = sums.result().within
    tolerance = (1e-13 if precision == "double" else 1e-6) * expected.max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(found, found.T)


@on_each_device
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [lambda: CPCA(2), lambda: CPCAStar(2), lambda: PCPCA(2)])
def test_estimators_give_the_same_results_for_tensors_and_arrays(
    pair: Any, make: Callable[[], Any], dtype: Any, device: str
) -> None:
    arrays = [rows.astype(dtype) for rows in pair]
    X, Y = (torch.as_tensor(rows, device=device) for rows in arrays)
    plain = make().fit(arrays[0], background=arrays[1])
    fitted = make().fit(X, background=Y)
    assert subspace_error(fitted.components_, plain.components_) < 1e-12
    assert isinstance(fitted.components_, np.ndarray)
    tolerance = np.abs(arrays[0]).max() * (1e-12 if dtype == np.float64 else 1e-6)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda model, rows: model.transform(rows),
        lambda model, rows: model.inverse_transform(model.transform(rows)),
        lambda model, rows: model.denoise(rows, offset="difference"),
        lambda model, rows: model.remove_components(rows),
    ]
    for call in calls:
        found, expected = call(fitted, X), call(plain, arrays[0])
        assert (found.device, found.dtype) == (X.device, X.dtype)
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(make().fit_transform(X, background=Y), fitted.transform(X))
    # A model fitted to tensors takes arrays, and a model fitted to arrays takes tensors.
    np.testing.assert_allclose(
        fitted.transform(arrays[1]), plain.transform(Y).cpu().numpy(), rtol=0, atol=tolerance
    )


def test_densities_and_contrasts_by_label_of_tensors_agree_with_arrays(pair: Any) -> None:
    X, Y = (torch.as_tensor(rows) for rows in pair)
    model = PCPCA(2).fit(pair[0], background=pair[1])
    np.testing.assert_allclose(model.score_samples(X), model.score_samples(pair[0]), rtol=1e-12)
    assert model.score(X) == pytest.approx(model.score(pair[0]))
    rows, labels = torch.cat([X, Y]), np.repeat([1, 0], [len(X), len(Y)])
    fitted = ContrastByLabel(CPCA(2)).fit(rows, labels)
    plain = ContrastByLabel(CPCA(2)).fit(rows.numpy(), labels)
    np.testing.assert_allclose(fitted.transform(rows), plain.transform(rows.numpy()), atol=1e-10)


def test_gradients_flow_through_transform(pair: Any) -> None:
    model = PCPCA(2).fit(pair[0], background=pair[1])
    some = torch.tensor(pair[0][:4], requires_grad=True)
    model.transform(some).sum().backward()
    np.testing.assert_allclose(some.grad, np.tile(model.projection_.sum(axis=1), (4, 1)))


@on_each_device
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_groups_and_weights_of_tensors_agree_with_arrays(
    pair: Any, device: str, dtype: str
) -> None:
    X, Y = (rows.astype(dtype) for rows in pair)
    rng = np.random.default_rng(0)
    design: dict[str, Any] = {
        "within": rng.integers(3, size=len(X)),
        "sample_weight": rng.uniform(size=len(X)),
        "background_weight": [None, rng.uniform(size=len(Y))],
    }
    tensors = torch.tensor(X, device=device), [torch.tensor(Y, device=device)] * 2
    on_device = CPCA(2).fit(tensors[0], background=tensors[1], **design)
    wanted = CPCA(2).fit(X, background=[Y, Y], **design)
    np.testing.assert_allclose(on_device.components_, wanted.components_, atol=1e-12)
    np.testing.assert_array_equal(on_device.within_labels_, wanted.within_labels_)
    with pytest.raises(ValueError, match="device='cpu' was given for rows with weights or groups"):
        SecondMoments.from_data(X, groups=design["within"], device="cpu")


@on_each_device
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_errors_about_nan_and_inf_name_the_data_and_the_feature(
    pair: Any, value: float, device: str
) -> None:
    X, Y = pair[0].copy(), torch.as_tensor(pair[1], device=device)
    X[450, 2] = value
    rows, model = torch.as_tensor(X, device=device), CPCA(2).fit(Y, background=Y)
    message = rf"contains NaN or inf \({'NaN' if np.isnan(value) else 'inf'} first met in feature 2"
    calls: list[Callable[[], Any]] = [
        lambda: SecondMoments.from_data(small(rows)),
        lambda: SecondMoments.from_data(X, device=device),
        lambda: SecondMoments.from_data(rows, device=device),
        lambda: model.transform(rows),
        lambda: model.denoise(rows),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"^X {message}"):
            call()
    for chunks, where in ((rows.split(100), None), (np.split(X, 7), device)):
        with pytest.raises(ValueError, match=f"^chunk 4 of cells {message}"):
            SecondMoments.from_chunks(chunks, name="cells", device=where)
    with pytest.raises(ValueError, match="the variance of X overflows"):
        one = torch.arange(12, device=device) == 3
        SecondMoments.from_data(torch.where(one, Y * 1e200, Y), device=device)


@pytest.mark.parametrize(
    ("foreground", "background", "error", "message"),
    [
        (lambda X: X, lambda Y: Y.numpy(), TypeError, "on cpu and background is not a tensor"),
        (lambda X: X.numpy(), lambda Y: Y, TypeError, "X is not a tensor and background is a t"),
        (lambda X: X, SecondMoments.from_data, TypeError, "X is Tensor and background is Second"),
        (lambda X: X, lambda Y: Y.to("meta"), ValueError, "the device 'meta' holds no values"),
        (lambda X: X[0], lambda Y: Y, ValueError, r"X has shape \(12,\); two dimensions"),
    ],
)
def test_tensors_of_wrong_shape_device_or_partner_are_refused(
    pair: Any, foreground: Any, background: Any, error: type[Exception], message: str
) -> None:
    X, Y = (torch.as_tensor(rows) for rows in pair)
    with pytest.raises(error, match=message):
        CPCA(2).fit(foreground(X), background=background(Y))


@pytest.mark.parametrize(
    ("device", "message"),
    [("mps", "'mps' has no float64"), ("gpu", "='gpu' is not a device"), (3.5, "device=3.5 is")],
)
def test_a_device_that_is_not_available_is_refused(device: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SecondMoments.from_data(np.ones((3, 2)), device=device)
    rows = pytest.importorskip("dask.array").ones((3, 2))
    with pytest.raises(ValueError, match="device='cpu' was given for a dask array"):
        SecondMoments.from_data(rows, device="cpu")


def test_without_torch_a_device_is_refused_and_arrays_never_load_it() -> None:
    code = (
        "import sys, numpy as np\n"
        "from contrast_core import CPCA, SecondMoments\n"
        "X = np.random.default_rng(0).normal(size=(50, 4))\n"
        "CPCA(1).fit(X, background=X).transform(X)\n"
        "assert 'torch' not in sys.modules\n"
        "sys.modules['torch'] = None\n"
        "try: SecondMoments.from_data(X, device='cuda')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "device='cuda' needs torch; run pip install torch" in done.stdout


@needs_cuda
def test_many_blocks_are_streamed_through_cuda() -> None:
    """Use more blocks than there are buffers, so that each buffer is reused."""
    rows = np.random.default_rng(0).normal(size=(40_500, 300)).astype(np.float32)
    expected = SecondMoments.from_data(rows)
    for _ in range(3):
        found = SecondMoments.from_data(rows_of(rows, elements=250 * 300), device="cuda")
        assert_same_moments(found, expected)
