"""Conversion of arrays to and from the GPU: which are accepted, narrowed, widened and refused."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
import torch

from pteron.compiler.ir.dtypes import DType
from pteron.engine.arrays.numpy_arrays import from_gpu, read, to_gpu
from pteron.errors import InputError


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3, dtype=np.float32),
        torch.arange(3, dtype=torch.float32),
        torch.arange(3, dtype=torch.float32).requires_grad_(),
        array.array("f", [0, 1, 2]),
        memoryview(np.arange(3, dtype=np.float32)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_array_like_is_read(value: Any) -> None:
    got = read(value, "x")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [0, 1, 2])


def test_host_memory_is_not_copied() -> None:
    source = torch.arange(4, dtype=torch.float32)
    ready = to_gpu(read(source, "x"), "float32", DType.float32, "x")
    source[0] = 7
    assert ready[0] == 7


def test_a_value_that_is_not_an_array_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="x: expected an array, got object"):
        read(object(), "x")


@pytest.mark.parametrize("value", [0, -(2**31), 2**31 - 1])
def test_int64_that_fits_is_narrowed(value: int) -> None:
    ready = to_gpu(np.array([[value]]), "int64", DType.int32, "x")
    assert ready.dtype == np.int32
    assert ready.item() == value


def test_int64_that_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match=r"ids: element \[1, 0\] is 2147483648, which does not fit .* int32"):
        to_gpu(np.array([[1], [2**31]]), "int64", DType.int32, "ids")


def test_float64_that_does_not_fit_is_named() -> None:
    ready = to_gpu(np.array([0.1, np.inf, np.nan]), "float64", DType.float32, "x")
    np.testing.assert_array_equal(ready, np.array([0.1, np.inf, np.nan], np.float32))
    with pytest.raises(InputError, match=r"x: element \[0\] is 1e\+39, which does not fit the GPU's float32"):
        to_gpu(np.array([1e39]), "float64", DType.float32, "x")


def test_a_scalar_keeps_its_rank() -> None:
    assert to_gpu(read(2.5, "x"), "float32", DType.float32, "x").shape == ()
    assert to_gpu(np.array(3), "int64", DType.int32, "x").shape == ()


def test_another_dtype_is_refused_unless_no_value_can_change() -> None:
    assert to_gpu(np.array([3], np.int8), "int64", DType.int32, "x").dtype == np.int32
    for wrong in (np.float64, np.int32, np.bool_, ">f4"):
        with pytest.raises(InputError, match=r"x: expected dtype float32, got .*: convert it"):
            to_gpu(np.zeros(2, wrong), "float32", DType.float32, "x")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tensors_of_narrow_floats_are_widened_but_never_rounded(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, -3.0, float("inf")]).to(dtype)
    for host_type in ("float32", "float64"):
        ready = to_gpu(read(x, "x"), host_type, DType.float32, "x", x)
        np.testing.assert_array_equal(ready, x.float().numpy())
    other, name = (DType.bfloat16, "float16") if dtype is torch.float16 else (DType.float16, "bfloat16")
    for given, got in ((x, name), (x.float(), "float32")):
        with pytest.raises(InputError, match=rf"expected dtype {other}, got {got}: convert it"):
            to_gpu(read(given, "x"), other.label, other, "x", given)


def test_strided_arrays_become_row_major() -> None:
    ready = to_gpu(np.arange(6, dtype=np.float32).reshape(2, 3).T, "float32", DType.float32, "x")
    assert ready.flags.c_contiguous
    np.testing.assert_array_equal(ready, [[0, 3], [1, 4], [2, 5]])


def test_results_are_widened_copies() -> None:
    data = memoryview(bytearray(np.array([1, -2], np.int32).tobytes()))
    got = from_gpu(data, DType.int32, "int64", (2,))
    data[0] = 9
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, [1, -2])


def test_lazily_negated_and_conjugated_tensors_are_read_with_their_values() -> None:
    number = torch.tensor([1.0 + 2.0j, 3.0 - 4.0j])
    imaginary = number.conj().imag  # torch notes the sign, and does not write it
    assert imaginary.is_neg()
    np.testing.assert_array_equal(read(imaginary, "input0"), [-2.0, 4.0])
