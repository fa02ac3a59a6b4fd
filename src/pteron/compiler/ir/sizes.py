"""Sizes that calls may choose: `pteron.export` stores them, and for other files they are guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, eq=False)
class FreeSize:
    """A number that a call chooses. The sizes of one or more dimensions follow from it.

    uses: these sizes, each as (times, plus).
    """

    values: range
    uses: tuple[tuple[int, int], ...] = ((1, 0),)

    def at(self, most: int) -> int:
        """The largest value with which no size is larger than `most`; the smallest value if there is none."""
        limit = min((most - plus) // times for times, plus in self.uses)
        count = len(range(self.values.start, min(limit + 1, self.values.stop), self.values.step))
        return self.values[max(0, count - 1)]

    def smaller(self) -> list[int]:
        """Some values below the largest: near it, in the middle, and the smallest."""
        count = len(self.values)
        places = {count - 2, count - 3, count // 2, count // 4, 0}
        return [self.values[i] for i in sorted(places, reverse=True) if 0 <= i < count - 1]


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
        """For example <=16, 4..16, or <=16 by 2 for even sizes."""
        values = self.values
        between = f"<={values[-1]}" if values[0] <= values.step else f"{values[0]}..{values[-1]}"
        return between if values.step == 1 else f"{between} by {values.step}"


Sizes: TypeAlias = tuple[int | Size, ...]


def varying(sizes: Sizes) -> tuple[int, ...]:
    """The dimensions that may vary."""
    return tuple(d for d, size in enumerate(sizes) if isinstance(size, Size))
