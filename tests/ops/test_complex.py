"""Complex numbers and Fourier transforms, against torch at changing live shapes."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fft

import pteron
from pteron.engine.devices.opening import Device
from tests.support.export import export
from tests.support.programs import Outputs, check_program
from tests.support.rules import Sym, check_rule

aten = torch.ops.aten


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex64)


# -- Fourier transforms -----------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("dims", [(1,), (0,), (0, 1), (1, 0), (2, 0, 1)], ids=str)
def test_transforms_over_dimensions(device: Device, dims: tuple[int, ...], normalization: int) -> None:
    """The live size is the length of a transform, or the number of transforms."""
    lives = (15, 8, 1, 15, 7, 2)
    last = lambda n: n if dims[-1] == 0 else (6, 5)[dims[-1] - 1]

    def half(n: int) -> list[Any]:
        sizes = [n, 6, 5]
        sizes[dims[-1]] = last(n) // 2 + 1
        return [numbers(*sizes), dims, normalization, Sym(last(n))]

    real = lambda n: [torch.randn(n, 6, 5), dims, normalization, True]
    check_rule(device, "aten._fft_r2c.default", real, aten._fft_r2c, lives, atol=1e-5)
    check_rule(
        device, "aten._fft_r2c.default", lambda n: [*real(n)[:3], False], aten._fft_r2c, lives, atol=1e-5
    )
    check_rule(device, "aten._fft_c2r.default", half, aten._fft_c2r, lives, atol=1e-5)
    for forward in (True, False):
        make = lambda n, f=forward: [numbers(n, 6, 5), dims, normalization, f]
        check_rule(device, "aten._fft_c2c.default", make, aten._fft_c2c, lives, atol=1e-5)


def test_long_transforms(device: Device) -> None:
    """400 has many divisors, 1024 is a power of 2, 997 is a prime."""
    for n in (400, 1024, 997):
        make = lambda rows, n=n: [torch.randn(rows, n), (1,), 1, True]
        check_rule(device, "aten._fft_r2c.default", make, aten._fft_r2c, (3, 1), rtol=1e-5, atol=2e-6)


def test_transforms_as_exported(device: Device) -> None:
    def function(x: Tensor) -> list[Tensor]:
        spectrum = fft.rfft(x, norm="ortho")
        return [
            spectrum,
            torch.view_as_real(spectrum),
            fft.irfft(spectrum),
            fft.irfft2(fft.rfft2(x)),
            fft.fft(x),
        ]

    make = lambda n: (torch.randn(n, 20),)  # whose spectrum is longer than any n
    check_program(device, function, make, [{0: "n"}], partitioner=False, any_operator=True)


def test_spectrogram(device: Device) -> None:
    window = torch.hann_window(20)
    function = lambda x: [torch.view_as_real(torch.stft(x, 20, 7, window=window, return_complex=True))]
    check_program(
        device, function, lambda n: (torch.randn(n, 90),), [{0: "n"}], partitioner=False, any_operator=True
    )


# -- complex numbers --------------------------------------------------------------------------------


def test_complex_tensors_are_copied(device: Device) -> None:
    function = lambda x: [
        torch.view_as_real(x),
        torch.conj_physical(x),
        x.unsqueeze(1),
        x.permute(1, 0).contiguous(),
        x[:, 1:4:2].clone(),
        x[:, 2].clone(),
        x[:, None].expand(-1, 2, 5).clone(),
        torch.cat([x, x[:, :3]], 1),
        torch.stack([x, x]),
        x.flip(0),
        x.repeat(2, 1),
        x.roll(1, 1),
        *x.split([2, 3], 1),
    ]
    check_program(
        device, function, lambda n: (numbers(n, 5),), [{0: "n"}], partitioner=False, any_operator=True
    )


def test_complex_arithmetic(device: Device) -> None:
    def function(x: Tensor, y: Tensor, real: Tensor) -> list[Tensor]:
        sums = [x + y, x - y, torch.add(x, y, alpha=2), x + real]
        return [*sums, x * y, x / y, x * y[:, :1], x * real, real / y, x.abs()]

    make = lambda n: (numbers(n, 5), numbers(n, 5), torch.randn(5))
    check_program(device, function, make, [{0: "n"}, {0: "n"}, {}], partitioner=False, any_operator=True)


def test_a_real_operand(device: Device) -> None:
    make = lambda n: [numbers(n, 5), torch.randn(5).half()]
    check_rule(device, "pteron.complex_mul", make, torch.mul, rtol=1e-5)


def test_complex_numbers_do_not_overflow_on_the_way(device: Device) -> None:
    x = torch.tensor([3e38 + 1e38j, 1e-30 + 1e-31j, 2e20 - 3e20j])
    check_rule(device, "pteron.complex_abs", lambda n: [x[:n]], torch.abs, (3, 1), rtol=1e-5, atol=0)
    check_rule(device, "pteron.complex_div", lambda n: [x[:n], x[:n]], torch.div, (3, 1), rtol=1e-5)


def test_complex_numbers_from_pairs(device: Device) -> None:
    make = lambda n: [torch.randn(n, 3, 2)]
    check_rule(device, "aten.view_as_complex_copy.default", make, aten.view_as_complex_copy)


def test_what_does_not_take_complex_numbers_is_refused_by_name(device: Device) -> None:
    pte = export(Outputs(lambda x: [x.exp()]), (numbers(4, 3),), partitioner=False, any_operator=True)
    with pytest.raises(pteron.UnsupportedError, match=r"aten\.exp\.default.*does not take complex tensors"):
        pteron.load(pte, device=device).method()
