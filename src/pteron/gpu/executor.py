"""A method on the GPU: buffers, bind groups and parameters made once, commands that follow the plan.

Every route of every node is compiled and bound at load. A call writes the parameters that changed
in one go, encodes the commands of the present plan, and submits once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.gpu.weights import Weights, upload_constant
from pteron.gpu.wgpu.device import Device
from pteron.gpu.wgpu.public import Command, Copy
from pteron.ir.dispatch import Dispatch, Grid, Scratch
from pteron.ir.live import LiveInt, LiveTensor
from pteron.ir.values import Graph, Tensor, ValueId
from pteron.ops import kernel as kernels
from pteron.plan.memory import Layout, MemoryPlan, aligned, plan_memory
from pteron.plan.routes import Choice
from pteron.plan.sweep import Change, LiveGraph, NodePlan

SYMINT_SLOT = 16

# What a binding refers to: ("uniform", offset, nbytes), or ("storage", a tensor's id or (node, scratch)).
Source: TypeAlias = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Site:
    """A place in the program where a kernel may run: one dispatch of one route of one node."""

    label: str
    kernel: kernels.Kernel
    text: str
    pipeline: Any
    slot: int  # offset of its Params in the parameter buffer
    sources: list[Source]
    uses_state: bool
    group: Any = None  # the bind group, unless it depends on the state


@dataclass(slots=True)
class Launch:
    """A dispatch of a plan, ready: where, with which parameters, how large."""

    site: Site
    params: bytes
    grid: Grid


class State:
    """Mutable tensors (KV caches), and the bind groups that refer to them. One per conversation."""

    def __init__(self, executor: Executor) -> None:
        device = executor.device
        self.executor = executor
        self.buffers: dict[ValueId, Any] = {
            t.id: device.storage(aligned(t.max_nbytes), f"state {t.name}") for t in executor.graph.states
        }
        self.nbytes = sum(aligned(t.max_nbytes) for t in executor.graph.states)
        self.groups = {site: executor.bind(site, self) for site in executor.sites if site.uses_state}
        self.reset()

    def reset(self) -> None:
        """Back to the contents that the file gives, or to zeros."""
        device = self.executor.device
        with device.lock:
            for tensor in self.executor.graph.states:
                if tensor.constant is None:
                    device.clear(self.buffers[tensor.id])
                else:
                    upload_constant(device, tensor, self.buffers[tensor.id])

    def close(self) -> None:
        for buffer in self.buffers.values():
            self.executor.device.free(buffer)
        self.buffers.clear()
        self.groups.clear()


class Executor:
    """Everything a method keeps on the GPU."""

    def __init__(self, graph: Graph, device: Device, weights: Weights, choice: Choice | None = None) -> None:
        self.graph = graph
        self.device = device
        self.weights = weights
        self.layout = Layout.of(graph)
        self.live = LiveGraph(graph, self.layout, device.route_features, choice)
        self.memory: MemoryPlan = plan_memory(graph, self.layout, self.live.scratch())
        self._states = {self.layout.storage[t.id] for t in graph.states}
        self._constants = {t.id: weights.buffer(t) for t in self._used_constants()}
        self.activations = [device.storage(n, f"activation {i}") for i, n in enumerate(self.memory.buffers)]
        self._slots = SlotAllocator(device.uniform_alignment)
        self.sites: list[Site] = []
        self._site_of: dict[tuple[int, str, int], Site] = {}
        self._make_sites()
        self._shadow = bytearray(max(self._slots.end, SYMINT_SLOT))
        self.params = device.uniform(len(self._shadow), "parameters")
        for site in self.sites:
            if not site.uses_state:
                site.group = self.bind(site, None)
        self.staging_nbytes = sum(
            aligned(p.value.max_nbytes) for p in graph.outputs if isinstance(p.value, Tensor)
        )
        self.staging = (
            device.staging(max(self.staging_nbytes, 16), "staging") if self.staging_nbytes else None
        )
        self._commands: tuple[State, list[Command]] | None = None
        self._shown: list[list[tuple[Site, Grid]]] = [
            [] for _ in graph.nodes
        ]  # what `_commands` says, by node

    # -- load -----------------------------------------------------------------------------------

    def _used_constants(self) -> list[Tensor]:
        states = {t.id for t in self.graph.states}
        used = {v.id for node in self.graph.nodes for v in node.reads}
        used |= {p.value.id for p in self.graph.outputs if isinstance(p.value, Tensor)}
        return [
            t for t in self.graph.tensors() if t.constant is not None and t.id in used and t.id not in states
        ]

    def _make_sites(self) -> None:
        for node, routes in zip(self.graph.nodes, self.live.routes, strict=True):
            for route in routes:
                for number, dispatch in enumerate(route.dispatches):
                    site = self._make_site(dispatch, node.index, f"{node.label}, {route.name}")
                    self.sites.append(site)
                    self._site_of[node.index, route.name, number] = site

    def _make_site(self, dispatch: Dispatch, node: int, label: str) -> Site:
        kernel = kernels.load(dispatch.kernel, dispatch.defines)
        text = shader_text(kernel, dispatch)
        pipeline = self.device.pipeline(text, kernel.name, [b.kind for b in kernel.bindings])
        slot = self._slots.take(kernel.params_nbytes)
        sources: list[Source] = []
        uses_state = False
        for binding in kernel.bindings:
            if binding.name == "p":
                sources.append(("uniform", slot, kernel.params_nbytes))
                continue
            bound = dispatch.bindings[binding.name]
            if isinstance(bound, LiveInt):
                sources.append(("uniform", self._slots.integer(bound), SYMINT_SLOT))
            elif isinstance(bound, LiveTensor):
                storage = self.layout.storage[bound.tensor.id]
                uses_state |= storage in self._states
                sources.append(("storage", storage))
            else:
                sources.append(("storage", (node, bound.name)))
        return Site(label, kernel, text, pipeline, slot, sources, uses_state)

    def bind(self, site: Site, state: State | None) -> Any:
        def resolve(source: Source) -> tuple[Any, int, int]:
            if source[0] == "uniform":
                return (self.params, source[1], source[2])
            buffer = self._buffer_of(source[1], state)
            return (buffer, 0, buffer.size)

        return self.device.bind_group(site.pipeline, map(resolve, site.sources), site.label)

    def _buffer_of(self, storage: Any, state: State | None) -> Any:
        if storage in self._constants:
            return self._constants[storage]
        if state is not None and storage in state.buffers:
            return state.buffers[storage]
        return self.activations[self.memory.placement[storage]]

    def buffer(self, tensor: Tensor, state: State) -> Any:
        """The buffer that holds a tensor, for uploads and read-backs."""
        return self._buffer_of(self.layout.storage[tensor.id], state)

    def _write_constants_slots(self) -> None:
        for value, offset in self._slots.constants.items():
            struct.pack_into("<i", self._shadow, offset, value)

    def warm_up(self, state: State) -> None:
        """Run every pipeline once on no work: drivers finish compiling at a shader's first use.

        The parameters are still all zero, and a kernel that is given zero elements writes nothing.
        """
        once = {site.pipeline: state.groups[site] if site.uses_state else site.group for site in self.sites}
        if once:
            self.device.run(
                (), [self.device.command(pipeline, group, (1, 1, 1)) for pipeline, group in once.items()], ()
            )
        self.device.finish()

    def start(self) -> None:
        """Write the parameters of the plan at the largest shape."""
        self._write_constants_slots()
        # Sizes at the largest shape are known already, and a first call there changes nothing.
        symints = {ValueId(i): live for i, live in enumerate(self.live.live) if isinstance(live, int)}
        self.apply(Change([i for i, plan in enumerate(self.live.plans) if plan is not None], symints))
        self.device.write(self.params, 0, self._shadow)

    # -- calls ----------------------------------------------------------------------------------

    def apply(self, change: Change) -> tuple[int, int]:
        """Take over what a sweep changed; the span of parameter bytes that must be written."""
        first, last = len(self._shadow), 0
        shadow = self._shadow
        for value, new in change.symints.items():
            offset = self._slots.symints.get(value)
            if offset is not None:
                struct.pack_into("<i", shadow, offset, new)
                first, last = min(first, offset), max(last, offset + 4)
        for index in change.nodes:
            plan = self.live.plans[index]
            assert plan is not None
            launches = self._launches(index, plan)
            for launch in launches:
                start, end = launch.site.slot, launch.site.slot + len(launch.params)
                shadow[start:end] = launch.params
                first, last = min(first, start), max(last, end)
            # Parameters alone, such as where a slice begins, change no command.
            shown = [(launch.site, launch.grid) for launch in launches]
            if shown != self._shown[index]:
                self._shown[index] = shown
                self._commands = None
        return first, last

    def _launches(self, node: int, plan: NodePlan) -> list[Launch]:
        if plan.compiled is None:
            plan.compiled = [
                self._launch(node, plan.route, number, dispatch)
                for number, dispatch in enumerate(plan.dispatches)
            ]
        return plan.compiled  # type: ignore[no-any-return]

    def _launch(self, node: int, route: str, number: int, dispatch: Dispatch) -> Launch:
        site = self._site_of[node, route, number]
        if dispatch.packed is None:  # nodes that are planned alike share their dispatches
            dispatch.packed = site.kernel.pack(dispatch.params)
        return Launch(site, dispatch.packed, dispatch.grid)

    def commands(self, state: State) -> list[Command]:
        """The present plan as a flat list, kept until the plan or the state changes."""
        if self._commands is None or self._commands[0] is not state:
            flat = [self._command(launch, state) for _, launch in self.launched()]
            self._commands = (state, flat)
        return self._commands[1]

    def launched(self) -> Iterator[tuple[int, Launch]]:
        """What the present plan runs, in order, each with its node's index."""
        for index, plan in enumerate(self.live.plans):
            assert plan is not None
            for launch in self._launches(index, plan):
                if 0 not in launch.grid:  # a zero-sized tensor is no work
                    yield index, launch

    def _command(self, launch: Launch, state: State) -> Command:
        site = launch.site
        return self.device.command(
            site.pipeline, state.groups[site] if site.uses_state else site.group, launch.grid
        )

    def write_params(self, span: tuple[int, int]) -> None:
        first, last = span
        if first < last:
            first &= ~3
            self.device.write(self.params, first, memoryview(self._shadow)[first:last])

    def run(self, state: State, before: Sequence[Copy], after: Sequence[Copy]) -> None:
        commands = self.commands(state)
        if before or commands or after:  # a method that only returns constants has nothing for the GPU
            self.device.run(before, commands, after)

    def close(self) -> None:
        for buffer in (*self.activations, self.params, *([self.staging] if self.staging else [])):
            self.device.free(buffer)
        self.activations.clear()


class SlotAllocator:
    """Aligned places in the one parameter buffer: SymInts, constant integers, and kernels' Params."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.end = 0
        self.symints: dict[ValueId, int] = {}
        self.constants: dict[int, int] = {}

    def take(self, nbytes: int) -> int:
        offset = self.end
        self.end = offset + aligned(nbytes, self.alignment)
        return offset

    def integer(self, live: LiveInt) -> int:
        """The 16-byte slot of an integer that kernels read."""
        if live.symint is not None:
            table: dict[Any, int] = self.symints
            key: Any = live.symint.id
        else:
            table, key = self.constants, live.constant
        if key not in table:
            table[key] = self.take(SYMINT_SLOT)
        return table[key]


def shader_text(kernel: kernels.Kernel, dispatch: Dispatch) -> str:
    """The text that a dispatch compiles to. Bindings must match the file's, by name and type."""
    names = {b.name for b in kernel.bindings} - {"p"}
    if names != dispatch.bindings.keys():
        raise KeyError(
            f"kernel {kernel.name}: bindings are {sorted(names)}, the rule gave {sorted(dispatch.bindings)}"
        )
    dtypes = {}
    for name, bound in dispatch.bindings.items():
        if isinstance(bound, (LiveTensor, Scratch)):
            if not kernel.binding(name).accepts(bound.dtype):
                raise TypeError(f"kernel {kernel.name}: binding {name} cannot hold {bound.dtype}")
            dtypes[name] = bound.dtype
    return kernels.source(kernel, dtypes, dispatch.defines, dispatch.code)
