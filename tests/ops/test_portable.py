"""The less common operators of ExecuTorch's portable library, against torch at changing live shapes."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import copy
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pteron
from pteron.engine.devices.opening import Device
from tests.support.calls import Call, check_calls
from tests.support.export import export
from tests.support.programs import Outputs, check_export, check_program
from tests.support.rules import OneNode, Sym, check_rule, inputs_of

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float16, torch.int32, torch.int8, torch.bool]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(shape) * 4).to(dtype)


# -- strided reads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_reads(device: Device, dtype: torch.dtype) -> None:
    x = lambda *shape: numbers(*shape, dtype=dtype)
    make = lambda n: [x(n, 6), (Sym(n), 2, 3), (6, 3, 1), 0]
    check_rule(device, "aten.as_strided_copy.default", make, torch.as_strided)
    make = lambda n: [x(n, 7), (Sym(n), 3), (7, 2), 2]
    check_rule(device, "aten.as_strided_copy.default", make, torch.as_strided)
    for offset in (0, 2, -1, 9):
        make = lambda n, o=offset: [x(2, n, 5), o, 1, 2]
        check_rule(device, "aten.diagonal_copy.default", make, torch.diagonal)
    check_rule(device, "aten.narrow_copy.default", lambda n: [x(n, 7), 1, -3, 2], torch.narrow)
    check_rule(device, "aten.fill.Tensor", lambda n: [x(n, 3), x()], torch.fill)


@pytest.mark.parametrize("dtype", DTYPES)
def test_roll(device: Device, dtype: torch.dtype) -> None:
    make = lambda n: [numbers(3, n, 5, dtype=dtype), (2, -1), (1, 2)]
    check_rule(device, "aten.roll.default", make, torch.roll)
    check_rule(device, "aten.roll.default", lambda n: [numbers(n, 5, dtype=dtype), (4,), ()], torch.roll)


def test_pooling_of_channels_last_memory(device: Device) -> None:
    """The exporter writes this pooling as a mean and an as_strided with the same values."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    module = module.to(memory_format=torch.channels_last)
    make = lambda n: [torch.randn(n, 3, 8, 8).to(memory_format=torch.channels_last)]
    batch = torch.export.Dim("n", min=1, max=4)
    check_export(device, module, make, [(4,), (1,), (3,), (4,)], ({0: batch},), partitioner=False)


def test_strides_are_in_memory_order(device: Device) -> None:
    module = Outputs(lambda x: [torch.as_strided(x * 2, (2, 3, 5), (1, 2, 6), 1)])
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    check_export(device, module, lambda: [x], [()], partitioner=False)


# -- statistics of a batch --------------------------------------------------------------------------


def test_instance_norm(device: Device) -> None:
    module = torch.nn.InstanceNorm2d(3, affine=True)
    torch.nn.init.normal_(module.weight)
    rows = torch.export.Dim("rows", min=2, max=9)
    lives = [(9,), (4,), (2,), (9,), (5,)]
    make = lambda n: [torch.randn(2, 3, n, 6) * 3 + 2]
    for partitioner in (True, False):
        check_export(device, module, make, lives, ({2: rows},), partitioner=partitioner)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batch_norm_with_batch_statistics(device: Device, dtype: torch.dtype) -> None:
    x = lambda n: (torch.randn(n, 5, 7) * 2 + 1).to(dtype)
    w = torch.randn(5).to(dtype)
    norm = aten._native_batch_norm_legit
    name = "aten._native_batch_norm_legit.no_stats"
    check_rule(device, name, lambda n: [x(n), w, w.flip(0), True, 0.1, 1e-5], norm.no_stats, atol=1e-4)
    check_rule(device, name, lambda n: [x(n), None, None, True, 0.1, 1e-5], norm.no_stats, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics(device: Device, training: bool) -> None:
    def make(n: int) -> list[Any]:
        w = torch.randn(5)
        return [torch.randn(n, 5, 7) * 2 + 1, w, w, torch.randn(5), torch.rand(5) + 1, training, 0.2, 1e-5]

    def norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        mean, var = mean.clone(), var.clone()
        return (*aten._native_batch_norm_legit.default(x, w, b, mean, var, *rest), mean, var)

    check_written(device, "aten._native_batch_norm_legit.default", make, norm, 3)


def check_written(device: Device, name: str, make: Any, function: Any, outputs: int) -> None:
    """Like `check_rule`, for a rule that writes arguments in place. They come after the outputs."""
    torch.manual_seed(0)

    def call(live: int) -> Call:
        args = make(live)
        return Call(inputs_of(args), function(*copy.deepcopy(args)), f"of {name} at {live}")

    with closing(OneNode(device, name, make(7), function(*make(7))[:outputs], True)) as node:
        check_calls(node.method, map(call, (7, 3, 5)), 1e-4, 1e-5)


# -- distances --------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 2.5, float("inf")])
def test_distances(device: Device, p: float) -> None:
    make = lambda n: [torch.randn(2, n, 5), torch.randn(2, 4, 5), p, None]
    check_rule(device, "aten._cdist_forward.default", make, aten._cdist_forward, atol=1e-4)
    check_rule(device, "aten._pdist_forward.default", lambda n: [torch.randn(n, 5), p], aten._pdist_forward)


def test_distances_as_exported(device: Device) -> None:
    function = lambda x: [torch.cdist(x, x), torch.cdist(x, x[:1], p=1.0), torch.pdist(x[0])]
    check_program(device, function, lambda n: (torch.randn(3, n, 6),), [{1: "n"}], partitioner=False)


def close(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool, dummy: bool) -> Tensor:
    return torch.isclose(x, y, rtol, atol, equal_nan).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["aten.allclose.default", "aten.allclose.Tensor"])
def test_allclose(device: Device, dtype: torch.dtype, name: str) -> None:
    """The element that is not close is the last one, so only some live sizes have it."""
    if dtype is torch.bool:
        close_values, far = torch.ones(1, dtype=dtype), torch.zeros((), dtype=dtype)
    else:
        close_values, far = torch.full((1,), 100, dtype=dtype), torch.tensor(90, dtype=dtype)

    def make(n: int, differs: bool = True) -> list[Any]:
        x = close_values.expand(3, n, 43).clone()
        if n == 7 and differs:
            x[-1, -1, -1] = far
        return [x, close_values.expand(n, 43), 0.02, 1.0, False, False]

    check_rule(device, name, make, close)
    check_rule(device, name, lambda n: [*make(n)[:2], 0.1, 0.5, False, False], close)
    check_rule(device, name, lambda n: [*make(n)[:2], 0.0, 0.0, False, False], close)


@pytest.mark.parametrize("equal_nan", [False, True])
def test_allclose_of_infinities_and_nan(device: Device, equal_nan: bool) -> None:
    inf, nan = float("inf"), float("nan")
    pairs = [(inf, inf), (inf, -inf), (inf, 1.0), (1.0, inf), (nan, nan), (nan, 1.0), (1.0, nan), (3.0, 3.0)]
    for x, y in pairs:
        make = lambda n, x=x, y=y: [torch.full((n,), x), torch.full((n,), y), 1e-5, 1e-8, equal_nan, False]
        check_rule(device, "aten.allclose.default", make, close, lives=(3, 1))


def test_allclose_of_large_integers(device: Device) -> None:
    """They are compared as integers, but subtracted as float32."""
    x, y = (torch.tensor([n], dtype=torch.int32) for n in (2**24, 2**24 + 1))
    for atol in (0.0, 0.5):
        make = lambda n, atol=atol: [x.expand(n), y.expand(n), 0.0, atol, False, False]
        check_rule(device, "aten.allclose.default", make, close, lives=(3, 1))


# -- resizing ---------------------------------------------------------------------------------------

RESIZED = [(3, 4), (11, 5), (7, 9), (20, 20)]


@pytest.mark.parametrize("size", RESIZED)
@pytest.mark.parametrize("align", [False, True])
def test_bicubic_and_antialiased_filters(device: Device, size: tuple[int, int], align: bool) -> None:
    make = lambda n: [torch.randn(2, 2, n, 9), size, align, None, None]
    for name in ("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
        check_rule(device, f"aten.{name}.default", make, getattr(aten, name), atol=1e-5)


def test_resizing_as_exported(device: Device) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [
            functional.interpolate(x, size=(5, 6), mode="bilinear", antialias=True),
            functional.interpolate(x, size=(5, 6), mode="bicubic"),
            functional.interpolate(x, size=(5, 6), mode="bicubic", antialias=True),
        ]

    make = lambda n: (torch.randn(n, 2, 12, 10),)
    check_program(device, function, make, [{0: "n"}], partitioner=False, any_operator=True)


# -- integers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
def test_integers(device: Device, dtype: torch.dtype) -> None:
    x = lambda *shape: torch.randint(0, 100, shape).to(dtype)
    bits = lambda *shape: torch.randint(0, 7, shape).to(dtype)
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        function = getattr(torch, name)
        check_rule(device, f"aten.{name}.Tensor", lambda n: [x(n, 5), bits(5)], function)
        check_rule(device, f"aten.{name}.Tensor_Scalar", lambda n: [x(n, 5), 3], function)
    divisor = lambda n: [x(n, 5), bits(5) + 1]
    check_rule(device, "aten.floor_divide.default", divisor, torch.floor_divide)


def test_shifts_by_many_bits(device: Device) -> None:
    x, by = torch.tensor([5, -5, 5, -5, 7]), torch.tensor([40, 40, 31, 31, 0])
    make = lambda n: [x[:n].int(), by[:n].int()]
    right = lambda x, by: torch.bitwise_right_shift(x, by.clamp(max=31))
    check_rule(device, "aten.bitwise_right_shift.Tensor", make, right, (5, 2))


def test_division_rounds_down(device: Device) -> None:
    make = lambda n: [torch.randn(n, 5) * 9, torch.tensor(2.5)]
    check_rule(device, "aten.floor_divide.default", make, torch.floor_divide)
    make = lambda n: [torch.randint(-9, 9, (n, 5)), torch.tensor([2, -2, 3, -4, 5])]
    check_rule(device, "aten.floor_divide.default", make, torch.floor_divide)


def test_glu(device: Device) -> None:
    for dim in (0, 1, -1):
        make = lambda n, d=dim: [torch.randn(4, 2 * n, 6), d]
        check_rule(device, "aten.glu.default", make, functional.glu)


# -- counting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_scatter(device: Device, dtype: torch.dtype) -> None:
    x = lambda *shape: numbers(*shape, dtype=dtype)
    make = lambda n: [x(3, n, 50), torch.rand(n, 50) < 0.4, x(3, n, 50)]
    check_rule(device, "aten.masked_scatter.default", make, torch.masked_scatter)
    make = lambda n: [x(1, 5), torch.rand(n, 1) < 0.5, x(n, 5)]
    check_rule(device, "aten.masked_scatter.default", make, torch.masked_scatter)


def test_repeat_interleave(device: Device) -> None:
    def make(n: int) -> list[Any]:
        repeats = torch.arange(n).flip(0) % 3
        return [repeats, Sym(int(repeats.sum()))]

    repeat = lambda repeats, size: torch.repeat_interleave(repeats, output_size=size)
    check_rule(device, "aten.repeat_interleave.Tensor", make, repeat, (9, 4, 3, 9))


# -- results as long as their data says -------------------------------------------------------------

COUNTED = (
    torch.nonzero,
    lambda x: x[x > 0],
    lambda x: x[x[:, 0] > 0],
    lambda x: x.masked_select(x[:1] > 0),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_results_whose_length_depends_on_data(device: Device, dtype: torch.dtype) -> None:
    """At changing live shapes, and at changing counts within one shape, also 0."""
    module = Outputs(lambda x: [function(x) for function in COUNTED])
    rows = torch.export.Dim("rows", min=1, max=40)
    make = lambda n: numbers(n, 7, dtype=dtype)
    pte = export(module, (make(40),), {"inputs": ({0: rows},)}, partitioner=False, any_operator=True)
    with pteron.load(pte, device=device) as program:
        method = program.method()
        assert method.outputs[0].dynamic_dims == (0,)
        given = [make(40), make(3), make(40), -make(17).abs(), torch.zeros(5, 7, dtype=dtype), make(40)]
        for x in given:
            for got, want in zip(method.execute([x]), module(x), strict=True):
                np.testing.assert_array_equal(got, want.numpy())
        kept = method.execute([given[0]], keep_on_gpu=True)
        for got, want in zip(kept, module(given[0]), strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_result_of_unknown_length_must_be_an_output(device: Device) -> None:
    pte = export(Outputs(lambda x: [x[x > 0] * 2]), (torch.randn(5, 3),), partitioner=False)
    said = r"aten::index\.Tensor_out.*depends on the data, and aten\.mul"
    with pytest.raises(pteron.UnsupportedError, match=said):
        pteron.load(pte, device=device).method()


# -- gradients --------------------------------------------------------------------------------------

CONVOLUTIONS = [
    # channels, outs, kernel, stride, padding, dilation, groups, transposed
    (4, 6, (3, 3), (1, 1), (1, 1), (1, 1), 1, False),
    (4, 6, (3, 2), (2, 3), (1, 0), (1, 1), 2, False),
    (4, 4, (2, 2), (1, 1), (0, 0), (2, 2), 4, False),
    (4, 6, (3, 3), (2, 2), (1, 1), (1, 1), 2, True),
    (4, 6, (3,), (2,), (1,), (1,), 1, False),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_gradients_of_a_convolution(device: Device, case: Any) -> None:
    channels, outs, kernel, stride, padding, dilation, groups, transposed = case
    shape = (channels, outs // groups) if transposed else (outs, channels // groups)
    weight = torch.randn(*shape, *kernel)
    zero = (0,) * len(kernel)

    def make(n: int) -> list[Any]:
        x = torch.randn(2, channels, *(n + 3 for _ in kernel))
        y = aten.convolution(x, weight, None, stride, padding, dilation, transposed, zero, groups)
        options = (stride, padding, dilation, transposed, zero, groups, (True, True, True))
        return [torch.randn_like(y), x, weight, (outs,), *options]

    gradients = aten.convolution_backward.default
    check_rule(device, "aten.convolution_backward.default", make, gradients, (6, 3, 6), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("options", [((2, 2), (2, 2), (0, 0), (1, 1)), ((3, 3), (2, 1), (1, 1), (1, 2))])
def test_gradient_of_maximum_pooling(device: Device, options: Any) -> None:
    def make(n: int) -> list[Any]:
        x = torch.randn(2, 3, n + 4, 9)
        y, indices = functional.max_pool2d(x, *options, return_indices=True)
        return [torch.randn_like(y), x, *options, False, indices]

    name = "aten.max_pool2d_with_indices_backward.default"
    check_rule(device, name, make, aten.max_pool2d_with_indices_backward.default)


# -- random numbers ---------------------------------------------------------------------------------


def test_dropout_without_training_keeps_all_elements(device: Device) -> None:
    make = lambda n: [torch.randn(n, 3), 0.5, False]
    check_rule(device, "aten.native_dropout.default", make, aten.native_dropout)


def test_random_numbers(device: Device) -> None:
    module = Outputs(lambda x: [torch.rand(100, x.shape[0]), torch.randn(100, x.shape[0]), x + 1])
    size = torch.export.Dim("n", min=1, max=400)
    pte = export(module, (torch.zeros(400),), {"inputs": ({0: size},)}, any_operator=True, partitioner=False)
    with pteron.load(pte, device=device) as program:
        method = program.method()
        uniform, normal, _ = method.execute([torch.zeros(400)])
        assert uniform.shape == (100, 400)
        assert uniform.min() >= 0 and uniform.max() < 1
        counts, _ = np.histogram(uniform, 20, (0, 1))
        assert (abs(counts - 2000) < 250).all()  # five deviations
        assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
        assert abs(np.corrcoef(normal[:, :-1].ravel(), normal[:, 1:].ravel())[0, 1]) < 0.03
        again = method.execute([torch.zeros(7)])
        assert again[0].shape == (100, 7) and not np.isin(again[0].ravel(), uniform[:2]).all()
        method.reset()
        np.testing.assert_array_equal(method.execute([torch.zeros(400)])[0], uniform)
