"""Run kernels once without work, because some drivers finish the compilation of a kernel at its first use.

All parameters are zero, and a kernel with zero elements writes nothing. Activations are bound as in a call:
between two calls, nobody needs their contents. States (KV caches) are not bound, but small buffers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pteron.compiler.plan.memory import aligned
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import BindGroup, Buffer
from pteron.engine.params import INTEGER_NBYTES

if TYPE_CHECKING:
    from pteron.engine.executor import Executor, Site, Source

STAND_IN_NBYTES = 1 << 16


class WarmUp:
    """The buffers for such runs. All of them are made at once, so a run allocates nothing."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._device = executor.device
        params = max((site.kernel.params_nbytes for site in executor.sites), default=0)
        states = max((sum(map(executor.is_state, site.sources)) for site in executor.sites), default=0)
        with Buffers(self._device) as owned:
            self._owned = owned
            self._zeros = owned.uniform(aligned(max(params, INTEGER_NBYTES)), "zero parameters")
            self._stand_ins = [owned.storage(STAND_IN_NBYTES, f"stand-in {i}") for i in range(states)]

    def run(self, sites: Iterable[Site], done: Callable[[int], None] | None = None) -> None:
        """Submit one run of each site's kernel. `done` is told how many are finished."""
        groups = [(site.pipeline, self._bind(site)) for site in sites]  # alive until they are submitted
        self._device.warm_up([self._device.command(*pair, (1, 1, 1)) for pair in groups], done)

    def _bind(self, site: Site) -> BindGroup:
        stand_ins = iter(self._stand_ins)

        def resolve(source: Source) -> tuple[Buffer, int, int]:
            if source[0] == "uniform":
                return (self._zeros, 0, source[2])
            is_state = self._executor.is_state(source)
            buffer = next(stand_ins) if is_state else self._executor.storage_buffer(source[1])
            return (buffer, 0, buffer.size)

        return self._device.bind_group(site.pipeline, list(map(resolve, site.sources)), site.label)

    def close(self) -> None:
        self._owned.free()
