"""Many answers at once: each step is one call of the program, with rows of many conversations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pteron.errors import DeviceLost
from pteron.llm.answer import Answer, Piece, Run, Seen
from pteron.llm.decoder import Segment
from pteron.llm.pace import Pace
from pteron.llm.session import common_length
from pteron.llm.step_choice import StepLimits, rows_of_step

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel

WORTH_SHARING = 16  # tokens: an answer does not wait until another one has read a shorter beginning

Outcome: TypeAlias = tuple[Answer, Piece | Exception]


class Batch:
    """Runs many answers. They may join and leave between two steps. Only one thread at a time may use it.

    pace: limits the rows of prompts in a step. None: as many as the program takes.
    on_step: called after each call of the program, with its rows and its seconds.
    check: called after each call of the program, with its segments.
    """

    def __init__(
        self,
        model: LanguageModel,
        pace: Pace | None = None,
        on_step: Callable[[int, float], None] | None = None,
        check: Callable[[Sequence[Segment[Seen]]], None] | None = None,
    ) -> None:
        self._model = model
        self._pace = pace
        self._on_step = on_step
        self._check = check
        self._answers: list[Answer] = []  # who has waited the longest is first
        self._served: set[Answer] = set()  # by the last step
        self._runs: dict[Answer, Run] = {}  # what they need next; none for an answer that has not begun

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, answer: Answer) -> None:
        answer.take()
        self._answers.append(answer)

    def remove(self, answer: Answer) -> None:
        """End an answer, if it is still there."""
        if answer in self._answers:
            self._answers.remove(answer)
            self._runs.pop(answer, None)
            self._served.discard(answer)
            answer.release()

    def close(self) -> None:
        for answer in list(self._answers):
            self.remove(answer)

    def step(self) -> list[Outcome]:
        """Call the program once. Returns the new pieces, and the errors of answers that have failed.

        A answer is removed with its last piece or its error.
        """
        outcomes: list[Outcome] = []
        self._answers.sort(key=self._served.__contains__)  # new ones come before those that were served
        for answer in list(self._answers):
            if answer.is_cancelled or (answer not in self._runs and self._may_begin(answer)):
                outcomes += self._resume(answer, None)
        parts = self._choose()
        self._served = set(parts)
        for answer, seen in zip(parts, self._timed(list(parts.values())), strict=True):
            outcomes += self._resume(answer, seen)
        return outcomes

    def _may_begin(self, answer: Answer) -> bool:
        """Not while its KV cache has no room: then it waits for the end of an answer. And not while another
        answer reads the same beginning: once that is read, it is copied.
        """
        has_state = answer.session is not None and answer.session.has_state
        if self._runs and not has_state and not self._model.sessions.has_room(self._model.decoder):
            return False
        if answer.session is not None:  # its KV cache is its own
            return True
        beginning = answer.window.tokens[:-1]  # the last token is run in any case: it gives the logits
        others = (other.reading for other in self._runs)
        soon = max((common_length(beginning, tokens) for tokens in others if tokens), default=0)
        return soon < WORTH_SHARING or soon <= self._model.sessions.known(answer.window.tokens)

    def _choose(self) -> dict[Answer, Run]:
        """The answers of the next call, with the part of each one's run that is in it."""
        decoder = self._model.decoder
        ready = [answer for answer in self._answers if answer in self._runs]
        most = decoder.max_length
        limits = StepLimits(decoder.parallel, most, self._pace.rows if self._pace else most)
        counts = rows_of_step([len(self._runs[answer].tokens) for answer in ready], limits)
        return {
            answer: self._runs[answer].first(count)
            for answer, count in zip(ready, counts, strict=True)
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
        """Return each run's result. If the call fails, they run one by one, and only faulty ones fail."""
        try:
            return [*self._run_together(parts)]
        except Exception as error:
            if len(parts) == 1 or isinstance(error, DeviceLost):
                return [error] * len(parts)
            return [self._run([part])[0] for part in parts]

    def _run_together(self, parts: list[Run]) -> list[Seen]:
        """Run all in one call. If it fails, nothing has changed."""
        segments = [run.segment for run in parts]
        seen = self._model.decoder.logits_many(segments)
        for run in parts:
            run.finish()
        if self._check:
            self._check(segments)
        return seen

    def _resume(self, answer: Answer, result: Seen | Exception | None) -> Iterator[Outcome]:
        """Go on with an answer until it needs the next run."""
        self._runs.pop(answer, None)
        try:
            if isinstance(result, Exception):
                raise result
            item = answer.resume(result)
            while not isinstance(item, Run) or answer.is_cancelled:
                if isinstance(item, Piece):
                    yield answer, item
                    if item.finish_reason:
                        self.remove(answer)
                        return
                item = answer.resume(None)
            self._runs[answer] = item
        except Exception as error:
            self.remove(answer)
            yield answer, error


def run_all(model: LanguageModel, answers: Sequence[Answer]) -> Iterator[tuple[int, Piece]]:
    """Run answers to their ends. Gives each piece with the number of its answer, as they come."""
    for number, item in outcomes(model, answers):
        if isinstance(item, Exception):
            raise item
        yield number, item


def outcomes(model: LanguageModel, answers: Sequence[Answer]) -> Iterator[tuple[int, Piece | Exception]]:
    """As `run_all`, but an answer that fails gives its error, and the others go on.

    As many run together as the program takes in one call. The others wait.
    """
    batch = Batch(model)
    numbers = {answer: number for number, answer in enumerate(answers)}
    waiting = iter(answers)
    try:
        while True:
            while len(batch) < model.decoder.parallel and (answer := next(waiting, None)):
                batch.add(answer)
            if not len(batch):
                return
            for answer, item in batch.step():
                yield numbers[answer], item
    finally:
        batch.close()
        for answer in answers:
            answer.close()
