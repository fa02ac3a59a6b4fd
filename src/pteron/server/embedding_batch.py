"""The texts of all requests in common batches: the driver of an embedder's scheduler."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from pteron.llm import Embedder, Piece

LEAST_TEXTS = 8  # of a step, also for a model that takes one text per call
SHORTEST = 8  # texts with no more tokens than this share batches


class Embedding:
    """The vectors of one request."""

    def __init__(self, embedder: Embedder, rows: Sequence[Sequence[int]]) -> None:
        """rows: the tokens of each text, at least one text."""
        self.vectors = np.empty((len(rows), embedder.width), np.float32)
        self.tokens = sum(map(len, rows))
        self._rows = rows
        self._left: dict[int, list[int]] = {}  # the texts to do, by their bucket
        for number, row in enumerate(rows):
            self._left.setdefault(_bucket(len(row)), []).append(number)
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def is_done(self) -> bool:
        return not self._left

    @property
    def bucket(self) -> int:
        """The next bucket with texts to do."""
        return min(self._left)

    def take(self, bucket: int, most: int) -> list[tuple[Embedding, int]]:
        """Up to `most` texts of a bucket, by number. They count as done."""
        numbers = self._left.get(bucket, [])
        taken, rest = numbers[:most], numbers[most:]
        if rest:
            self._left[bucket] = rest
        else:
            self._left.pop(bucket, None)
        return [(self, number) for number in taken]

    def row(self, number: int) -> Sequence[int]:
        return self._rows[number]


def _bucket(length: int) -> int:
    """Equal for lengths that differ at most by a factor of two: a batch is as long as its longest text."""
    return (max(length, SHORTEST) - 1).bit_length()


class EmbeddingBatch:
    """Runs requests step by step. A step is a batch of texts of similar length, of any requests.

    The requests take turns: the one whose turn it is chooses the length and comes first. The others fill the
    batch.
    """

    def __init__(self, embedder: Embedder, on_step: Callable[[int, float], None] | None = None) -> None:
        """on_step: called after each step, with the number of its tokens and the seconds that it took."""
        self._embedder = embedder
        self._on_step = on_step or (lambda tokens, seconds: None)
        self._most = max(embedder.batch, LEAST_TEXTS)
        self._tasks: deque[Embedding] = deque()

    def add(self, task: Embedding) -> None:
        self._tasks.append(task)

    def remove(self, task: Embedding) -> None:
        task.cancel()
        if task in self._tasks:
            self._tasks.remove(task)

    def step(self) -> list[tuple[Embedding, Piece | Exception]]:
        """The requests that have ended."""
        ended: list[tuple[Embedding, Piece | Exception]] = [
            (task, Piece("", None, "cancelled")) for task in self._tasks if task.is_cancelled
        ]
        running = [task for task in self._tasks if not task.is_cancelled]
        if running:
            self._run(running)
            self._tasks.rotate(-1)
        return ended + [(task, Piece("", None, "stop")) for task in running if task.is_done]

    def _run(self, tasks: Sequence[Embedding]) -> None:
        chosen: list[tuple[Embedding, int]] = []
        bucket = tasks[0].bucket
        for task in tasks:
            chosen += task.take(bucket, self._most - len(chosen))
        rows = [task.row(number) for task, number in chosen]
        begin = time.perf_counter()
        vectors = self._embedder.vectors(rows)
        self._on_step(sum(map(len, rows)), time.perf_counter() - begin)
        for (task, number), vector in zip(chosen, vectors, strict=True):
            task.vectors[number] = vector
