"""Gather rows into batches. Pure: it knows only what the rows of a batch must have in common.

Rows are read in windows of bounded size. In a window, rows of similar length come together, because a batch
is as long as its longest row. Nothing is moved from one window to another, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar


class Gatherable(Protocol):
    """A row, as far as batches are concerned."""

    @property
    def kind(self) -> Hashable:
        """Equal for rows that may share a batch."""

    @property
    def length(self) -> int:
        """Rows of one kind are padded to the longest in their batch."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Gatherable)


def windows(rows: Iterable[T], count: int, nbytes: int = 64 << 20) -> Iterator[list[T]]:
    """Consecutive rows: at most `count`, and no more after they have `nbytes` together."""
    held: list[T] = []
    size = 0
    for row in rows:
        held.append(row)
        size += row.nbytes
        if len(held) == count or size >= nbytes:
            yield held
            held, size = [], 0
    if held:
        yield held


def batches(window: Sequence[T], size: int, padding: int | None = None) -> Iterator[list[T]]:
    """The rows of a window in batches of at most `size`: each of one kind, and of similar length.

    padding: the most elements of padding in a batch. A batch ends before a row that would need more.
    """
    kinds: dict[Hashable, list[T]] = {}
    for row in window:
        kinds.setdefault(row.kind, []).append(row)
    for rows in kinds.values():
        batch: list[T] = []
        total = 0  # of the lengths in the batch
        for row in sorted(rows, key=lambda row: row.length):  # stable: rows of one length stay in order
            is_far = padding is not None and row.length * len(batch) - total > padding
            if len(batch) == size or is_far:
                yield batch
                batch, total = [], 0
            batch.append(row)
            total += row.length
        yield batch
