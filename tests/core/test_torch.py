"""Rows in torch tensors, and moments taken on a device: the same results as from arrays.

Everything but the last part runs on torch's CPU device, through the code that CUDA takes too.
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

from contrast_core import CPCA, PCPCA, ContrastByLabel, CPCAStar, SecondMoments, contrast_path
from contrast_core.linalg import subspace_error
from contrast_core.moments._torch import DeviceAccumulator
from contrast_core.rows import _tensor, rows_of

torch = pytest.importorskip("torch", reason="torch is not installed")

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
ESTIMATORS = [lambda: CPCA(2), lambda: CPCA(2, alpha=3.0), lambda: CPCAStar(2), lambda: PCPCA(2)]
WIDTH = {torch.float64: np.float64, torch.float32: np.float32}


@pytest.fixture
def pair() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    mixing, mean = rng.normal(size=(12, 12)), rng.normal(size=12) * 10
    X = rng.normal(size=(700, 12)) @ mixing + mean
    X += rng.normal(size=(700, 4)) * [20, 16, 12, 8] @ np.eye(4, 12)
    return X, rng.normal(size=(500, 12)) @ mixing + mean


# Blocks of 64 rows on the host and of 256 on a device: several of each, and a rest.
small = partial(rows_of, elements=64 * 12)


def assert_same(found: SecondMoments, expected: SecondMoments, tolerance: float = 1e-13) -> None:
    assert found.n_samples == expected.n_samples
    scale = np.abs(expected.covariance).max()
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(
        found.covariance, expected.covariance, rtol=0, atol=tolerance * scale
    )
    np.testing.assert_array_equal(found.covariance, found.covariance.T)
    assert isinstance(found.covariance, np.ndarray)
    assert found.covariance.dtype == np.float64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_moments_of_a_tensor_are_those_of_the_array(pair: Any, device: str, dtype: Any) -> None:
    rows = torch.as_tensor(pair[0], dtype=dtype, device=device)
    expected = SecondMoments.from_data(pair[0].astype(WIDTH[dtype]))
    for where in (None, device):  # None: with numpy for a tensor on the processor
        assert_same(SecondMoments.from_data(small(rows), device=where), expected)
        parts = map(small, rows.split(90))
        assert_same(SecondMoments.from_chunks(parts, device=where), expected)
        with_grad = rows.clone().requires_grad_()
        assert_same(SecondMoments.from_data(small(with_grad), device=where), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.int64])
def test_moments_of_host_rows_on_a_device(pair: Any, device: str, dtype: Any) -> None:
    """Chunks larger and smaller than what a device takes at once, read-only, strided, sparse."""
    rows = pair[0].astype(dtype)
    expected = SecondMoments.from_data(rows)
    read_only = rows.copy()
    read_only.flags.writeable = False
    for data in (rows, read_only, np.asfortranarray(rows), rows.tolist(), sp.csr_array(rows)):
        assert_same(SecondMoments.from_data(small(data), device=device), expected)
    assert_same(SecondMoments.from_data(small(torch.from_numpy(rows)), device=device), expected)
    chunks = [small(chunk) for chunk in np.split(rows, [1, 30, 31, 400])]
    assert_same(SecondMoments.from_chunks(chunks, device=device), expected)
    assert_same(SecondMoments.from_chunks(iter(chunks), device=torch.device(device)), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["double", "single"])
def test_the_scatter_is_summed_in_panels(pair: Any, device: str, precision: Any) -> None:
    expected = SecondMoments.from_data(pair[0])
    sums = DeviceAccumulator("X", device, precision, elements=64 * 12, panel=5)
    sums.consume(rows_of(pair[0], elements=64 * 12))
    found = sums.result().within
    tolerance = 1e-13 if precision == "double" else 1e-6
    scale = expected.covariance.max()
    np.testing.assert_allclose(found, expected.covariance, rtol=0, atol=tolerance * scale)
    np.testing.assert_array_equal(found, found.T)


def test_chunks_may_change_their_dtype_and_be_overwritten(pair: Any) -> None:
    buffer = np.empty((100, 12))

    def chunks() -> Any:
        for i in range(0, 700, 100):
            buffer[:] = pair[0][i : i + 100]
            yield small(buffer.astype(np.float32) if i == 300 else buffer)
            buffer[:] = np.nan

    rows = pair[0].copy()
    rows[300:400] = rows[300:400].astype(np.float32)
    found = SecondMoments.from_chunks(chunks(), device="cpu")
    assert_same(found, SecondMoments.from_data(rows))


def _transposed(rows: Any) -> Any:
    return rows.T.contiguous().T


def _every_other(rows: Any) -> Any:
    return rows.repeat_interleave(2, dim=1)[:, ::2]


@pytest.mark.parametrize("layout", [_transposed, _every_other, lambda rows: rows.requires_grad_()])
def test_any_layout_is_read(pair: Any, layout: Callable[[Any], Any]) -> None:
    X, Y = (layout(torch.as_tensor(rows)) for rows in pair)
    plain = CPCA(2).fit(pair[0], background=pair[1])
    fitted = CPCA(2).fit(X, background=Y)
    assert subspace_error(fitted.components_, plain.components_) < 1e-12
    scores = fitted.transform(X).detach().numpy()
    np.testing.assert_allclose(scores, plain.transform(pair[0]), atol=1e-10)


@pytest.mark.parametrize("device", [None, *DEVICES])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_other_dtypes_are_those_numbers(pair: Any, dtype: Any, device: Any) -> None:
    rows = (torch.as_tensor(pair[0]) * 4).to(dtype)
    expected = SecondMoments.from_data(rows.to(torch.float64).numpy())
    assert_same(SecondMoments.from_data(rows, device=device), expected)
    if device is not None:
        assert_same(SecondMoments.from_data(rows.to(device)), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_mean_far_from_zero_costs_no_precision(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    rows = torch.as_tensor(rng.normal(size=(4000, 5)) + 1e4).to(dtype)
    exact = rows.to(torch.float64).numpy().astype(np.longdouble)
    exact -= exact.mean(axis=0)
    exact = (exact.T @ exact / len(exact)).astype(np.float64)
    moments = SecondMoments.from_data(rows, device="cpu")
    assert np.abs(moments.covariance - exact).max() < 1e-12


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_is_float32_whatever_the_process_allows(pair: Any, device: str) -> None:
    rows = torch.as_tensor(pair[0], device=device)
    expected = SecondMoments.from_data(pair[0])
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = SecondMoments.from_data(rows, precision="single", device=device)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    error = np.abs(found.covariance - expected.covariance).max() / expected.covariance.max()
    assert 1e-12 < error < 1e-6
    with pytest.raises(ValueError, match="precision='half' is unknown"):
        SecondMoments.from_data(rows, precision="half", device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("make", ESTIMATORS)
def test_estimators_agree_with_arrays(
    pair: Any, make: Callable[[], Any], dtype: Any, device: str
) -> None:
    arrays = [rows.astype(WIDTH[dtype]) for rows in pair]
    X, Y = (torch.as_tensor(rows, device=device) for rows in arrays)
    plain = make().fit(arrays[0], background=arrays[1])
    fitted = make().fit(X, background=Y)
    assert subspace_error(fitted.components_, plain.components_) < 1e-12
    assert isinstance(fitted.components_, np.ndarray)
    scale = np.abs(arrays[0]).max()
    tolerance = scale * (1e-12 if dtype == torch.float64 else 1e-6)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda model, rows: model.transform(rows),
        lambda model, rows: model.inverse_transform(model.transform(rows)),
        lambda model, rows: model.denoise(rows, offset="difference"),
        lambda model, rows: model.remove_components(rows),
    ]
    for call in calls:
        found, expected = call(fitted, X), call(plain, arrays[0])
        assert found.device == X.device
        assert found.dtype == dtype
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=tolerance)
    scores = make().fit_transform(X, background=Y)
    torch.testing.assert_close(scores, fitted.transform(X))
    # What was fitted on tensors takes arrays, and the reverse.
    np.testing.assert_allclose(
        fitted.transform(arrays[1]), plain.transform(Y).cpu().numpy(), rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("device", DEVICES)
def test_the_path_agrees_with_arrays(pair: Any, device: str) -> None:
    X, Y = (torch.as_tensor(rows, device=device) for rows in pair)
    plain, found = contrast_path(pair[0], background=pair[1]), contrast_path(X, background=Y)
    errors = [subspace_error(a, b) for a, b in zip(found.components, plain.components, strict=True)]
    assert max(errors) < 1e-9
    np.testing.assert_array_equal(found.representatives, plain.representatives)


def test_density_of_a_tensor(pair: Any) -> None:
    model = PCPCA(2).fit(pair[0], background=pair[1])
    found = model.score_samples(torch.as_tensor(pair[0]))
    np.testing.assert_allclose(found.numpy(), model.score_samples(pair[0]), rtol=1e-12)
    assert model.score(torch.as_tensor(pair[0])) == pytest.approx(model.score(pair[0]))


def test_wide_tensors_need_no_covariance_of_features() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 2000)), rng.normal(size=(20, 2000))
    plain = CPCA(2, alpha=1.0).fit(X, background=Y)
    fitted = CPCA(2, alpha=1.0).fit(torch.as_tensor(X), background=torch.as_tensor(Y))
    assert type(fitted.foreground_moments_) is type(plain.foreground_moments_)
    assert subspace_error(fitted.components_, plain.components_) < 1e-9


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_designs_of_tensors_are_those_of_arrays(pair: Any, device: str, dtype: str) -> None:
    X, Y = (rows.astype(dtype) for rows in pair)
    rng = np.random.default_rng(0)
    design: dict[str, Any] = {
        "within": rng.integers(3, size=len(X)),
        "sample_weight": rng.uniform(size=len(X)),
        "background_weight": [None, rng.uniform(size=len(Y))],
    }
    on_device = CPCA(2).fit(
        torch.tensor(X, device=device),
        background=[torch.tensor(Y, device=device)] * 2,
        **design,
    )
    wanted = CPCA(2).fit(X, background=[Y, Y], **design)
    np.testing.assert_allclose(on_device.components_, wanted.components_, atol=1e-12)
    np.testing.assert_array_equal(on_device.within_labels_, wanted.within_labels_)
    with pytest.raises(ValueError, match="device='cpu' was given for rows with weights or groups"):
        SecondMoments.from_data(X, groups=design["within"], device="cpu")


def test_gradients_flow_through_transform(pair: Any) -> None:
    model = CPCA(2).fit(pair[0], background=pair[1])
    rows = torch.as_tensor(pair[0][:4]).requires_grad_()
    model.transform(rows).sum().backward()
    np.testing.assert_allclose(rows.grad.numpy(), np.tile(model.components_.sum(axis=0), (4, 1)))


def test_labels_with_tensors(pair: Any) -> None:
    rows = torch.as_tensor(np.vstack(pair))
    labels = np.repeat([1, 0], [len(pair[0]), len(pair[1])])
    fitted = ContrastByLabel(CPCA(2)).fit(rows, labels)
    plain = ContrastByLabel(CPCA(2)).fit(rows.numpy(), labels)
    np.testing.assert_allclose(fitted.transform(rows), plain.transform(rows.numpy()), atol=1e-10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(pair: Any, value: float, device: str) -> None:
    X, Y = pair[0].copy(), torch.as_tensor(pair[1], device=device)
    X[450, 2] = value
    kind = "NaN" if np.isnan(value) else "inf"
    message = rf"contains NaN or inf \({kind} first met in feature 2\)"
    rows = torch.as_tensor(X, device=device)
    with pytest.raises(ValueError, match=f"^X {message}"):
        SecondMoments.from_data(small(rows))
    with pytest.raises(ValueError, match=f"^X {message}"):
        CPCA(2).fit(rows, background=Y)
    with pytest.raises(ValueError, match=f"^X {message}"):
        SecondMoments.from_data(X, device=device)
    with pytest.raises(ValueError, match=f"^X {message}"):
        SecondMoments.from_data(rows, device=device)
    with pytest.raises(ValueError, match=f"^chunk 4 of cells {message}"):
        SecondMoments.from_chunks(rows.split(100), name="cells")
    with pytest.raises(ValueError, match=f"^chunk 4 of cells {message}"):
        SecondMoments.from_chunks(np.split(X, 7), name="cells", device=device)
    model = CPCA(2).fit(Y, background=Y)
    for call in (model.transform, model.denoise, model.remove_components):
        with pytest.raises(ValueError, match=f"^X {message}"):
            call(rows)


def test_sums_that_overflow_are_refused(pair: Any) -> None:
    with pytest.raises(ValueError, match="the variance of X overflows"):
        SecondMoments.from_data(torch.as_tensor(pair[0]) * 1e200, device="cpu")


def test_foreground_and_background_belong_together(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = (torch.as_tensor(rows) for rows in pair)
    with pytest.raises(TypeError, match="X is a tensor on cpu and background is no tensor; give"):
        CPCA(2).fit(X, background=pair[1])
    with pytest.raises(TypeError, match="X is no tensor and background is a tensor on cpu; give"):
        contrast_path(pair[0], background=Y)
    with pytest.raises(TypeError, match="X is Tensor and background is SecondMoments"):
        CPCA(2).fit(X, background=SecondMoments.from_data(Y))
    with pytest.raises(ValueError, match="the device 'meta' has no float64"):
        CPCA(2).fit(X, background=Y.to("meta"))
    with monkeypatch.context() as patched:  # as if it were a second GPU
        patched.setattr(_tensor, "check_device", lambda device: device)
        with pytest.raises(ValueError, match=r"X is a tensor on cpu and background is .* on meta"):
            CPCA(2).fit(X, background=Y.to("meta"))
    with pytest.raises(ValueError, match="background has 11 features but X has 12"):
        CPCA(2).fit(X, background=Y[:, 1:])
    with pytest.raises(ValueError, match="X has n_samples=1, but"):
        CPCA(2).fit(X[:1], background=Y)


def test_other_tensors_are_refused(pair: Any) -> None:
    X, Y = (torch.as_tensor(rows) for rows in pair)
    model = CPCA(2).fit(X, background=Y)
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo; a dense tensor is expected"):
        SecondMoments.from_data(X.to_sparse())
    with pytest.raises(ValueError, match=r"complex128; complex data are not supported"):
        SecondMoments.from_data(X.to(torch.complex128))
    with pytest.raises(ValueError, match=r"X has shape \(12,\); two dimensions"):
        model.transform(X[0])
    with pytest.raises(ValueError, match="X has 11 features, but CPCA is expecting 12"):
        model.transform(X[:, 1:])
    with pytest.raises(ValueError, match=r"scores have shape \(700, 12\); expected \(n, 2\)"):
        model.inverse_transform(X)
    with pytest.raises(ValueError, match=r"X has no rows \(n_samples=0\)"):
        SecondMoments.from_data(X[:0])


def test_a_device_that_is_not_there() -> None:
    rows = np.ones((3, 2))
    with pytest.raises(ValueError, match="'mps' has no float64"):
        SecondMoments.from_data(rows, device="mps")
    with pytest.raises(ValueError, match="device='gpu' is none that torch knows"):
        SecondMoments.from_data(rows, device="gpu")
    with pytest.raises(ValueError, match=r"device=3\.5 is none"):
        SecondMoments.from_data(rows, device=3.5)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device='cuda' was asked for, but torch finds no"):
            SecondMoments.from_data(rows, device="cuda")
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="device='cpu' was given for a dask array"):
        SecondMoments.from_data(da.ones((3, 2)), device="cpu")


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
def test_a_stream_of_many_blocks_through_cuda() -> None:
    """More blocks than slots in flight, each reused: nothing is overwritten too early."""
    rows = np.random.default_rng(0).normal(size=(40_500, 300)).astype(np.float32)
    expected = SecondMoments.from_data(rows)
    for _ in range(3):
        found = SecondMoments.from_data(rows_of(rows, elements=250 * 300), device="cuda")
        assert_same(found, expected)


@needs_cuda
def test_fitting_leaves_cuda_tensors_on_their_device() -> None:
    X = torch.randn(20_000, 50, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        CPCA(2).fit(X, background=X[::2])
    to_host = [event for event in profile.events() if "DtoH" in event.name]
    assert to_host
    assert len(to_host) < 30  # means and covariances, no rows
