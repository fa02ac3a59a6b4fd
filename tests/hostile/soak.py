"""A long life: many threads, interrupts, conversations and loads. Counts what was wrong and what memory grew.

make soak                                   the numbers of docs/reliability.md
python -m tests.hostile.soak --scale 0.01   a short one
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pteron
import pteron.llm
from tests.support import DATA

SIZES = (128, 1, 64, 5)


@dataclass
class Outcome:
    name: str
    done: int
    wrong: int
    grown_mib: float  # resident memory, after a first part that fills caches
    grown_gpu_nbytes: int
    seconds: float


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Soak:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.device = pteron.open_device()
        self.outcomes: list[Outcome] = []

    def count(self, full: int) -> int:
        return max(4, round(full * self.scale))

    def run(self, name: str, total: int, part: Callable[[int], tuple[int, int]]) -> None:
        """Run a quarter, look at memory, run the rest, look again. `part` gives (done, wrong)."""
        begin = time.monotonic()
        done, wrong = part(total // 4)
        gc.collect()
        memory, on_gpu = resident_mib(), self.device.allocated_nbytes
        more = part(total - total // 4)
        gc.collect()
        self.outcomes.append(
            Outcome(
                name,
                done + more[0],
                wrong + more[1],
                round(resident_mib() - memory, 1),
                self.device.allocated_nbytes - on_gpu,
                round(time.monotonic() - begin, 1),
            )
        )
        print(self.outcomes[-1], flush=True)

    # -- what is done ---------------------------------------------------------------------------

    def threads(self) -> None:
        """64 threads call one method at changing shapes."""
        with pteron.load(DATA / "dyn_rms.pte", device=self.device) as program:
            method = program.method()
            given = {size: inputs_at(method, size) for size in SIZES}
            wanted = {size: method(*inputs) for size, inputs in given.items()}

            def calls(seed: int, count: int) -> int:
                order = random.Random(seed)
                sizes = [order.choice(SIZES) for _ in range(count)]
                return sum(not np.array_equal(method(*given[size]), wanted[size]) for size in sizes)

            def part(count: int) -> tuple[int, int]:
                each = max(1, count // 64)
                with ThreadPoolExecutor(64) as pool:
                    return 64 * each, sum(pool.map(calls, range(64), [each] * 64))

            self.run("calls from 64 threads", self.count(64 * 200), part)

    def interrupts(self) -> None:
        """Real signals at random times in calls; every answer in between must be right."""
        with pteron.load(DATA / "dyn_rms.pte", device=self.device) as program:
            method = program.method()
            given = {size: inputs_at(method, size) for size in SIZES}
            wanted = {size: method(*inputs) for size, inputs in given.items()}

            def part(count: int) -> tuple[int, int]:
                return interrupted_calls(method, given, wanted, count)

            self.run("interrupts", self.count(1000), part)

    def conversations(self, model: Path) -> None:
        """Conversations, each with a KV cache of its own, several at a time."""
        with pteron.llm.load(model, device=self.device) as llm:
            prompts = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9]]
            wanted = [llm.generate(p, max_new_tokens=4, temperature=0).tokens for p in prompts]
            step = np.array([[1]]), np.array([0])
            _both = [llm.decoder.method.submit(*step) for _ in range(2)]  # makes the second staging buffer

            def talk(number: int) -> bool:
                session, prompt = llm.session(), prompts[number % 3]
                try:
                    tokens = session.generate(prompt, max_new_tokens=4, temperature=0).tokens
                    return tokens != wanted[number % 3]
                finally:
                    session.close()

            def part(count: int) -> tuple[int, int]:
                with ThreadPoolExecutor(4) as pool:
                    return count, sum(pool.map(talk, range(count)))

            self.run("conversations", self.count(300), part)

    def loads(self) -> None:
        """Load, call and close."""

        def part(count: int) -> tuple[int, int]:
            wrong = 0
            for number in range(count):
                with pteron.load(DATA / "dyn_rms.pte", device=self.device) as program:
                    method = program.method()
                    got = method(*inputs_at(method, SIZES[number % 4]))
                    wrong += not np.isfinite(got).all()
            return count, wrong

        self.run("loads", self.count(200), part)


def inputs_at(method: Any, size: int) -> list[Any]:
    draw = np.random.default_rng(size).standard_normal
    return [draw(info.shape_at(size)).astype(info.dtype) for info in method.inputs]


def interrupted_calls(method: Any, given: Any, wanted: Any, count: int) -> tuple[int, int]:
    """Call until so many interrupts have come; how many, and how many answers were wrong."""
    stop = threading.Event()
    in_call = False

    def interrupt(*_: Any) -> None:
        """Like Python's own handler, but only during a call: this function must not be interrupted."""
        nonlocal in_call
        if in_call:
            in_call = False
            raise KeyboardInterrupt

    def shoot() -> None:
        order = random.Random(count)
        while not stop.wait(order.uniform(0.0002, 0.004)):
            os.kill(os.getpid(), signal.SIGINT)

    shooter = threading.Thread(target=shoot, daemon=True)
    interrupted = wrong = 0
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        shooter.start()
        while interrupted < count:
            size = random.choice(SIZES)
            try:
                in_call = True
                got = method(*given[size])
                in_call = False
                wrong += not np.array_equal(got, wanted[size])
            except KeyboardInterrupt:
                interrupted += 1
        stop.set()
        shooter.join()
    finally:
        signal.signal(signal.SIGINT, before)
    for size in SIZES:
        wrong += not np.array_equal(method(*given[size]), wanted[size])
    return interrupted, wrong


def soak(scale: float, model: Path) -> list[Outcome]:
    run = Soak(scale)
    run.threads()
    run.interrupts()
    run.conversations(model)
    run.loads()
    run.device.close()
    return run.outcomes


def main() -> None:
    from tests.llm import tiny_llama

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--scale", type=float, default=1.0, help="1: the whole; 0.01: a hundredth")
    arguments.add_argument("--model", type=Path, help="a language model; a tiny one is made when left out")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.model is None:
            tiny_llama.make(Path(folder))
        outcomes = soak(given.scale, given.model or Path(folder) / "model.pte")
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    if any(outcome.wrong for outcome in outcomes):
        raise SystemExit("there were wrong answers")


if __name__ == "__main__":
    main()
