"""A program whose calls are awaited: `await program(x)`. In a browser, nothing else may wait for the GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pteron._util.browser import IN_BROWSER
from pteron.api.method import Method
from pteron.api.method_info import IOInfo, Memory
from pteron.api.program import Program
from pteron.compiler.ir.live import Live
from pteron.engine.devices.device import Device
from pteron.engine.devices.shared import borrow_async, give_back
from pteron.engine.staging import IN_FLIGHT
from pteron.engine.state import State
from pteron.pte.bytesource import when_fetched

T = TypeVar("T")


class AsyncMethod:
    """A loaded method. Await its calls. Up to two of them run at once, and others wait for their turn."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._turn = asyncio.Semaphore(IN_FLIGHT)

    async def __call__(
        self, *inputs: Any, state: State | None = None, keep_on_gpu: bool = False, **named: Any
    ) -> Any:
        """Run at the inputs' shapes.

        Args:
            *inputs: The inputs in the order of the program.
            state: The KV caches to use. Default: the method's own state.
            keep_on_gpu: Whether outputs stay on the GPU, as `GpuArray`s.
            **named: Inputs by their names in `inputs`.

        Returns:
            The output, or a tuple of several outputs.

        Raises:
            InputError: The inputs do not fit the method. The method is unchanged.
            DeviceLost: The GPU was lost. `AsyncProgram.reload` loads the program again.
        """
        outputs = await self._run(inputs, state=state, keep_on_gpu=keep_on_gpu, **named)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    async def execute(
        self,
        inputs: Sequence[Any],
        *,
        state: State | None = None,
        keep_on_gpu: bool = False,
        last_row: bool = False,
    ) -> list[Any]:
        """Run at the inputs' shapes.

        Args:
            inputs: The inputs in the order of the program.
            state: The KV caches to use. Default: the method's own state.
            keep_on_gpu: Whether outputs stay on the GPU, as `GpuArray`s.
            last_row: Whether to read back only the last row of each output (the logits of the last token).

        Returns:
            A list of outputs.
        """
        return await self._run(inputs, state=state, keep_on_gpu=keep_on_gpu, last_row=last_row)

    async def _run(self, inputs: Sequence[Any], **options: Any) -> list[Any]:
        async with self._turn:
            return await self._method.submit(*inputs, **options)

    @property
    def name(self) -> str:
        return self._method.name

    @property
    def inputs(self) -> tuple[IOInfo, ...]:
        return self._method.inputs

    @property
    def outputs(self) -> tuple[IOInfo, ...]:
        return self._method.outputs

    @property
    def live_shapes(self) -> dict[str, Live]:
        """The live shape of every input and output of the last call (SymInts: their value)."""
        return self._method.live_shapes

    @property
    def memory(self) -> Memory:
        return self._method.memory

    def why_static(self, name: str, dim: int) -> str | None:
        """Why a dimension of an input is not dynamic; None if it is."""
        return self._method.why_static(name, dim)

    def new_state(self) -> State:
        """A new mutable state (KV caches) for the same weights. Pass it to calls as `state=`."""
        return self._method.new_state()

    def reset(self) -> None:
        """Reset the default state to its initial contents."""
        self._method.reset()

    def __repr__(self) -> str:
        return repr(self._method)

    def _repr_html_(self) -> str:
        return self._method._repr_html_()


class AsyncProgram:
    """A loaded program whose calls are awaited. `pteron.load_async` makes it."""

    def __init__(self, program: Program) -> None:
        """Call `pteron.load_async` instead."""
        self._program = program
        self._methods: dict[str, AsyncMethod] = {}
        self._loading = asyncio.Lock()

    @property
    def method_names(self) -> tuple[str, ...]:
        return self._program.method_names

    @property
    def device(self) -> Device:
        return self._program.device

    async def method(self, name: str = "forward") -> AsyncMethod:
        """Load a method, or return the loaded one.

        Args:
            name: One of `method_names`.

        Returns:
            The method. The same name gives the same object every time.

        Raises:
            KeyError: The program has no such method. The message lists the methods.
        """
        async with self._loading:
            if not self._program.has_loaded(name):
                async with self._program.fetching(name):
                    method = await off_loop(lambda: self._program.begin(name))
                try:
                    await self.device.settle()
                except BaseException:
                    self._program.unload(name)
                    raise
                self._methods[name] = AsyncMethod(method)
            return self._methods[name]

    async def new_state(self) -> State:
        """Make a new mutable state (KV caches). See `Program.new_state`."""
        if not self._program.shares_state:
            await self.method("forward")
        return self._program.new_state()

    async def __call__(
        self, *inputs: Any, state: State | None = None, keep_on_gpu: bool = False, **named: Any
    ) -> Any:
        """Call the method `forward`. See `AsyncMethod.__call__`."""
        method = await self.method("forward")
        return await method(*inputs, state=state, keep_on_gpu=keep_on_gpu, **named)

    async def reload(self, device: Device | None = None) -> None:
        """Load the program again on a new device, after `DeviceLost`.

        The program and its methods stay the same objects. Their states (KV caches) are lost.

        Args:
            device: An open device, if several programs share one. Default: the same GPU is opened again.
        """
        async with self._loading:
            new = device or await self._borrow_again()
            try:
                weights = await self._program.fetch_weights(new)
            except BaseException:
                if device is None:
                    give_back(new)
                raise
            await off_loop(lambda: self._program.reload(new, weights=weights, wait=False))
            self._program.owns_device = device is None
            await new.settle()

    async def _borrow_again(self) -> Device:
        adapter = self.device.adapter
        return await (self.device.reopen_async() if adapter is None else borrow_async(adapter))

    def close(self) -> None:
        """Free everything on the GPU. A second close does nothing."""
        self._program.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._program)

    def _repr_html_(self) -> str:
        return self._program._repr_html_()


async def off_loop(function: Callable[[], T]) -> T:
    """Call a function in another thread. A browser has none, but remote files: their parts are awaited."""
    if IN_BROWSER:
        return await when_fetched(function)
    return await asyncio.to_thread(function)
