"""Limit the tokens of prompts in a step, so that answers that are being written do not wait long."""

from __future__ import annotations

from collections import deque

STEP_SECONDS = 0.25  # how long a step that reads prompts should take at most
FEWEST = 32  # rows: with fewer, the time of a step is mostly spent on reading the weights
SAMPLES = 3  # of the last steps, the fastest counts: a single step may be slow for other reasons


class Pace:
    """The rule: a step may have `rows` rows of prompts.

    - If a step with this many rows could take twice as long within the limit, the number is doubled.
    - If the last three such steps all exceeded the limit, the number is halved.
    - It is never less than 32, and never more than the program takes.

    Twice the rows never take more than twice the time, so the number does not go back and forth. It has few
    values, so that the program meets few shapes.
    """

    def __init__(self, most: int, seconds: float = STEP_SECONDS) -> None:
        self._most = most
        self._limit = seconds
        self._seconds: deque[float] = deque(maxlen=SAMPLES)
        self.rows = min(FEWEST, most)

    def note(self, rows: int, seconds: float) -> None:
        """Record the duration of a step with this many rows of prompts."""
        if rows < self.rows:
            return
        self._seconds.append(seconds)
        fastest = min(self._seconds)
        if 2 * fastest <= self._limit:
            self._change(min(2 * self.rows, self._most))
        elif fastest > self._limit and len(self._seconds) == SAMPLES:
            self._change(max(self.rows // 2, min(FEWEST, self._most)))

    def _change(self, rows: int) -> None:
        if rows != self.rows:
            self.rows = rows
            self._seconds.clear()
