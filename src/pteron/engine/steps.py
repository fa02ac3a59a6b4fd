"""A call node by node: the kernels of each node, with their grids, parameters and buffers.

`Method.prepare` gives a `Call`, and its `steps` are the nodes. Profiles, `pteron.verify` and other tools are
made of this. It works on every device, also on one that only records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pteron.compiler.ir.dispatch import Grid, Number
from pteron.compiler.ir.values import Node, Shape, Tensor
from pteron.compiler.ir.work import Cost, cost
from pteron.engine.devices.device import Buffer, Command

if TYPE_CHECKING:
    from pteron.engine.call import Call
    from pteron.engine.executor import Launch


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel that a method may use.

    Attributes:
        node: The number of the node that uses it.
        op: The node's operator.
        route: The implementation of the operator.
        kernel: The name of the kernel: its file in `ops/wgsl`.
        text: The shader text.
    """

    node: int
    op: str
    route: str
    kernel: str
    text: str


@dataclass(frozen=True, slots=True)
class BufferBinding:
    """What a kernel sees at one of its bindings.

    Attributes:
        name: Its name in the shader.
        kind: `"read"`, `"read_write"` or `"uniform"`.
        role: `"parameters"`, an `"integer"` that may change without a new plan, a `"constant"`, a `"state"`
            (KV cache), an `"activation"`, or `"scratch"` memory of the node.
        buffer: The buffer on the device.
        offset: Where the binding begins in the buffer.
        nbytes: How long it is.
        contents: The bytes of a uniform binding, else None.
    """

    name: str
    kind: str
    role: str
    buffer: Buffer
    offset: int
    nbytes: int
    contents: bytes | None


class KernelDispatch:
    """One dispatch of a step.

    Attributes:
        kernel: The name of the kernel: its file in `ops/wgsl`.
        text: The shader text, as the device gets it.
        entry: The entry point in this text.
        grid: The number of workgroups in each dimension.
        parameters: The numbers in the shader's `Params`, by name.
        params: The same as bytes.
    """

    entry = "main"

    def __init__(self, call: Call, launch: Launch) -> None:
        self._call, self._launch = call, launch
        self.kernel: str = launch.site.kernel.name
        self.text: str = launch.site.shader.text
        self.grid: Grid = launch.grid
        self.parameters: Mapping[str, Number] = launch.values
        self.params: bytes = launch.params

    @property
    def bindings(self) -> tuple[BufferBinding, ...]:
        """What is bound, in the order of the shader's bindings."""
        site, executor, state = self._launch.site, self._call.executor, self._call.state
        return tuple(
            BufferBinding(binding.name, binding.kind, *executor.bound(site, source, state))
            for binding, source in zip(site.kernel.bindings, site.sources, strict=True)
        )

    @property
    def command(self) -> Command:
        """The dispatch as `Device.submit` takes it."""
        return self._call.executor.command(self._launch, self._call.state)


class Step:
    """One node of a call.

    Attributes:
        node: The node of `method.graph`: its number in program order, its operator, its arguments.
        route: The implementation of the operator that runs at these shapes.
        dispatches: Its kernels. None for nodes without work: views, integers, empty tensors.
    """

    def __init__(self, call: Call, node: Node) -> None:
        plan = call.executor.live.plans[node.index]
        assert plan is not None
        self._call = call
        self.node = node
        self.route = plan.route
        self.dispatches = tuple(KernelDispatch(call, launch) for launch in call.executor.launches(node.index))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels."""
        return tuple(dispatch.kernel for dispatch in self.dispatches)

    @property
    def commands(self) -> list[Command]:
        """Its dispatches as `Device.submit` takes them."""
        return [dispatch.command for dispatch in self.dispatches]

    @property
    def reads(self) -> tuple[Shape, ...]:
        """The live shapes of the tensors that it reads."""
        return tuple(self._call.shape(value) for value in self.node.reads if isinstance(value, Tensor))

    @property
    def writes(self) -> tuple[Shape, ...]:
        """The live shapes of the tensors that it writes."""
        return tuple(self._call.shape(value) for value in self.node.writes if isinstance(value, Tensor))

    @property
    def cost(self) -> Cost:
        """The operations and the bytes that it needs at these shapes."""
        return cost(self.node, self._call.executor.live.current)

    def run(self) -> None:
        """Run the node. Results are right if all steps run once, in order."""
        self._call.run_step(self.commands)
