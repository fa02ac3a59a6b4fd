"""Many answers on one GPU: one thread runs them step by step."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pteron.errors import DeviceLost, InputError, PteronError
from pteron.llm import Embedder, LanguageModel, Piece
from pteron.llm.batch import Batch
from pteron.llm.decoder import Decoder
from pteron.llm.pace import Pace
from pteron.server.embedding_batch import EmbeddingBatch
from pteron.server.metrics import Meter, Metrics
from pteron.server.spot_checks import SpotChecks

log = logging.getLogger("uvicorn.error")

LEAST = 4  # answers at the same time, unless the caller wants fewer
RETRY_SECONDS = 1.0  # between two attempts to open a lost GPU again

Deliver: TypeAlias = Callable[[Piece | Exception], None]


class QueueFull(PteronError):
    """As many answers as allowed are being made, and the queue is full."""


class ModelLost(PteronError):
    """The GPU was lost. The model is being loaded again."""


class SchedulerClosed(PteronError):
    """The server is shutting down: it accepts no new tasks, and has ended this one."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class Task(Hashable, Protocol):
    """What a request wants: an `Answer`, or the vectors of many texts."""

    def cancel(self) -> None: ...


class Driver(Protocol):
    """Runs tasks step by step. A `Batch` runs answers, an `EmbeddingBatch` texts."""

    def add(self, task: Any) -> None: ...

    def remove(self, task: Any) -> None:
        """End a task, if it is still there."""

    def step(self) -> list[tuple[Any, Piece | Exception]]:
        """The new pieces. The last piece of a task has a `finish_reason`."""


def _that_fit(parallel: int, decoder: Decoder, kv_memory: int | None) -> int:
    """How many answers have room for their KV caches."""
    if decoder.slots is not None:
        parallel = min(parallel, decoder.slots)
    if kv_memory is None:
        return parallel
    if kv_memory < decoder.kv_nbytes:
        raise InputError(
            f"kv_memory is {kv_memory:,} bytes, but the KV cache of one answer takes {decoder.kv_nbytes:,}: "
            "allow more, or load the model with a shorter context"
        )
    return min(parallel, kv_memory // decoder.kv_nbytes)


@dataclass(eq=False, slots=True)
class Job:
    task: Task
    deliver: Deliver
    submitted: float = field(default_factory=time.perf_counter)
    has_begun: bool = False  # a piece was delivered


class Scheduler:
    """Runs at most `parallel` requests at the same time. At most `queue` more requests wait.

    A request joins or leaves between two steps of the driver.
    """

    def __init__(
        self,
        driver: Driver,
        parallel: int = LEAST,
        queue: int = 16,
        recover: Callable[[], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`recover` brings the model back after its GPU was lost."""
        self.parallel = parallel
        self.queue = queue
        self._driver = driver
        self._waiting: deque[Job] = deque()
        self._active: dict[Task, Job] = {}
        self._recover = recover
        self._meter = meter or Metrics().of("")
        self._lost = False  # the GPU went away, and the model is not back yet
        self._closed = False  # it accepts no new tasks
        self._ending = False  # it ends those that it has
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="pteron scheduler", daemon=True)
        self._thread.start()

    @classmethod
    def of(
        cls,
        model: LanguageModel | Embedder,
        parallel: int | None,
        queue: int,
        meter: Meter | None = None,
        kv_memory: int | None = None,
        verify: float = 0.0,
    ) -> Scheduler:
        """For a language model or an embedder. `kv_memory`: the most bytes for KV caches.

        verify: the share of a language model's calls of which a node is computed again.
        parallel: default: as many answers as one call of the model continues, and at least `LEAST`.
        """
        meter = meter or Metrics().of("")
        driver: Driver
        if isinstance(model, LanguageModel):
            check = SpotChecks(model.decoder, verify, meter) if verify else None
            driver = Batch(model, Pace(model.max_length), meter.step, check)
            kv_nbytes = model.decoder.kv_nbytes
            parallel = parallel or max(LEAST, model.decoder.parallel)
            parallel = _that_fit(parallel, model.decoder, kv_memory)
        else:
            # A text needs no memory of its own, so no request has to wait for another to end.
            driver, kv_nbytes = EmbeddingBatch(model, meter.step), 0
            parallel, queue = (parallel or LEAST) + queue, 0
        scheduler = cls(driver, parallel, queue, model.reload, meter)
        meter.watch(lambda: scheduler.active, lambda: scheduler.waiting, kv_nbytes, parallel)
        return scheduler

    @property
    def name(self) -> str:
        """The name of the model, as the metrics and the log say it."""
        return self._meter.model

    @property
    def active(self) -> int:
        return len(self._active)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def check_room(self, more: int = 0) -> None:
        """Raise QueueFull if there is no room for a job after `more` others."""
        if self.active + self.waiting + more >= self.parallel + self.queue:
            self._meter.refused()
            raise QueueFull(
                f"{self.parallel} answers are being made and {self.queue} are waiting: try again later"
            )

    def submit(self, task: Task, deliver: Deliver) -> Job:
        """Run a task. The scheduler's thread calls `deliver` with its pieces or its error."""
        with self._changed:
            if self._closed:
                raise SchedulerClosed()
            if self._lost:
                raise ModelLost("the GPU was lost and is being opened again: try again in a few seconds")
            self.check_room()
            job = Job(task, deliver)
            self._waiting.append(job)
            self._changed.notify()
            return job

    def cancel(self, job: Job) -> None:
        """Stop a job in any state. A waiting job delivers nothing more."""
        job.task.cancel()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def drain(self) -> None:
        """Accept no new tasks, and finish all jobs."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def stop(self) -> None:
        """Accept no new tasks, and end all jobs: incomplete answers get SchedulerClosed."""
        with self._changed:
            self._closed = self._ending = True
            for job in self._waiting:
                job.deliver(SchedulerClosed())
            self._waiting.clear()
            for task in self._active:
                task.cancel()
            self._changed.notify()

    def close(self) -> None:
        """Stop, and wait until all jobs have ended."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while self._admit():
            for task, item in self._step():
                self._pass_on(self._active[task], item)
            if self._lost:
                self._bring_back()

    def _admit(self) -> bool:
        """Begin jobs that wait, if there is room. Waits for the first one. False: the scheduler is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._active or self._waiting or self._closed)
            while self._waiting and len(self._active) < self.parallel:
                self._begin(self._waiting.popleft())
            return bool(self._active or self._waiting)

    def _begin(self, job: Job) -> None:
        self._active[job.task] = job
        try:
            self._driver.add(job.task)
        except PteronError as error:
            self._pass_on(job, error)

    def _step(self) -> list[tuple[Task, Piece | Exception]]:
        """A step of the driver. A fault of the driver ends the jobs, never the thread."""
        try:
            return self._driver.step()
        except Exception as error:
            return [(task, error) for task in self._active]

    def _pass_on(self, job: Job, item: Piece | Exception) -> None:
        self._lost = self._lost or isinstance(item, DeviceLost)
        is_first, job.has_begun = not job.has_begun, True
        if is_first and not isinstance(item, Exception):
            self._meter.first_piece(time.perf_counter() - job.submitted)
        self._meter.piece(item)
        if isinstance(item, Exception) or item.finish_reason:
            with self._changed:
                del self._active[job.task]
            self._driver.remove(job.task)
            if self._ending and not isinstance(item, Exception) and item.finish_reason == "cancelled":
                item = SchedulerClosed()
        try:
            job.deliver(item)
        except Exception:  # nobody is there to hear it
            job.task.cancel()

    def _bring_back(self) -> None:
        """Open the GPU again, as often as it takes. Answers that were being made are lost."""
        with self._changed:
            jobs = [*self._active.values(), *self._waiting]
            self._active.clear()
            self._waiting.clear()
        for job in jobs:
            with suppress(Exception):  # the client has left
                job.deliver(ModelLost("the GPU was lost during the answer: ask again"))
            self._driver.remove(job.task)
        while self._lost and not self._closed and self._recover is not None:
            try:
                self._recover()
                self._lost = False
            except PteronError as error:
                log.warning("the GPU cannot be opened again yet: %s", error)
                with self._changed:
                    self._changed.wait(RETRY_SECONDS)
