"""`python -m tests.zoo.child`: tries the models and modes on its standard input, one JSON line each.

Models share a process, because importing their libraries takes longer than most of them. A model that takes
too long is given up; what takes the process with it is noted by the parent.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from types import FrameType

from tests.zoo import libraries
from tests.zoo.exporter import MODES
from tests.zoo.table import table
from tests.zoo.trial import Result, try_model

MEMORY = 16 << 30  # bytes of address space
SECONDS = 420  # for a model in a mode


class TooLong(BaseException):
    """Not an Exception: nothing on the way may catch it."""


def give_up(number: int, frame: FrameType | None) -> None:
    raise TooLong


def main() -> None:
    from pteron.devices import open_device

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, give_up)
    logging.disable(logging.WARNING)  # exporters and libraries log much
    libraries.load()
    device = open_device()
    results = sys.stdout
    sys.stdout = sys.stderr  # exporters print
    for line in sys.stdin:
        name, mode = json.loads(line)
        signal.alarm(SECONDS)
        try:
            result = try_model(table()[name], MODES[mode], device)
        except TooLong:
            result = Result(name, mode, exported=f"given up after {SECONDS} s")
        except Exception as error:  # the model cannot be made, or torch cannot run it
            result = Result(name, mode, exported=f"no model: {type(error).__name__}: {str(error)[:200]}")
        signal.alarm(0)
        print(json.dumps(result.record()), file=results, flush=True)
    device.close()


if __name__ == "__main__":
    main()
