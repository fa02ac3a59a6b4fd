"""`pteron bench --parallel`: what several conversations at once cost, and how long a new one waits."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from pteron._util.progress import Progress
from pteron.cli.terminal import markdown_table

if TYPE_CHECKING:
    from pteron.llm import LanguageModel
    from pteron.llm.answer import Answer
    from pteron.llm.batch import Batch

LONG, SHORT = 1000, 20  # tokens of the prompt that is being read, and of the one that arrives meanwhile
READ_BEFORE = 4  # steps of the long prompt before the short one arrives
WARM_UPS = 3  # until the pace is found, and all shapes were seen


@dataclass(slots=True)
class ParallelRow:
    """Tokens that a number of conversations write at the same time, and the seconds of each run."""

    conversations: int
    tokens: int  # of one run, by all conversations
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.tokens / median(self.seconds)

    @property
    def per_cpu_second(self) -> float:
        return self.tokens / median(self.cpu_seconds)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A short prompt arrives while a long one is being read, just after a step has begun."""

    long: int
    short: int
    seconds: float  # from its arrival to its first token
    step_seconds: float  # the median of the steps from the arrival on

    @property
    def in_steps(self) -> float:
        return self.seconds / self.step_seconds


class ParallelRunner:
    """Runs conversations of random tokens. The time does not depend on which tokens they are."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._decoder = model.decoder
        self._random = random.Random(0)

    def measure(
        self,
        counts: Sequence[int],
        length: int,
        depth: int,
        repetitions: int,
        progress: Progress | None = None,
    ) -> list[ParallelRow]:
        """For each count, that many conversations at once: each has read `depth` tokens, and writes `length`.

        The counts take turns, so that a change of the machine's load does not change their ratio.
        """
        rows = [ParallelRow(count, count * length) for count in counts]
        states = [self._decoder.new_state() for _ in range(max(counts))]
        try:
            for state in states:
                self._read(state, depth)
            for count in counts:
                self._write(states[:count], depth, length)  # warm-up: the first call at a shape plans
            for number in range(repetitions):
                if progress is not None:
                    progress("in turns", number, repetitions)
                for row in rows:
                    wall, cpu = time.perf_counter(), time.process_time()
                    self._write(states[: row.conversations], depth, length)
                    row.cpu_seconds.append(time.process_time() - cpu)
                    row.seconds.append(time.perf_counter() - wall)
        finally:
            for state in states:
                state.close()
        return rows

    def _read(self, state: Any, depth: int) -> None:
        most = self._decoder.max_length
        for start in range(0, depth, most):
            self._decoder.logits(self._tokens(min(most, depth - start)), start, state)

    def _write(self, states: list[Any], depth: int, length: int) -> None:
        from pteron.llm.decoder import Segment

        most = self._decoder.parallel
        for position in range(depth, depth + length):
            segments: list[Segment[Any]] = [Segment(self._tokens(1), position, state) for state in states]
            for first in range(0, len(segments), most):
                self._decoder.logits_many(segments[first : first + most])

    def arrival(self) -> Arrival:
        """The time to the first token of a short prompt that arrives while a long one is being read."""
        from pteron.llm.batch import Batch
        from pteron.llm.pace import Pace

        times: list[float] = []
        pace = Pace(self._model.max_length)
        batch = Batch(self._model, pace, lambda rows, seconds: times.append(seconds))
        try:
            for _ in range(WARM_UPS):
                self._arrive(batch, times)
            return self._arrive(batch, times)
        finally:
            batch.close()
            self._model.sessions.close()

    def _arrive(self, batch: Batch, times: list[float]) -> Arrival:
        room = self._model.context_length - 2
        long, short = self._answer(min(LONG, room)), self._answer(min(SHORT, room))
        batch.add(long)
        for _ in range(READ_BEFORE):
            batch.step()
        times.clear()
        arrived = time.perf_counter()
        batch.step()  # it has begun already
        batch.add(short)
        while not any(answer is short for answer, _ in batch.step()):
            pass
        seconds = time.perf_counter() - arrived
        batch.remove(long)
        return Arrival(len(long.window.tokens), len(short.window.tokens), seconds, median(times))

    def _answer(self, length: int) -> Answer:
        return self._model.answer(self._tokens(length), max_new_tokens=1, eos_token_id=[])

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(self._decoder.vocab_size) for _ in range(count)]


def rows_as_json(rows: list[ParallelRow], arrival: Arrival) -> list[dict[str, Any]]:
    """Each row, and then the arrival."""
    return [
        *(
            {
                "n_parallel": row.conversations,
                "n_gen": row.tokens,
                "tokens_per_second": row.per_second,
                "tokens_per_cpu_second": row.per_cpu_second,
                "ratio": row.per_cpu_second / rows[0].per_cpu_second,
                "samples_ns": [round(1e9 * s) for s in row.seconds],
                "samples_cpu_ns": [round(1e9 * s) for s in row.cpu_seconds],
            }
            for row in rows
        ),
        {
            "n_prompt_being_read": arrival.long,
            "n_prompt": arrival.short,
            "time_to_first_token": arrival.seconds,
            "step_seconds": arrival.step_seconds,
            "steps": arrival.in_steps,
        },
    ]


def as_markdown(rows: list[ParallelRow], arrival: Arrival) -> Iterator[str]:
    header = ("conversations", "t/s", "t per CPU s", f"t per CPU s, ratio to {rows[0].conversations}")
    cells = [
        (
            str(row.conversations),
            f"{row.per_second:.2f}",
            f"{row.per_cpu_second:.2f}",
            f"{row.per_cpu_second / rows[0].per_cpu_second:.2f}",
        )
        for row in rows
    ]
    yield from markdown_table(header, cells)
    yield ""
    yield (
        f"A prompt of {arrival.short} tokens arrives while one of {arrival.long} is being read: its first "
        f"token comes after {arrival.seconds:.2f} s, or {arrival.in_steps:.1f} steps of "
        f"{arrival.step_seconds:.2f} s."
    )
