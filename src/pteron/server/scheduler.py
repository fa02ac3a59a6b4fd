"""Many answers on one GPU: one thread takes a step of each in turn."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pteron.errors import DeviceLost, PteronError
from pteron.llm import Piece

log = logging.getLogger("uvicorn.error")

RETRY_SECONDS = 1.0  # between two attempts to open a lost GPU again

Deliver: TypeAlias = Callable[[Piece | Exception], None]


class QueueFull(PteronError):
    """All sessions are busy, and the queue is full."""


class ModelLost(PteronError):
    """The GPU was lost. The model is being loaded again."""


class SchedulerClosed(PteronError):
    """The server is shutting down: it accepts no new work, and ends the running answers."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class StepwiseWork(Protocol):
    """What can be done step by step: a `Stream`, or the vectors of many texts."""

    def step(self) -> Piece | None:
        """The last piece has a `finish_reason`."""

    def cancel(self) -> None: ...

    def close(self) -> bool: ...


@dataclass(eq=False, slots=True)
class Job:
    stream: StepwiseWork
    deliver: Deliver


class Scheduler:
    """At most `sessions` answers at a time, and `queue` more that wait. No long prompt stops the rest."""

    def __init__(self, sessions: int = 4, queue: int = 16, recover: Callable[[], None] | None = None) -> None:
        """`recover` brings the model back after its GPU was lost."""
        self.sessions = sessions
        self.queue = queue
        self._waiting: deque[Job] = deque()
        self._active: list[Job] = []
        self._recover = recover
        self._lost = False  # the GPU went away, and the model is not back yet
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="pteron scheduler", daemon=True)
        self._thread.start()

    @property
    def active(self) -> int:
        return len(self._active)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def check_room(self, more: int = 0) -> None:
        """Raise QueueFull if there is no room for a job after `more` others."""
        if self.active + self.waiting + more >= self.sessions + self.queue:
            raise QueueFull(
                f"{self.sessions} answers are being made and {self.queue} are waiting: try again later"
            )

    def submit(self, stream: StepwiseWork, deliver: Deliver) -> Job:
        """Run a stream. The scheduler's thread calls `deliver` with its pieces or its error."""
        with self._changed:
            if self._closed:
                raise SchedulerClosed()
            if self._lost:
                raise ModelLost("the GPU was lost and is being opened again: try again in a few seconds")
            self.check_room()
            job = Job(stream, deliver)
            self._waiting.append(job)
            self._changed.notify()
            return job

    def cancel(self, job: Job) -> None:
        """Stop a job in any state. A waiting job delivers nothing more."""
        job.stream.cancel()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def stop(self) -> None:
        """Accept no new work, and end all jobs: incomplete answers get SchedulerClosed."""
        with self._changed:
            self._closed = True
            for job in self._waiting:
                job.deliver(SchedulerClosed())
            self._waiting.clear()
            for job in self._active:
                job.stream.cancel()
            self._changed.notify()

    def close(self) -> None:
        """Stop, and wait until all jobs have ended."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._next_jobs():
            for job in jobs:
                if self._is_finished(job):
                    job.stream.close()
                    with self._changed:
                        self._active.remove(job)
            if self._lost:
                self._bring_back()

    def _bring_back(self) -> None:
        """Open the GPU again, as often as it takes. Answers that were being made are lost."""
        with self._changed:
            jobs = [*self._active, *self._waiting]
            self._active.clear()
            self._waiting.clear()
        for job in jobs:
            with suppress(Exception):  # the client has left
                job.deliver(ModelLost("the GPU was lost during the answer: ask again"))
            job.stream.close()
        while self._lost and not self._closed and self._recover is not None:
            try:
                self._recover()
                self._lost = False
            except PteronError as error:
                log.warning("the GPU cannot be opened again yet: %s", error)
                with self._changed:
                    self._changed.wait(RETRY_SECONDS)

    def _next_jobs(self) -> list[Job]:
        """Those to take a step of; waits until there are some. None when the scheduler has closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._active or self._waiting or self._closed)
            while self._waiting and len(self._active) < self.sessions:
                self._active.append(self._waiting.popleft())
            return list(self._active)

    def _is_finished(self, job: Job) -> bool:
        """Run one step of a job. An error ends the job, never the thread."""
        try:
            piece = job.stream.step()
            if piece is None:
                return False
            was_cut = self._closed and piece.finish_reason == "cancelled"
            job.deliver(SchedulerClosed() if was_cut else piece)
            return piece.finish_reason is not None
        except Exception as error:
            self._lost = self._lost or isinstance(error, DeviceLost)
            try:
                job.deliver(error)
            except Exception:  # nobody is there to hear it
                return True
            return True
