"""The window of a convolution or a pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.compiler.ir.rule import Define, Shape, check, describe, numel


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution or a pooling: one number for each spatial dimension."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @staticmethod
    def of(kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Window:
        """A window from lists. A list with one number gives the same number to all dimensions."""
        rank = len(kernel)
        window = Window(
            kernel, per_dimension(stride, rank), per_dimension(padding, rank), per_dimension(dilation, rank)
        )
        check(
            all(n >= 1 for n in (*window.kernel, *window.stride, *window.dilation)),
            f"kernel, stride and dilation must be at least 1, not {window}",
        )
        return window

    @property
    def is_pointwise(self) -> bool:
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    def output(self, size: Shape) -> Shape:
        """The number of positions of the window in an input of this size."""
        steps = [
            n + 2 * p - d * (k - 1) - 1
            for n, k, p, d in zip(size, self.kernel, self.padding, self.dilation, strict=True)
        ]
        check(
            all(n >= 0 for n in steps),
            f"an input of {describe(size)} is smaller than the window {describe(self.kernel)}, "
            f"dilated by {describe(self.dilation)}, with padding {describe(self.padding)}",
        )
        return tuple(n // s + 1 for n, s in zip(steps, self.stride, strict=True))

    def transposed_output(self, size: Shape, extra: Shape) -> Shape:
        """The input size in which the window has this many positions, plus `extra` elements at the end."""
        return tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, k, s, p, d, e in zip(
                size, self.kernel, self.stride, self.padding, self.dilation, extra, strict=True
            )
        )

    @property
    def params(self) -> dict[str, Shape]:
        return {
            "kernel": as_3d(self.kernel, 1),
            "stride": as_3d(self.stride, 1),
            "padding": as_3d(self.padding, 0),
            "dilation": as_3d(self.dilation, 1),
        }

    @property
    def taps(self) -> int:
        """The number of elements of the window."""
        return numel(self.kernel)

    @property
    def defines(self) -> dict[str, Define]:
        """The window as a part of a shader text, always with three dimensions."""
        sizes = {"WINDOW": self.kernel, "STRIDE": self.stride, "DILATION": self.dilation}
        made: dict[str, Define] = {}
        for name, values in sizes.items():
            for along, value in zip(("DEPTH", "ROW", "COLUMN"), as_3d(values, 1), strict=True):
                made[f"{along}_{name}"] = value
        return made


def per_dimension(values: Sequence[int], rank: int) -> Shape:
    """One number per dimension. A list with one number gives the same number to all dimensions."""
    listed = tuple(values) * (rank if len(values) == 1 else 1)
    check(len(listed) == rank, f"{describe(listed)} does not give one number for each of {rank} dimensions")
    return listed


def as_3d(values: Shape, neutral: int) -> Shape:
    """Three numbers, one for each spatial dimension: `neutral` stands for the missing dimensions."""
    return (neutral,) * (3 - len(values)) + values
