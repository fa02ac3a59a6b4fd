"""Compile the kernels of deferred routes in a thread, while calls run with other routes.

The thread holds the device's lock only while it submits a run or changes what plans use, never while it
compiles. It gives up a turn for the lock if it is stopped, so `stop` may be called with the lock held.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pteron.compiler.plan.deferred_routes import RouteKey
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.devices.device import Device
from pteron.engine.warm_up import WarmUp
from pteron.errors import DeviceLost, DeviceTimeout, PteronError

if TYPE_CHECKING:
    from pteron.engine.executor import Site

_log = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 0.05  # at whether the thread is stopped, while another thread holds the lock


class _Stopped(Exception):
    """The thread is asked to end."""


class BackgroundCompiler:
    """The kernels of late routes, and the thread that compiles them. It is ready when all are compiled."""

    def __init__(
        self, live: LiveGraph, device: Device, idle: WarmUp, sites: Mapping[RouteKey, Sequence[Site]]
    ) -> None:
        """sites: for each late route, a site with each of its kernels."""
        self._live, self._device, self._idle, self._sites = live, device, idle, sites
        self._stopped = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pteron kernels", daemon=True)

    def start(self) -> None:
        atexit.register(self.stop)  # the process must not end inside the driver's compiler
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether all kernels are compiled."""
        return self._live.late.is_empty

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all kernels are compiled. Raises the error of a compilation."""
        if not self._ended.wait(timeout):
            raise DeviceTimeout(f"the kernels are not compiled within {timeout:g} s: raise the limit")
        if self._live.late.error is not None:
            raise self._live.late.error
        if not self.ready:
            raise PteronError("the method was closed before all its kernels were compiled")

    def stop(self) -> None:
        """End the thread. Waits for the kernel that it compiles. May be called several times."""
        self._stopped = True
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (key := self._next()) is not None:
                self._compile(key)
        except (_Stopped, DeviceLost):
            pass
        finally:
            self._ended.set()
            atexit.unregister(self.stop)

    def _next(self) -> RouteKey | None:
        with self._turn():
            key = self._live.late.next()
            if key is None:
                self._idle.close()
            return key

    def _compile(self, key: RouteKey) -> None:
        try:
            for site in self._sites[key]:
                site.shader.compile(self._device)
            with self._turn():
                self._idle.run(self._sites[key])
            self._device.wait()
        except _Stopped:
            raise
        except Exception as error:
            self._failed(key, error)
        else:
            with self._turn():
                self._plan_again(self._live.late.compiled(key))

    def _failed(self, key: RouteKey, error: Exception) -> None:
        with self._turn():
            self._plan_again(self._live.late.failed(key, error))
        _log.warning("a kernel cannot be compiled: %s: %s", self._sites[key][0].label, error)
        if isinstance(error, DeviceLost):
            raise error

    def _plan_again(self, is_wanted: bool) -> None:
        """If plans have done without the route, make them again at the next call."""
        if is_wanted:
            self._live.forget()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the device's lock. Raises `_Stopped` if the thread must end."""
        lock = self._device.lock
        while not lock.acquire(timeout=SECONDS_BETWEEN_LOOKS):
            if self._stopped:
                raise _Stopped
        try:
            if self._stopped:
                raise _Stopped
            yield
        finally:
            lock.release()
