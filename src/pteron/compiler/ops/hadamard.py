"""The Hadamard transform of the last dimension, for models that are rotated before quantization.

A transform of n = a * b * ... elements is one small transform along each factor. One kernel computes each of
them, so the work grows with the sum of the factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    LiveTensor,
    Scratch,
    check,
    numel,
    op,
    quads,
    rows_of,
    threads,
)

LARGEST_FACTOR = 128  # of the powers of two
WILLIAMSON = 28

# Williamson's matrix of order 28: blocks of four symmetric circulants of order 7, given by their first rows.
_CIRCULANTS = {"A": "+------", "B": "++----+", "C": "+-+--+-", "D": "+--++--"}
_BLOCKS = ("+A +B +C +D", "-B +A -D +C", "-C +D +A -B", "-D -C +B +A")


def williamson_rows() -> list[int]:
    """The rows of the matrix of order 28. Bit c of a row is set if its element in column c is -1."""
    rows = []
    for blocks in _BLOCKS:
        for shift in range(7):
            is_negative = [
                _CIRCULANTS[block[1]][(column - shift) % 7] != block[0]
                for block in blocks.split()
                for column in range(7)
            ]
            rows.append(sum(bit << column for column, bit in enumerate(is_negative)))
    return rows


_POWER_OF_TWO = (
    "fn negative(row: u32, column: u32) -> bool { return (countOneBits(row & column) & 1u) == 1u; }"
)
_SPECIAL = (
    f"var<private> signs: array<u32, {WILLIAMSON}> = array<u32, {WILLIAMSON}>("
    + ", ".join(f"{row}u" for row in williamson_rows())
    + ");\nfn negative(row: u32, column: u32) -> bool { return ((signs[row] >> column) & 1u) == 1u; }"
)


@op("fast_hadamard_transform.default", rows=rows_of("x", mixes=-1))
def fast_hadamard_transform(x: LiveTensor, out: LiveTensor) -> list[Dispatch]:
    """The transform of 2^p elements, scaled to keep lengths; of 28 * 2^p, without the scale of the 28."""
    check(x.rank > 0 and x.shape[-1] == x.max_shape[-1] > 0, "the last dimension must have a fixed size")
    size = x.shape[-1]
    special = WILLIAMSON if size & (size - 1) else 1
    power = size // special
    check(
        power * special == size and power & (power - 1) == 0,
        f"the last dimension must be a power of two, or {WILLIAMSON} times one, not {size}",
    )
    out.resize(x.shape)
    steps = [*_steps(power), (WILLIAMSON, power)] if special > 1 else list(_steps(power))
    room = 4 * (numel(x.max_shape) + 4)
    places: list[Bound] = [x, *(Scratch(f"step{n % 2}", room) for n in range(len(steps) - 1)), out]
    return [
        Dispatch(
            "hadamard",
            {"x": places[number], "y": places[number + 1]},
            {
                "quads": quads(x.numel),
                "factor": factor,
                "stride": stride,
                "scale": 1.0 if factor == WILLIAMSON else 1 / sqrt(factor),
            },
            threads(quads(x.numel)),
            code=_SPECIAL if factor == WILLIAMSON else _POWER_OF_TWO,
        )
        for number, (factor, stride) in enumerate(steps)
    ]


def _steps(power: int) -> Iterator[tuple[int, int]]:
    """The factors of a power of two, each with the distance of the elements that it combines."""
    stride = 1
    while True:
        factor = min(power, LARGEST_FACTOR)
        yield factor, stride
        power, stride = power // factor, stride * factor
        if power == 1:
            return
