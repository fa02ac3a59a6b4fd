"""Programs with a single operator, built without a file, to measure a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.compiler import ops
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Constant, Graph, Port, Tensor, ValueId
from pteron.compiler.plan.sweep import plan
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.opening import Device
from pteron.engine.weight_store import WeightStore
from pteron.pte.bytesource import ByteSource


class OneOp:
    """A graph of one node on the GPU."""

    def __init__(
        self, device: Device, name: str, args: Sequence[Any], outputs: Sequence[tuple[int, ...]]
    ) -> None:
        self.device = device
        self.graph = Graph(name)
        self.inputs: list[np.ndarray[Any, Any]] = []
        bound = [self._arg(arg) for arg in args]
        outs = [self._tensor(np.empty(shape, np.float32)) for shape in outputs]
        spec = ops.known(name)
        last: Arg = tuple(outs) if spec.parameters[-1] == "outs" else outs[0]
        node = spec.node(spec.bind([*bound, last]), "benchmark")
        self.graph.nodes.append(node)
        self.graph.outputs = [Port(t.name, t, t.dtype.label, False) for t in outs]
        self.graph.states = [t for t in node.mutates if t.constant is not None]
        live = plan(self.graph, device.route_features)
        self.method = Method(live, device, WeightStore(device, convert_constant))
        self.call(self.inputs)
        with self.method.prepare(*self.inputs) as call:
            (step,) = call.steps()
            self._commands, self._read = step.commands, call.read

    def _tensor(self, array: np.ndarray[Any, Any], constant: bool = False) -> Tensor:
        index = ValueId(len(self.graph.values))
        data = Constant(ByteSource(_bytes(array)).region(), array.dtype.name) if constant else None
        tensor = Tensor(index, DType[array.dtype.name], array.shape, f"v{index}", data)
        self.graph.values.append(tensor)
        return tensor

    def _arg(self, arg: Any) -> Arg:
        if isinstance(arg, Fixed):
            return self._tensor(arg.array, constant=True)
        if isinstance(arg, np.ndarray):
            tensor = self._tensor(arg)
            self.graph.inputs.append(Port(tensor.name, tensor, arg.dtype.name, True))
            self.inputs.append(arg)
            return tensor
        return arg  # type: ignore[no-any-return]

    def call(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """A whole call: upload, run, read back. Inputs may have fewer rows than the largest shape."""
        return self.method.execute(inputs)

    def run(self) -> None:
        """Run only the kernels, on the inputs of the last call."""
        self.device.submit((), self._commands, ())
        self.device.wait()

    def result(self, number: int = 0) -> np.ndarray[Any, Any]:
        port = self.graph.outputs[number]
        assert isinstance(port.value, Tensor)
        found: np.ndarray[Any, Any] = self._read(port.value)
        return found


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(np.ascontiguousarray(array).data).cast("B")


class Fixed:
    """Marks an array as a constant of the program."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


def cpu_ms(run: Callable[[], None], seconds: float = 0.5) -> float:
    """The median process CPU time of a call over all threads, in milliseconds."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return 1000 * float(np.median(times))
