"""Run untrusted work in a child process with limits.

Chat templates and tokenizers come with model files. A template, or a regular expression of a tokenizer, can
loop for days. Both hold Python's lock, so no thread can stop them. A child process can be stopped. It stays
alive between calls: a call costs 0.1 ms.

    worker = Worker(script)
    worker.prepare("tokenizer", definition=text)      # repeated automatically when a new child is started
    worker.call("encode", blame="the tokenizer of m.pte", text="hello")

The time limit works on every system. The memory limit needs Linux.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import IO, Any, TypeAlias

from pteron.errors import InputError, PteronError

# A request, and where its reply goes (None: the process ended). None: there are no more requests.
Requests: TypeAlias = "queue.SimpleQueue[tuple[bytes, queue.SimpleQueue[bytes | None]] | None]"
LENGTH = struct.Struct("<Q")  # the length of the JSON text that follows, in both directions


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one call."""

    seconds: float = 10.0
    nbytes: int = 2 << 30


class OutOfBounds(PteronError):
    """The work needed too much time or memory, or its process ended. The next call works."""


class WorkFailed(Exception):
    """The work raised an error. The message is its text."""


class Worker:
    """A child process that runs `script`, one call at a time. It is started at first use."""

    def __init__(self, script: Path, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._script = script
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._prepared: list[tuple[str, dict[str, Any]]] = []

    def start(self) -> None:
        """Start the child now, so that the first call need not wait for it."""
        with self._lock:
            self._running_child()

    def prepare(self, task: str, *, blame: str, **arguments: Any) -> Any:
        """A call that later calls depend on. A new child repeats it."""
        with self._lock:
            answer = self._ask(self._running_child(), task, blame, arguments)
            self._prepared.append((task, arguments))
        return answer

    def call(self, task: str, *, blame: str, **arguments: Any) -> Any:
        """The result of a function in the script. `blame` names the file or text to report in errors."""
        with self._lock:
            return self._ask(self._running_child(), task, blame, arguments)

    def close(self) -> None:
        with self._lock:
            if self._child:
                self._child.end()
            self._child = None

    def _running_child(self) -> Child:
        if self._child is None or not self._child.is_alive:
            self._child = Child(self._script, self.bounds)
            for task, arguments in self._prepared:
                self._ask(self._child, task, task, arguments)
        return self._child

    def _ask(self, child: Child, task: str, blame: str, arguments: dict[str, Any]) -> Any:
        try:
            request = json.dumps([task, arguments]).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{blame} takes plain data (text, numbers, lists, dictionaries): {error}"
            ) from error
        try:
            reply = child.ask(request, self.bounds.seconds)
        except queue.Empty:
            child.end()
            raise OutOfBounds(f"{blame} took more than {self.bounds.seconds:g} s and was stopped") from None
        if reply is None:
            raise OutOfBounds(f"{blame} ended its process ({child.end()})")
        outcome, value = json.loads(reply)
        if outcome == "memory":
            raise OutOfBounds(f"{blame} needs more than {self.bounds.nbytes >> 20} MiB of memory")
        if outcome == "error":
            raise WorkFailed(value)
        return value


class Child:
    """One process, and the thread that communicates with it, so that the caller can stop waiting."""

    def __init__(self, script: Path, bounds: Bounds) -> None:
        # A new session: Ctrl-C in a terminal goes only to the parent. -P: do not import from its folder.
        self._process = subprocess.Popen(
            [os.fsdecode(get_executable()), "-P", str(script), str(bounds.nbytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )
        self._requests: Requests = queue.SimpleQueue()
        threading.Thread(target=_talk, args=(self._process, self._requests), daemon=True).start()
        # It must be read all the time: a child that writes to a full pipe waits for ever.
        self._last_line: deque[bytes] = deque(maxlen=1)
        self._listener = threading.Thread(
            target=_keep_last, args=(self._process, self._last_line), daemon=True
        )
        self._listener.start()
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._owner, self._process, self._requests)

    @property
    def is_alive(self) -> bool:
        """False in a process that was forked after the start: it does not have the thread."""
        return self._end.alive and self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: bytes, seconds: float) -> bytes | None:
        """The reply; None if the process ended first. Raises queue.Empty after `seconds`."""
        # Each request has its own place for the reply. So an interrupted call leaves nothing for the next.
        reply: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._requests.put((request, reply))
        return reply.get(timeout=seconds)

    def end(self) -> str:
        """End the process. Returns how it ended, and the last line that it wrote to stderr."""
        self._end()
        self._listener.join(timeout=1.0)
        status = self._process.returncode
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return ": ".join([how, *(line.decode(errors="replace").strip() for line in self._last_line)])


def _talk(process: subprocess.Popen[bytes], requests: Requests) -> None:
    """Send requests to the process and receive replies, until it ends or is told to end."""
    assert process.stdin and process.stdout
    with process.stdin, process.stdout:
        while (item := requests.get()) is not None:
            request, reply = item
            try:
                write_frame(process.stdin, request)
                reply.put(read_frame(process.stdout))
            except OSError:  # the process has closed its pipe
                reply.put(None)


def _keep_last(process: subprocess.Popen[bytes], line: deque[bytes]) -> None:
    assert process.stderr
    with process.stderr:
        line.extend(process.stderr)


def _end(owner: int, process: subprocess.Popen[bytes], requests: Requests) -> None:
    if owner != os.getpid():  # a forked copy must not end the parent's process
        return
    requests.put(None)
    process.kill()
    process.wait()


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """One message; None at the end."""
    head = pipe.read(LENGTH.size)
    data = pipe.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
    return data or None
