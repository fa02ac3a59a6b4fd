"""Sizes that calls may choose: `pteron.export` stores them, and for other files they are guessed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from pteron.compiler.ir.formula import Formula


@dataclass(frozen=True, slots=True, eq=False)
class FreeSize:
    """A number that a call chooses. The sizes of one or more dimensions follow from it.

    uses: these sizes, each as (times, plus). name: as in the export, or a letter.
    """

    values: range
    uses: tuple[tuple[int, int], ...] = ((1, 0),)
    name: str = "n"

    def at(self, most: int) -> int:
        """The largest value with which no size is larger than `most`; the smallest value if there is none."""
        limit = min((most - plus) // times for times, plus in self.uses)
        fitting = range(self.values.start, min(limit + 1, self.values.stop), self.values.step)
        return self.values[max(0, len(fitting) - 1)]

    def smaller(self) -> list[int]:
        """Some values below the largest: near it, in the middle, and the smallest."""
        last = len(self.values) - 1
        places = {last - 1, last - 2, (last + 1) // 2, (last + 1) // 4, 0}
        return [self.values[i] for i in sorted(places, reverse=True) if 0 <= i < last]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a dimension that may vary: times * of + plus.

    Attributes:
        of: The number that a call chooses.
        times: A factor.
        plus: A constant.
    """

    of: FreeSize
    times: int = 1
    plus: int = 0

    @property
    def values(self) -> range:
        """The sizes that a call may have."""
        free = self.of.values
        return range(self.where(free.start), self.where(free.stop - 1) + 1, self.times * free.step)

    def where(self, value: int) -> int:
        """The size where the number has this value."""
        return self.times * value + self.plus

    def at(self, most: int) -> int:
        """The size where all sizes that vary with it are at most `most`."""
        return self.where(self.of.at(most))

    @property
    def formula(self) -> Formula:
        """For example 2*n + 1."""
        return Formula.name(self.of.name) * self.times + self.plus

    def meaning(self, name: str) -> str:
        """What the size follows from: y[0] is 2*n + 1, and n is at most 8."""
        return f"{name} is {self.formula}, and {self.of.name} is {Size(self.of).rule()}"

    def rule(self) -> str:
        """The sizes that a call may have, in words: a multiple of 2 from 4 to 16."""
        values = self.values
        low, high = values[0], values[-1]
        between = f"from {low} to {high}" if low > 0 else f"at most {high}"
        if values.step == 1:
            return between
        rest = low % values.step
        return f"{f'{values.step} * n + {rest}' if rest else f'a multiple of {values.step}'}, {between}"

    def __str__(self) -> str:
        """For example n <= 16, 4 <= n <= 16, n <= 16 by 2 for even n, or 2*half <= 16."""
        values, step = self.values, self.of.values.step
        low = "" if values[0] <= values.step else f"{values[0]} <= "
        by = "" if step == 1 else f" by {values.step}"
        return f"{low}{self.formula} <= {values[-1]}{by}"


def letters(taken: Collection[str] = ()) -> Iterator[str]:
    """Names for numbers that the file does not name: n, m, k, ..., n1, m1, ..."""
    for turn in count():
        yield from (name for letter in "nmkhwpqrst" if (name := f"{letter}{turn or ''}") not in taken)


Sizes: TypeAlias = tuple[int | Size, ...]


def size_texts(sizes: Sizes, said: set[FreeSize] | None = None) -> tuple[str, ...]:
    """Each size as text. The range of a number stands where it comes first.

    said: the numbers whose ranges were given before.
    """
    said = set() if said is None else said
    texts = []
    for size in sizes:
        is_known = isinstance(size, Size) and size.of in said
        texts.append(str(size.formula) if is_known and isinstance(size, Size) else str(size))
        said |= {size.of} if isinstance(size, Size) else set()
    return tuple(texts)


def varying(sizes: Sizes) -> tuple[int, ...]:
    """The dimensions that may vary."""
    return tuple(d for d, size in enumerate(sizes) if isinstance(size, Size))
