"""64-bit integers in two words against torch, with values that do not fit in one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import pteron
from pteron.engine.devices.opening import Device
from tests.support.programs import check_program

EDGES = [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53 + 1, 2**62, 0, 1, 7, 2**20]
LARGE = torch.tensor([*EDGES, *(-edge for edge in EDGES), -(2**63), 2**63 - 1])


def large(*shape: int) -> torch.Tensor:
    """Numbers around the limits of words, of floats and of 64 bits."""
    return LARGE[torch.randint(len(LARGE), shape)] + torch.randint(-2, 3, shape)


def moderate(*shape: int) -> torch.Tensor:
    """Numbers whose products fit in 64 bits."""
    return torch.randint(-(2**31), 2**31, shape) >> torch.randint(0, 31, shape)


def small(*shape: int) -> torch.Tensor:
    """Divisors and exponents: not 0."""
    return torch.randint(1, 9, shape) * (1 - 2 * torch.randint(0, 2, shape))


def divisor(*shape: int) -> torch.Tensor:
    numbers = large(*shape)
    return torch.where((numbers == 0) | (numbers == -1), torch.tensor(3), numbers)


def arithmetic(x: torch.Tensor, y: torch.Tensor) -> Sequence[torch.Tensor]:
    return [
        x * 1000003,
        x + y,
        x - 2 * y,
        x * y,
        5 - x,
        -x,
        x.abs(),
        x.sign(),
        x * x,
        torch.add(x, y, alpha=2**33),
        x.relu(),
        x & y,
        x | y,
        x ^ y,
        ~x,
        x & (2**40 - 1),
        torch.minimum(x, y),
        torch.maximum(x, y),
        x.clamp(-(2**40), 2**33),
        x.clamp(min=2**31),
        torch.bitwise_left_shift(x, 3),
        torch.bitwise_right_shift(x, 33),
        torch.bitwise_left_shift(x, y & 63),
        torch.bitwise_right_shift(x, y & 127),
        x**3,
        x.floor(),
    ]


def divisions(x: torch.Tensor, y: torch.Tensor) -> Sequence[torch.Tensor]:
    return [
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
        x // y,
        x % y,
        torch.fmod(x, y),
        x % 7,
        x % (2**35 + 3),
        torch.div(x, 1000003, rounding_mode="floor"),
        torch.div(x, -3, rounding_mode="trunc"),
        torch.fmod(x, -1000003),
        (x * 1000003) % 7,
        x / y,
        x.float(),
        x.half().isinf(),
        x.bool(),
        x.int(),
        x.to(torch.int8),
        x.to(torch.uint8),
        (x.float() * 0.001).long(),
        x.float().abs().sqrt(),
    ]


def comparisons(x: torch.Tensor, y: torch.Tensor) -> Sequence[torch.Tensor]:
    return [
        x == y,
        x != y,
        x < y,
        x <= y,
        x > y,
        x >= y,
        x == 2**32,
        x > 2**31,
        x <= -(2**31) - 1,
        x * x > x * 4096,
        torch.where(x > y, x, y),
        torch.where(x > y, x, 5),
        x.masked_fill(y > 0, 2**40),
        x.logical_not(),
        torch.logical_and(x, y),
        torch.logical_xor(x, y),
        (x & 0xFFFF) == 2**31,
        torch.bitwise_right_shift(x, 32) < 2**40,
    ]


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "whole"])
@pytest.mark.parametrize("function", [arithmetic, comparisons], ids=lambda f: f.__name__)
def test_elementwise(device: Device, function: object, partitioner: bool) -> None:
    dims, options = [{0: "n"}, {0: "n"}], {"partitioner": partitioner, "any_operator": True}
    check_program(device, function, lambda n: (large(n, 13), large(n, 13)), dims, **options)


def test_powers(device: Device) -> None:
    """1 and -1 have integer powers with negative exponents."""
    bases = lambda n: torch.tensor([-1, 1, 2, -3, 0, 7, -1]).repeat(n, 1)  # noqa: E731
    exponents = lambda n: torch.tensor([-3, -2, 40, 39, 5, -1, -2]).repeat(n, 1)  # noqa: E731
    powers = lambda x, e: [torch.pow(x, e), x.pow(3) * 2**31]  # noqa: E731
    dims = [{0: "n"}, {0: "n"}]
    check_program(device, powers, lambda n: (bases(n), exponents(n)), dims, partitioner=False)


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "whole"])
def test_divisions(device: Device, partitioner: bool) -> None:
    dims = [{0: "n"}, {0: "n"}]
    check_program(device, divisions, lambda n: (large(n, 13), divisor(n, 13)), dims, partitioner=partitioner)


def test_broadcasting(device: Device) -> None:
    def function(
        x: torch.Tensor, row: torch.Tensor, flag: torch.Tensor, word: torch.Tensor
    ) -> list[torch.Tensor]:
        return [x + row, x * flag, torch.where(flag, x, row), x - word, row * word, x + word.float()]

    def make(n: int) -> tuple[torch.Tensor, ...]:
        return large(n, 5), large(5), torch.rand(n, 1) > 0.5, torch.randint(-9, 9, (n, 5), dtype=torch.int32)

    check_program(device, function, make, [{0: "n"}, {}, {0: "n"}, {0: "n"}])


def reductions(x: torch.Tensor) -> Sequence[torch.Tensor]:
    return [
        x.sum(),
        x.sum(0),
        x.sum(1, keepdim=True),
        x.int().sum(),
        (x > 0).sum(0),
        x.prod(1),
        x.amax(0),
        x.amin(1),
        x.max(),
        *x.max(1),
        *x.min(0),
        x.argmax(1),
        x.argmin(0),
        x.cumsum(0),
        x.cumsum(1),
        x.any(1),
        x.all(0),
        *torch.sort(x, 1),
        *torch.topk(x, 3, 1),
        (x & (2**33 - 1)).sum(0, dtype=torch.float32),
        (x & 255).float().mean(1),
    ]


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "whole"])
def test_reductions(device: Device, partitioner: bool) -> None:
    def distinct(n: int) -> tuple[torch.Tensor]:
        numbers = torch.unique((LARGE[:, None] >> 5 << 5) + torch.arange(16))
        return (numbers[torch.randperm(len(numbers))[: 13 * n]].reshape(n, 13),)

    check_program(device, reductions, distinct, [{0: "n"}], partitioner=partitioner)


def test_long_reductions(device: Device) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sum(), x.sum(0), x.sum(1), x.max(), *x.min(1)]

    check_program(device, function, lambda n: (large(n, 700),), [{0: "n"}], lives=(600, 40, 300, 600))


def moves(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> Sequence[torch.Tensor]:
    n = x.shape[0]
    return [
        x.permute(2, 0, 1),
        x.transpose(0, 1),
        x[:, 1:3],
        x[:, :, ::2],
        x[:, 1],
        x.reshape(-1),
        x.unsqueeze(1).expand(n, 2, 4, 5),
        x.flip(1),
        x.repeat(1, 2, 1),
        torch.cat([x, y], 1),
        torch.cat([x, y.int().long()], 2),
        torch.stack([x, y], 1),
        torch.roll(x, 2, 1),
        torch.tril(x),
        torch.nn.functional.pad(x, (1, 2), value=2**40),
        x.clone(),
        x[index],
        x[:, index.clamp(0, 3)],
        torch.gather(x, 0, index[:, None, None].expand(-1, 4, 5)),
        torch.index_select(x, 0, index),
        torch.scatter(x, 0, index[:, None, None].expand(-1, 4, 5), y),
        torch.scatter_add(x, 0, index[:, None, None].expand(-1, 4, 5), y),
        torch.index_put(x, (index,), y),
        torch.index_put(x, (index,), y, accumulate=True),
        torch.slice_scatter(x, y[:, :2], 1, 1, 3),
        torch.select_scatter(x, y[:, 0], 1, 2),
        torch.full_like(x, 2**40),
        torch.where(x > 0, x, torch.full((), -(2**50))),
        torch.arange(0, n) * 2**40 + x[:, 0, 0],
        torch.split(x, 2, 1)[1],
    ]


def test_moves(device: Device) -> None:
    def make(n: int) -> tuple[torch.Tensor, ...]:
        return large(n, 4, 5), large(n, 4, 5), torch.randperm(n)

    dims = [{0: "n"}] * 3
    check_program(device, moves, make, dims, partitioner=False, any_operator=True)


def test_repeated_stores_are_in_order(device: Device) -> None:
    """Stores to one element: the last one remains, with both of its words, and sums are exact."""

    def function(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.scatter_add(x, 0, index, y),
            torch.scatter_reduce(x, 0, index, y, "amax"),
            torch.scatter(x, 0, index, y),
        ]

    def make(n: int) -> tuple[torch.Tensor, ...]:
        return large(n, 3), large(n, 3), torch.randint(0, 2, (n, 3))

    check_program(device, function, make, [{0: "n"}] * 3, partitioner=False, any_operator=True)


class Counter(torch.nn.Module):
    """State and a table with integers beyond 32 bits."""

    def __init__(self, table: list[list[int]]) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor([0, 0]))
        self.register_buffer("table", torch.tensor(table))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.seen.add_(x.sum())
        return self.seen * 2, self.table[index] + x[:, None], torch.nn.functional.embedding(index, self.table)


def counted(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(1, 2**33, (n,)), torch.randint(0, 2, (n,))


def test_state_and_constants(device: Device) -> None:
    counter = Counter([[2**40, 1], [-(2**35), 2**62]])
    check_program(device, counter, counted, [{0: "n"}] * 2, partitioner=False)


def test_state_of_a_delegate(device: Device) -> None:
    """The partitioner writes int64 as int32, also the values of constants, but not those of inputs."""
    check_program(device, Counter([[5, 1], [-3, 2]]), counted, [{0: "n"}] * 2)


BEYOND = 2**40
FRONT_DOOR = {
    "a scalar": lambda x: x * BEYOND,
    "a hash": lambda x: (x * -7046029254386353131) >> 7,
    "a tensor": lambda x: x + torch.tensor([BEYOND, 1, -BEYOND]),
    "a range": lambda x: torch.arange(3) * BEYOND + x,
    "a filled tensor": lambda x: torch.full((3,), BEYOND) - x,
    "a condition": lambda x: torch.where(x == BEYOND, torch.tensor(BEYOND + 1), x).float() / 2,
    "a set": lambda x: torch.isin(x, torch.tensor([BEYOND, 2])),
    "a limit": lambda x: x.clamp(min=BEYOND),
}


def test_constants_beyond_32_bits_stay_outside_the_delegate(device: Device) -> None:
    """The partitioner writes int64 constants as int32. `pteron.export` keeps what uses such ones outside."""
    x = torch.tensor([3, BEYOND, -5])

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(x) for function in FRONT_DOOR.values())

    made = pteron.export(every, (x,))
    assert made.report.delegated and "beyond 32 bits" in str(made.report)
    with pteron.load(made.buffer, device=device) as program:
        for name, got, want in zip(FRONT_DOOR, program(x), every(x), strict=True):
            assert torch.equal(got, want), name
