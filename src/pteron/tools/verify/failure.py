"""Save a wrong node for a bug report: its arrays, and a program with this node alone.

    node12.npz    input0, ..., expected0, ..., found0, ...
    node12.pte    pteron run node12.pte -i node12.npz

A node that a fusion pass made has no name in files. Then only the arrays are saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import HOST_TYPES, DType
from pteron.compiler.ir.values import Arg, Graph, SymInt, Tensor, ValueId
from pteron.compiler.ops import find
from pteron.pte import schema, vulkan, write_delegate, write_pte
from pteron.pte.delegate_plan import PortType, delegate_plan
from pteron.pte.schema import ScalarType
from pteron.pte.vulkan import OperatorCall, VkBytes, VkDataType, VkGraph, VkTensor, VkValue
from pteron.tools.verify.walk import NodeRun

PRIVATE = -1  # shares no memory; also: is no constant
SCALAR_TYPES = {dtype: ScalarType(kind) for kind, (name, dtype) in HOST_TYPES.items() if name == dtype.label}


def save_failure(folder: Path, graph: Graph, run: NodeRun, want: Sequence[Any]) -> Path:
    """Returns the path of the program, or of the arrays if there is no program."""
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / f"node{run.node.index}"
    program = _OneCall(graph, run)
    arrays = {f"input{number}": run.given[value] for number, value in enumerate(program.inputs)}
    arrays |= {f"expected{number}": np.asarray(array) for number, array in enumerate(want)}
    arrays |= {f"found{number}": array for number, array in enumerate(run.made)}
    np.savez(name.with_suffix(".npz"), **arrays)
    if find(run.node.name) is not run.node.op:
        return name.with_suffix(".npz")
    write_pte(name.with_suffix(".pte"), *program.finish())
    return name.with_suffix(".pte")


class _OneCall:
    """A delegate with one operator call, at the live shape. Integers that a call would give are constants."""

    def __init__(self, graph: Graph, run: NodeRun) -> None:
        self.inputs: list[ValueId] = []  # of the whole program, in the order of this one's inputs
        self._step = run
        self._states = {tensor.id for tensor in graph.states}
        self._values: list[Any] = []
        self._ids: dict[ValueId, int] = {}
        self._constants: list[bytes] = []
        self._ports: list[DType] = []
        shapes = [array.shape for array in run.made]
        self._shapes = dict(zip((t.id for t in run.results), shapes, strict=True))
        args = tuple(self._argument(arg) for arg in run.node.args)
        self._call = OperatorCall(0, run.node.name, args)

    def finish(self) -> tuple[schema.Program, list[bytes]]:
        inline = b"".join(self._constants)
        starts = np.cumsum([0, *map(len, self._constants)])
        graph = VkGraph(
            version="0",
            chain=(self._call,),
            values=tuple(VkValue(value) for value in self._values),
            input_ids=tuple(self._ids[value] for value in self.inputs),
            output_ids=tuple(self._ids[tensor.id] for tensor in self._step.results),
            constants=tuple(
                VkBytes(int(at), len(data)) for at, data in zip(starts, self._constants, strict=False)
            ),
        )
        plan = delegate_plan(
            graph,
            (PortType(SCALAR_TYPES[dtype]) for dtype in self._ports),
            (PortType(SCALAR_TYPES[tensor.dtype]) for tensor in self._step.results),
            1,
        )
        program = schema.Program(execution_plan=(plan,), constant_segment=schema.SubsegmentOffsets(0, (0,)))
        return program, [b"", write_delegate(graph, inline)]

    def _argument(self, arg: Arg) -> int:
        match arg:
            case Tensor():
                return self._tensor(arg)
            case SymInt():
                return self._add(vulkan.Int(int(self._step.given[arg.id])))
            case None:
                return self._add(vulkan.Null())
            case bool():
                return self._add(vulkan.Bool(arg))
            case int():
                return self._add(vulkan.Int(arg))
            case float():
                return self._add(vulkan.Double(arg))
            case str():
                return self._add(vulkan.String(arg))
        if all(isinstance(item, int) for item in arg):
            return self._add(vulkan.IntList(tuple(int(item) for item in arg)))  # type: ignore[arg-type]
        return self._add(vulkan.ValueList(tuple(self._argument(item) for item in arg)))

    def _tensor(self, tensor: Tensor) -> int:
        if tensor.id in self._ids:
            return self._ids[tensor.id]
        array = self._step.given.get(tensor.id)
        kind = VkDataType[tensor.dtype.name.upper()]
        constant = PRIVATE
        if array is not None and tensor.constant is not None and tensor.id not in self._states:
            constant = len(self._constants)
            data = _bytes(array, tensor.dtype)
            self._constants.append(data + bytes(-len(data) % 16))
        elif array is not None:
            self.inputs.append(tensor.id)
            self._ports.append(tensor.dtype)
        shape = self._shapes[tensor.id] if array is None else array.shape
        made = VkTensor(kind, tuple(shape), constant, PRIVATE, staging_datatype=kind)
        self._ids[tensor.id] = self._add(made)
        return self._ids[tensor.id]

    def _add(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1


def _bytes(array: np.ndarray[Any, Any], dtype: DType) -> bytes:
    if dtype is DType.bfloat16:  # read as float32, whose upper half it is
        return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return np.ascontiguousarray(array, dtype.label).tobytes()
