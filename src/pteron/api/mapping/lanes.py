"""Run batches on one or several devices. A lane is one device with its loaded method."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from pteron.api.mapping.row_inputs import Item, RowInputs
from pteron.api.method import Method
from pteron.engine.staging import IN_FLIGHT, Pending
from pteron.errors import InputError, RowError

Outcomes: TypeAlias = dict[int, Any]  # by the number of the row: its result, or a RowError


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows to run together, and rows that already failed."""

    items: Sequence[Item]
    inputs: RowInputs | None = None
    failed: Outcomes = field(default_factory=dict)


class Lane:
    def __init__(self, method: Method) -> None:
        self._method = method

    def run(self, batches: Iterable[RowBatch]) -> Iterator[Outcomes]:
        """The outcomes of batches, in order. While the GPU runs one, the next is read and uploaded."""
        waiting: deque[tuple[RowBatch, Pending[list[Any]] | Outcomes]] = deque()
        for batch in batches:
            if len(waiting) == IN_FLIGHT:
                yield self._finish(*waiting.popleft())
            waiting.append((batch, self._start(batch)))
        for started in waiting:
            yield self._finish(*started)

    def _start(self, batch: RowBatch) -> Pending[list[Any]] | Outcomes:
        if batch.inputs is None:
            return batch.failed
        try:
            return self._method.submit(*batch.inputs.stack(batch.items))
        except InputError as error:
            return self._one_by_one(batch, batch.inputs, error)

    def _finish(self, batch: RowBatch, started: Pending[list[Any]] | Outcomes) -> Outcomes:
        if isinstance(started, dict) or batch.inputs is None:
            assert isinstance(started, dict)
            return started
        return _by_number(batch.items, batch.inputs.results(batch.items, started.result()))

    def _one_by_one(self, batch: RowBatch, inputs: RowInputs, error: InputError) -> Outcomes:
        """After a refused call: find the rows that are to blame, and the results of the others."""
        if len(batch.items) == 1:
            return {batch.items[0].number: RowError(batch.items[0].number, error)}
        outcomes: Outcomes = {}
        for item in batch.items:
            alone = RowBatch([item], inputs)
            outcomes |= self._finish(alone, self._start(alone))
        return outcomes


def _by_number(items: Sequence[Item], results: Sequence[Any]) -> Outcomes:
    return {item.number: result for item, result in zip(items, results, strict=True)}


def run_on(lanes: Sequence[Lane], batches: Iterable[RowBatch]) -> Iterator[Outcomes]:
    """The outcomes of batches. With several lanes, in any order."""
    return lanes[0].run(batches) if len(lanes) == 1 else _side_by_side(lanes, batches)


def _side_by_side(lanes: Sequence[Lane], batches: Iterable[RowBatch]) -> Iterator[Outcomes]:
    """Each lane has a thread, and takes the next batch when it is ready for one.

    Batches are made in the caller's thread, so its rows may come from anywhere.
    """
    to_do: SimpleQueue[RowBatch | None] = SimpleQueue()
    done: SimpleQueue[Outcomes | BaseException] = SimpleQueue()

    def work(lane: Lane) -> None:
        try:
            for outcomes in lane.run(_until_none(to_do)):
                done.put(outcomes)
        except BaseException as error:
            done.put(error)

    threads = [threading.Thread(target=work, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    # A lane returns an outcome only when it has more batches in flight than this leaves it without.
    most, under_way = len(lanes) * (IN_FLIGHT + 1), 0
    try:
        for batch in batches:
            if under_way == most:
                yield _outcomes(done)
                under_way -= 1
            to_do.put(batch)
            under_way += 1
        for _ in lanes:
            to_do.put(None)
        for _ in range(under_way):
            yield _outcomes(done)
    finally:
        _empty(to_do)
        for _ in lanes:
            to_do.put(None)
        for thread in threads:
            thread.join()


def _until_none(to_do: SimpleQueue[RowBatch | None]) -> Iterator[RowBatch]:
    while (batch := to_do.get()) is not None:
        yield batch


def _outcomes(done: SimpleQueue[Outcomes | BaseException]) -> Outcomes:
    outcomes = done.get()
    if isinstance(outcomes, BaseException):
        raise outcomes
    return outcomes


def _empty(to_do: SimpleQueue[RowBatch | None]) -> None:
    try:
        while True:
            to_do.get_nowait()
    except Empty:
        pass
