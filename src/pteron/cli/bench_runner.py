"""The measurements of `pteron bench`: random tokens. The time does not depend on which they are."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import Any

from pteron._util.progress import Progress
from pteron.llm.decoder import Decoder, Segment


@dataclass(slots=True)
class Row:
    """One test, and the seconds of each of its runs."""

    kind: str  # pp: read a prompt, tg: generate tokens
    length: int
    depth: int
    conversations: int = 1  # that generate at the same time
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.kind}{self.length}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def tokens(self) -> int:
        """Of one run, by all conversations."""
        return self.length * self.conversations

    @property
    def rates(self) -> list[float]:
        return [self.tokens / s for s in self.seconds]

    @property
    def per_cpu_second(self) -> float:
        return self.tokens / median(self.cpu_seconds)

    @property
    def cpu_ms_per_token(self) -> float:
        return 1000 / self.per_cpu_second

    def time(self, run: Callable[[], None]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        self.cpu_seconds.append(time.process_time() - cpu)
        self.seconds.append(time.perf_counter() - wall)

    def as_json(self) -> dict[str, Any]:
        """As JSON, with llama-bench's names where the meaning is the same."""
        return {
            "n_prompt": self.length if self.kind == "pp" else 0,
            "n_gen": self.length if self.kind == "tg" else 0,
            "n_depth": self.depth,
            "n_parallel": self.conversations,
            "avg_ns": round(1e9 * mean(self.seconds)),
            "stddev_ns": round(1e9 * spread(self.seconds)),
            "avg_ts": mean(self.rates),
            "stddev_ts": spread(self.rates),
            "samples_ns": [round(1e9 * s) for s in self.seconds],
            "samples_ts": self.rates,
            "samples_cpu_ns": [round(1e9 * s) for s in self.cpu_seconds],
            "cpu_ms_per_token": self.cpu_ms_per_token,
        }


class Runner:
    """Each conversation has read `depth` tokens before a run."""

    def __init__(self, decoder: Decoder, depth: int) -> None:
        self._decoder = decoder
        self._depth = depth
        self._random = random.Random(0)

    def measure(self, kind: str, length: int, repetitions: int, progress: Progress | None = None) -> Row:
        """Read a prompt, or generate tokens, in one conversation."""
        (row,) = self._measure([Row(kind, length, self._depth)], repetitions, f"{kind}{length}", progress)
        return row

    def measure_many(
        self, counts: Sequence[int], length: int, repetitions: int, progress: Progress | None = None
    ) -> list[Row]:
        """Generate tokens in several conversations at the same time, for each count of conversations.

        The counts take turns, so that a change of the machine's load does not change their ratio.
        """
        rows = [Row("tg", length, self._depth, count) for count in counts]
        return self._measure(rows, repetitions, "in turns", progress)

    def _measure(self, rows: list[Row], repetitions: int, what: str, progress: Progress | None) -> list[Row]:
        states = [self._decoder.new_state() for _ in range(max(row.conversations for row in rows))]
        try:
            for state in states:
                self._read(state, 0, self._depth)
            for row in rows:
                self._run(row, states)  # warm-up: the first call at a shape plans
            for number in range(repetitions):
                if progress is not None:
                    progress(what, number, repetitions)
                for row in rows:
                    row.time(lambda row=row: self._run(row, states))  # type: ignore[misc]
        finally:
            for state in states:
                state.close()
        return rows

    def _run(self, row: Row, states: list[Any]) -> None:
        if row.kind == "pp":
            self._read(states[0], self._depth, row.length)
        else:
            self._write(states[: row.conversations], row.length)

    def _read(self, state: Any, start: int, length: int) -> None:
        """Read a prompt as in a real run: as many tokens per call as the program accepts."""
        most = self._decoder.max_length
        for done in range(0, length, most):
            self._decoder.logits(self._tokens(min(most, length - done)), start + done, state)

    def _write(self, states: list[Any], length: int) -> None:
        for position in range(self._depth, self._depth + length):
            if len(states) == 1:
                self._decoder.logits(self._tokens(1), position, states[0])
                continue
            segments: list[Segment[Any]] = [Segment(self._tokens(1), position, state) for state in states]
            most = self._decoder.parallel
            for first in range(0, len(segments), most):
                self._decoder.logits_many(segments[first : first + most])

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(self._decoder.vocab_size) for _ in range(count)]


def spread(numbers: list[float]) -> float:
    return stdev(numbers) if len(numbers) > 1 else 0.0
