"""Many answers at once: each step is one call of the program, with rows of many conversations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pteron.errors import DeviceLost
from pteron.llm.generate import Piece, Run, Seen, Stream
from pteron.llm.pace import Pace
from pteron.llm.session import common_length
from pteron.llm.step_choice import StepLimits, rows_of_step

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel

WORTH_SHARING = 16  # tokens: for fewer, a stream does not wait until another one has read them

Outcome: TypeAlias = tuple[Stream, Piece | Exception]


class Batch:
    """Runs many streams. They may join and leave between two steps. Only one thread at a time may use it.

    pace: limits the rows of prompts in a step. None: as many as the program takes.
    on_step: called after each call of the program, with its rows and its seconds.
    """

    def __init__(
        self,
        model: LanguageModel,
        pace: Pace | None = None,
        on_step: Callable[[int, float], None] | None = None,
    ) -> None:
        self._model = model
        self._pace = pace
        self._on_step = on_step
        self._streams: list[Stream] = []  # who has waited the longest is first
        self._served: set[Stream] = set()  # by the last step
        self._runs: dict[Stream, Run] = {}  # what they need next; none for a stream that has not begun

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Stream) -> None:
        stream.take()
        self._streams.append(stream)

    def remove(self, stream: Stream) -> None:
        """End a stream, if it is still there."""
        if stream in self._streams:
            self._streams.remove(stream)
            self._runs.pop(stream, None)
            self._served.discard(stream)
            stream.release()

    def close(self) -> None:
        for stream in list(self._streams):
            self.remove(stream)

    def step(self) -> list[Outcome]:
        """Call the program once. Returns the new pieces, and the errors of streams that have failed.

        A stream is removed with its last piece or its error.
        """
        outcomes: list[Outcome] = []
        self._streams.sort(key=self._served.__contains__)  # new ones come before those that were served
        for stream in list(self._streams):
            if stream.is_cancelled or (stream not in self._runs and self._may_begin(stream)):
                outcomes += self._resume(stream, None)
        parts = self._choose()
        self._served = set(parts)
        for stream, seen in zip(parts, self._timed(list(parts.values())), strict=True):
            outcomes += self._resume(stream, seen)
        return outcomes

    def _may_begin(self, stream: Stream) -> bool:
        """Not while its KV state has no room: then it waits for the end of a stream. And not while another
        stream reads the same beginning: once that is read, it is copied.
        """
        has_state = stream.session is not None and stream.session.has_state
        if self._runs and not has_state and not self._model.sessions.has_room(self._model.decoder):
            return False
        if stream.session is not None:  # its KV state is its own
            return True
        beginning = stream.prompt[:-1]  # the last token is run in any case: it gives the logits
        others = (other.reading for other in self._runs)
        soon = max((common_length(beginning, tokens) for tokens in others if tokens), default=0)
        return soon < WORTH_SHARING or soon <= self._model.sessions.known(stream.prompt)

    def _choose(self) -> dict[Stream, Run]:
        """The streams of the next call, with the part of each one's run that is in it."""
        decoder = self._model.decoder
        ready = [stream for stream in self._streams if stream in self._runs]
        most = decoder.max_length
        limits = StepLimits(decoder.parallel, most, self._pace.rows if self._pace else most)
        counts = rows_of_step([len(self._runs[stream].tokens) for stream in ready], limits)
        return {
            stream: self._runs[stream].first(count)
            for stream, count in zip(ready, counts, strict=True)
            if count
        }

    def _timed(self, parts: list[Run]) -> list[Seen | Exception]:
        if not parts:
            return []
        began = time.perf_counter()
        results = self._run(parts)
        seconds = time.perf_counter() - began
        counts = [len(run.tokens) for run in parts]
        if self._pace:
            self._pace.note(sum(count for count in counts if count > 1), seconds)
        if self._on_step:
            self._on_step(sum(counts), seconds)
        return results

    def _run(self, parts: list[Run]) -> list[Seen | Exception]:
        """What each part saw. If the call fails, each is run alone: only who fails then has failed."""
        try:
            return [*self._run_together(parts)]
        except Exception as error:
            if len(parts) == 1 or isinstance(error, DeviceLost):
                return [error] * len(parts)
            return [self._run([part])[0] for part in parts]

    def _run_together(self, parts: list[Run]) -> list[Seen]:
        """Run all in one call. If it fails, nothing has changed."""
        seen = self._model.decoder.logits_many([run.segment for run in parts])
        for run in parts:
            run.finish()
        return seen

    def _resume(self, stream: Stream, result: Seen | Exception | None) -> Iterator[Outcome]:
        """Go on with a stream until it needs the next run."""
        self._runs.pop(stream, None)
        try:
            if isinstance(result, Exception):
                raise result
            item = stream.resume(result)
            while not isinstance(item, Run) or stream.is_cancelled:
                if isinstance(item, Piece):
                    yield stream, item
                    if item.finish_reason:
                        self.remove(stream)
                        return
                item = stream.resume(None)
            self._runs[stream] = item
        except Exception as error:
            self.remove(stream)
            yield stream, error


def run_all(model: LanguageModel, streams: Sequence[Stream]) -> Iterator[tuple[int, Piece]]:
    """Run streams to their ends. Gives each piece with the number of its stream, as they come."""
    for number, item in outcomes(model, streams):
        if isinstance(item, Exception):
            raise item
        yield number, item


def outcomes(model: LanguageModel, streams: Sequence[Stream]) -> Iterator[tuple[int, Piece | Exception]]:
    """As `run_all`, but a stream that fails gives its error, and the others go on.

    As many run together as the program takes in one call. The others wait.
    """
    batch = Batch(model)
    numbers = {stream: number for number, stream in enumerate(streams)}
    waiting = iter(streams)
    try:
        while True:
            while len(batch) < model.decoder.parallel and (stream := next(waiting, None)):
                batch.add(stream)
            if not len(batch):
                return
            for stream, item in batch.step():
                yield numbers[stream], item
    finally:
        batch.close()
        for stream in streams:
            stream.close()
