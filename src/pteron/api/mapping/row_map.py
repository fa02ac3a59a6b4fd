"""The results of a method for any number of rows, in the order of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pteron.api.mapping.gathering import batches, windows
from pteron.api.mapping.lanes import Lane, RowBatch, run_on
from pteron.api.mapping.row_inputs import Columns, Item, RowInputs
from pteron.api.mapping.row_tables import rows_of
from pteron.api.method import Method
from pteron.engine.staging import IN_FLIGHT
from pteron.errors import InputError, RowError

OnError: TypeAlias = Literal["raise", "return"]

LOOK_AHEAD = 16  # batches in a window, if rows have different shapes: enough to find rows that fit together
LEAST_ROWS = 1024  # of such a window
MOST_PADDING = 64  # elements in a batch: more of them cost more than another call


@dataclass(frozen=True, slots=True)
class Failed:
    """A row that cannot be run, in the place of its Item."""

    error: RowError
    kind: None = None
    length: int = 0
    nbytes: int = 0


def map_rows(
    methods: Sequence[Method],
    rows: Any,
    columns: Columns | None = None,
    *,
    prepare: Callable[[Any], Any] | None = None,
    mask: str | None = None,
    pad: float = 0,
    batch: int | None = None,
    window: int | None = None,
    on_error: OnError = "raise",
) -> Iterator[Any]:
    """See `Program.map`. `methods` are the same method on several devices."""
    if on_error not in ("raise", "return"):
        raise InputError(f"on_error is {on_error!r}: expected 'raise' or 'return'")
    for name, number in (("batch", batch), ("window", window)):
        if number is not None and number < 1:
            raise InputError(f"{name} is {number}: expected 1 or more")
    reader = RowReader(methods[0], columns, mask, pad, prepare)
    lanes = [Lane(method) for method in methods]
    made = _batches(reader, rows_of(rows), batch, window)
    return _in_order(run_on(lanes, made), on_error)


class RowReader:
    """Turns rows into items. The first row that can be prepared shows which columns there are."""

    def __init__(
        self,
        method: Method,
        columns: Columns | None,
        mask: str | None,
        pad: float,
        prepare: Callable[[Any], Any] | None,
    ) -> None:
        self._method, self._columns, self._mask, self._pad = method, columns, mask, pad
        self._prepare = prepare
        self.inputs: RowInputs | None = None

    def read(self, number: int, row: Any) -> Item | Failed:
        try:
            prepared = row if self._prepare is None else self._prepare(row)
        except Exception as error:  # the caller's function may raise anything
            return Failed(RowError(number, error))
        if self.inputs is None:
            self.inputs = RowInputs(self._method, prepared, self._columns, self._mask, self._pad)
        try:
            return self.inputs.item(number, prepared)
        except InputError as error:
            return Failed(RowError(number, error))


def _batches(
    reader: RowReader, rows: Iterable[Any], batch: int | None, window: int | None
) -> Iterator[RowBatch]:
    items = (reader.read(number, row) for number, row in enumerate(rows))
    for group in _windows(reader, items, batch, window):
        failed = {item.error.row: item.error for item in group if isinstance(item, Failed)}
        if failed:
            yield RowBatch((), failed=failed)
        good = [item for item in group if isinstance(item, Item)]
        if good:
            assert reader.inputs is not None
            padding = MOST_PADDING if reader.inputs.padding_is_avoidable else None
            for gathered in batches(good, _size(reader.inputs, batch), padding):
                yield RowBatch(gathered, reader.inputs)


def _size(inputs: RowInputs, batch: int | None) -> int:
    return inputs.size if batch is None else min(batch, inputs.size)


def _windows(
    reader: RowReader, items: Iterator[Item | Failed], batch: int | None, window: int | None
) -> Iterator[list[Item | Failed]]:
    first = next(items, None)
    while isinstance(first, Failed):  # the method's inputs are not known yet
        yield [first]
        first = next(items, None)
    if first is None:
        return
    assert reader.inputs is not None
    size = _size(reader.inputs, batch)
    ahead = max(LOOK_AHEAD * size, LEAST_ROWS) if reader.inputs.varies and size > 1 else IN_FLIGHT * size
    yield from windows(_chained(first, items), window or ahead)


def _chained(first: Item | Failed, rest: Iterator[Item | Failed]) -> Iterator[Item | Failed]:
    yield first
    yield from rest


def _in_order(outcomes: Iterable[dict[int, Any]], on_error: OnError) -> Iterator[Any]:
    ready: dict[int, Any] = {}
    number = 0
    for some in outcomes:
        ready |= some
        while number in ready:
            result = ready.pop(number)
            if isinstance(result, RowError) and on_error == "raise":
                raise result
            yield result
            number += 1
