"""`python -m tests.zoo.child`: tries the models and modes on its standard input, one JSON line each.

Models share a process, because importing their libraries takes longer than most of them. Lines of the same
model that follow each other share its exported programs. A model that takes too long is given up. If the
process dies, the parent notes it.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pteron.engine.devices.opening import Device, open_device
from tests.zoo import libraries, speed
from tests.zoo.exporter import MODES
from tests.zoo.results import NOT_EXPORTED, TOO_LONG, Result
from tests.zoo.table import table
from tests.zoo.trial import Trial, reason

MEMORY = 16 << 30  # bytes of address space
SECONDS = 300  # of CPU, for a model in a mode


class TooLong(BaseException):
    """Not an Exception: no handler in between may catch it."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.WARNING)  # exporters and libraries log much
    libraries.load()
    speed.up()
    device = open_device()
    results = sys.stdout
    sys.stdout = sys.stderr  # exporters print
    pairs = map(json.loads, sys.stdin)
    for name, group in itertools.groupby(pairs, key=lambda pair: str(pair[0])):
        for result in try_modes(name, [mode for _, mode in group], device):
            print(json.dumps(result.record()), file=results, flush=True)
    device.close()


def try_modes(name: str, modes: list[str], device: Device) -> Iterator[Result]:
    try:
        trial = Trial(table()[name], device)
    except Exception as error:  # this version of the library cannot make the model
        yield from (Result(name, mode, NOT_EXPORTED, f"no model: {reason(error)}") for mode in modes)
        return
    for mode in modes:
        try:
            with time_limit():
                result = trial.run(MODES[mode])
        except TooLong:
            result = Result(name, mode, TOO_LONG, f"given up after {SECONDS} s of CPU")
        yield result
        gc.collect()  # between the modes only: see `speed.up`


@contextmanager
def time_limit() -> Iterator[None]:
    """CPU time, so that the result does not depend on what else the machine does."""
    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def give_up(number: int, frame: FrameType | None) -> None:
    raise TooLong


if __name__ == "__main__":
    main()
