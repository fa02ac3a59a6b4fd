"""Give mutants to Pteron, in child processes with limits, and count the outcomes.

    python -m tests.hostile.fuzz plan --count 100000 --state /tmp/plan.json

A mutant is made from its number alone. So a run continues at the number where the last one stopped, and a
finding can be repeated. A child tries many mutants, and prints the number of each before it begins. If the
child dies or hangs, the parent knows the mutant, and starts another child behind it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
# For one mutant, of the CPU: a busy machine does not make it a hang. Software adapters compile for long.
CPU_SECONDS = {"plan": 20, "xnnpack": 20, "inspect": 20, "ptd": 20, "gguf": 20, "run": 180}
SILENCE = 600  # seconds without a word from a child
GIGABYTES = {"plan": 3, "xnnpack": 3, "inspect": 3, "ptd": 3, "gguf": 4, "run": 12}
# Mutants for one child.
BATCH = {"plan": 10_000, "xnnpack": 10_000, "inspect": 10_000, "ptd": 10_000, "gguf": 2000, "run": 1000}


@dataclass
class Summary:
    """What became of the mutants so far."""

    target: str
    next: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    findings: dict[str, list[int]] = field(default_factory=dict)  # what went wrong, and the first mutants
    seconds: float = 0.0

    def note(self, number: int, outcome: str) -> None:
        self.next = number + 1
        kind, _, where = outcome.partition("|")
        self.outcomes[kind] = self.outcomes.get(kind, 0) + 1
        if where:
            self.findings.setdefault(f"{kind} {where}", []).append(number)
            del self.findings[f"{kind} {where}"][5:]

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in Counter(self.outcomes).most_common())
        lines = [f"{self.target}: {self.total} mutants in {self.seconds:.0f} s: {counts}"]
        return "\n".join([*lines, *(f"  {what}: mutants {where}" for what, where in self.findings.items())])


# -- the child ------------------------------------------------------------------------------------------


class Hang(BaseException):
    """A mutant takes too long. Not an Exception, so that nothing can take it for its own."""


def child(target: str, start: int, end: int) -> None:
    from pteron.errors import PteronError
    from tests.hostile.targets import TARGETS, mutant

    limit = GIGABYTES[target] << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, _hang)
    attack = TARGETS[target][1]
    mutant(target, start)  # loads the seeds
    gc.freeze()  # they stay: no need to look through them again and again
    for number in range(start, end):
        print(f"{number} begins", flush=True)
        data = mutant(target, number)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS[target])
        try:
            attack(data)
            outcome = "accepted"
        except PteronError as error:
            outcome = type(error).__name__
        except Hang as error:
            outcome = f"hang|{_where(error)}"
        except (Exception, SystemExit) as error:
            outcome = f"foreign|{type(error).__name__} {_where(error)}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(f"{number} {outcome}", flush=True)


def _hang(signal: int, frame: Any) -> None:
    raise Hang


def _where(error: BaseException) -> str:
    """The innermost place in Pteron that an error came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/pteron/" in f.filename]
    return f"{frames[-1].filename.partition('/pteron/')[2]}:{frames[-1].lineno}" if frames else "outside"


# -- the parent -----------------------------------------------------------------------------------------


def fuzz(target: str, count: int, state: Path | None = None, start: int = 0) -> Summary:
    """Try `count` more mutants. With a `state` file, go on where the last run stopped."""
    summary = Summary(target, start)
    if state is not None and state.exists():
        summary = Summary(**json.loads(state.read_text()))
    end = summary.next + count
    while summary.next < end:
        began = time.monotonic()
        _batch(summary, min(summary.next + BATCH[target], end))
        summary.seconds += time.monotonic() - began
        if state is not None:
            state.write_text(json.dumps(asdict(summary)))
    return summary


def _batch(summary: Summary, end: int) -> None:
    command = [sys.executable, "-m", "tests.hostile.fuzz", summary.target, "--child", f"{summary.next}:{end}"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "GALLIVM_PERF": "nopt",  # Mesa's software adapters compile twice as fast without optimization
    }
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        at = None
        watch = Watch(process)
        for line in process.stdout:
            number, _, outcome = line.strip().partition(" ")
            at = int(number)
            watch.touch()
            if outcome != "begins":
                summary.note(at, outcome)
        watch.stop()
        errors = process.stderr.read() if process.stderr else ""
    if process.returncode and summary.next < end:
        last = errors.strip().splitlines()[-1:] or ["no message"]
        what = f"killed by {signal.Signals(-process.returncode).name}" if process.returncode < 0 else last[0]
        if at is None:
            raise RuntimeError(f"a child failed before its first mutant: {errors}")
        summary.note(at, f"crash|{what}")


class Watch:
    """Kills a child that says nothing for too long: it hangs where no signal handler runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        import threading

        self._process = process
        self._last = time.monotonic()
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def touch(self) -> None:
        self._last = time.monotonic()

    def stop(self) -> None:
        self._done.set()

    def _run(self) -> None:
        while not self._done.wait(1):
            if time.monotonic() - self._last > SILENCE:
                self._process.kill()
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=list(GIGABYTES))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        start, _, end = options.child.partition(":")
        child(options.target, int(start), int(end))
        return
    summary = fuzz(options.target, options.count, options.state, options.start)
    print(summary)
    sys.exit(bool(summary.findings))


if __name__ == "__main__":
    main()
