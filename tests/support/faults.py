"""Faults for tests: out of memory, a lost device, an interrupt at any line."""

import gc
import linecache
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pteron
from pteron.errors import OutOfMemory

OURS = str(Path(pteron.__file__).parent)


def lose(device):
    """Make the device look as after a reset of the driver."""
    device._device.destroy()


class Limited:
    """Lets a device create a number of buffers, and then no more."""

    def __init__(self, device, monkeypatch):
        self.left, self._make = None, device._buffer
        monkeypatch.setattr(device, "_buffer", self)

    def __call__(self, nbytes, usage, label):
        if self.left is not None:
            if self.left == 0:
                raise OutOfMemory(f"{label}: cannot allocate {nbytes:,} bytes")
            self.left -= 1
        return self._make(nbytes, usage, label)


class InterruptAt:
    """Raises KeyboardInterrupt at the line of Pteron's code with this number.

    A trace function sees the line of a `with` twice: on the way in, and on the way out before `__exit__`.
    CPython delivers no signal at the second place, and an exception there would skip `__exit__`. So it is
    left out.
    """

    def __init__(self, number):
        self.left = number
        self.entered = set()  # (frame, line) of `with` statements

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line" and not self._leaves_with(frame):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self._trace

    def _leaves_with(self, frame):
        place = id(frame), frame.f_lineno
        if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            return False
        if place in self.entered:
            self.entered.remove(place)
            return True
        self.entered.add(place)
        return False


def lock_is_free(device):
    """Whether another thread gets the device's lock."""
    got = []

    def take():
        if device.lock.acquire(timeout=10):
            device.lock.release()
            got.append(True)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return bool(got)


@contextmanager
def collecting_new_garbage():
    """A function that collects garbage that is made from now on: the older objects of all tests are many."""
    gc.collect()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()


def each_line(call, *ends_with, every=1):
    """Repeat a call. Each time it is interrupted one line later, until it is not interrupted.

    It is first made without an interrupt: it then has its plans, and the same lines each time.
    ends_with: errors that the call raises if it is not interrupted. every: leave out lines between.
    """
    with suppress(*ends_with):
        call()
    number, interrupted = 1 - every, True
    while interrupted:
        number, interrupted = number + every, False
        try:
            with InterruptAt(number) as interrupt:
                call()
        except KeyboardInterrupt:
            interrupted = True  # the error keeps the call alive: it is gone before the caller goes on
        except ends_with:
            pass
        assert interrupted == (interrupt.left == 0), "an interrupt was lost"
        if interrupted:
            yield number
