"""The process of one side: it reads a command per line from stdin, and writes an answer per line.

    python -m benchmarks.worker pteron

Commands: {"do": "facts"}; {"do": "prepare", "row": name}, which also checks the result against numpy;
{"do": "run", "seconds": s} or {"do": "run", "calls": n, "live": rows}, which times whole calls. CPU time is
that of this process over all threads: on a software adapter that is the kernels, the driver and Python.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from benchmarks.rows import MODEL_ROWS, ROWS, TEXT_ROWS, Array, Row, Unsupported, arrays, expected

SLACK = 0.02  # relative to the norm of the result; enough for a side that rounds activations to 8 bits


class Side(Protocol):
    def facts(self) -> dict[str, str]: ...

    def prepare(self, row: Row, data: dict[str, Array]) -> Callable[[int | None], Array]:
        """A whole call: upload, run, read back. Its argument is the number of live rows; None: all."""


def open_side(name: str) -> Side:
    return import_module(f"benchmarks.{name}_side").Side()  # type: ignore[no-any-return]


class Worker:
    def __init__(self, side: Side) -> None:
        self._side = side
        self._call: Callable[[int | None], Array] | None = None

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        match command:
            case {"do": "facts"}:
                return self._side.facts()
            case {"do": "prepare", "row": name}:
                return self._prepare(
                    next(row for row in (*ROWS, *MODEL_ROWS, *TEXT_ROWS) if row.name == name)
                )
            case {"do": "run", "calls": calls, "live": live}:
                return self._run(lambda done, _: done >= calls, live)
            case {"do": "run", "seconds": seconds}:
                return self._run(lambda done, spent: done >= 1 and spent >= seconds, None)
        return {"error": f"unknown command {command}"}

    def _prepare(self, row: Row) -> dict[str, Any]:
        self._call = None  # free the memory of the last row
        data = arrays(row)
        self._call = self._side.prepare(row, data)
        result, wanted = self._call(None), expected(row, data)
        if wanted is not None:
            difference = np.linalg.norm(result.reshape(-1) - wanted.reshape(-1)) / np.linalg.norm(wanted)
            if not difference < SLACK:
                return {"note": f"its result is {difference:.1%} away from numpy's"}
        return {}

    def _run(self, is_enough: Callable[[int, float], bool], live: int | None) -> dict[str, Any]:
        assert self._call is not None, "prepare first"
        cpu_ms: list[float] = []
        wall_ms: list[float] = []
        begin = time.perf_counter()
        while not is_enough(len(cpu_ms), time.perf_counter() - begin):
            wall, cpu = time.perf_counter(), time.process_time()
            self._call(live)
            cpu_ms.append(1000 * (time.process_time() - cpu))
            wall_ms.append(1000 * (time.perf_counter() - wall))
        return {"cpu_ms": cpu_ms, "wall_ms": wall_ms}


def main(name: str) -> None:
    # Drivers and libraries may print to stdout, so answers go to a separate stream.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        try:
            worker = worker or Worker(open_side(name))
            answer = worker.answer(json.loads(line))
        except Exception as error:
            answer = {
                "error": f"{error}" if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
            }
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
