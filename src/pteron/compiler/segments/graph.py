"""A graph that runs several sequences in one call, and what a caller must know of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pteron.compiler.ir.values import Graph, Port
from pteron.compiler.segments.analysis import TokenRows
from pteron.errors import InputError


@dataclass(frozen=True, slots=True)
class Batching:
    """How many sequences a call may run: an option of `pteron.load`.

    Attributes:
        most: The largest number of segments in a call.
        slots: The number of conversations that can have KV caches at the same time. Default: `most`.
        memory: The most bytes for the KV caches of all slots. If they are not enough, there are fewer slots,
            but at least one. Default: no limit.
        last_rows: Outputs have only the last row of each segment. The layers after the last attention then
            run only on these rows.
        required: Refuse a program that cannot run several sequences. Otherwise it runs one at a time.
    """

    most: int
    slots: int | None = None
    memory: int | None = None
    last_rows: bool = False
    required: bool = True

    def __post_init__(self) -> None:
        if self.most < 1:
            raise InputError(f"segments must be at least 1, not {self.most}")
        if self.slots is not None and self.slots < self.most:
            raise InputError(f"slots must be at least the number of segments, {self.most}, not {self.slots}")

    def slot_count(self, nbytes: int) -> int:
        """The number of slots, if one takes this many bytes."""
        wanted = self.slots or self.most
        return wanted if self.memory is None or not nbytes else max(1, min(wanted, self.memory // nbytes))


@dataclass(slots=True)
class SegmentedGraph(Graph):
    """The inputs are those of the program with a row for each token, and the tables that follow.

    slots, positions: [S], of each row
    few: the rows of segments that have fewer than `few_rows` rows
    tiles: (first row, number of rows) of tiles of the other segments, of at most `tile_rows` rows
    last: the last row of each segment
    """

    most: int = 1  # segments in a call
    slot_count: int = 1
    capacity: int = 0  # positions of the KV caches; 0: there is no cache
    few_rows: int = 0
    tile_rows: int = 0
    program_inputs: tuple[Port, ...] = ()
    program_outputs: tuple[Port, ...] = ()
    input_dims: tuple[int | None, ...] = ()  # of the rows of each input of the program; None: a position
    position_input: int | None = None  # the input with the position of the first token
    output_rows: tuple[TokenRows | None, ...] = field(default=())
