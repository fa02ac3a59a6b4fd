"""Building a Vulkan delegate graph ("VK00") op by op, as ExecuTorch's exporter would write it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.pte import vulkan
from pteron.pte.vulkan import NAMED_OFFSET, OperatorCall, VkBytes, VkDataType, VkGraph, VkTensor, VkValue

DTYPES = {
    "float32": VkDataType.FLOAT32,
    "float16": VkDataType.FLOAT16,
    "bfloat16": VkDataType.BFLOAT16,
    "bool": VkDataType.BOOL,
    "uint8": VkDataType.UINT8,
    "int32": VkDataType.INT32,
}
PREPACK = "et_vk.prepack.default"
PRIVATE = -1  # a mem_obj_id: memory of its own


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor or a SymInt of the graph; `shape` is the largest one."""

    id: int
    shape: tuple[int, ...] = ()


class DelegateBuilder:
    """A graph under construction, and the constants it refers to by the hash of their bytes."""

    def __init__(self) -> None:
        self.data: dict[str, memoryview] = {}
        self._values: list[Any] = []
        self._chain: list[OperatorCall] = []
        self._constants: list[VkBytes] = []
        self._scalars: dict[tuple[type, Any], int] = {}
        self._shared: dict[bytes, Value] = {}
        self._inputs: list[int] = []

    def input(self, shape: Sequence[int], dtype: str) -> Value:
        value = self.tensor(shape, dtype)
        self._inputs.append(value.id)
        return value

    def tensor(self, shape: Sequence[int], dtype: str = "float32", constant: int = -1) -> Value:
        kind = DTYPES[dtype]
        dims = tuple(int(n) for n in shape)
        return Value(self._add(VkTensor(kind, dims, constant, PRIVATE, staging_datatype=kind)), dims)

    def constant(self, array: NDArray[Any], dtype: str | None = None) -> Value:
        """A constant. Equal bytes are stored once, yet each call makes a value that can be mutated apart.

        dtype: what the elements are, where numpy has no name for it.
        """
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        key = hashlib.sha256(data).hexdigest()
        self.data.setdefault(key, data)
        self._constants.append(VkBytes(NAMED_OFFSET, data.nbytes, key))
        return self.tensor(array.shape, dtype or array.dtype.name, len(self._constants) - 1)

    def shared_constant(self, array: NDArray[Any]) -> Value:
        """A constant that nothing mutates: the same value for equal bytes."""
        key = array.tobytes()
        if key not in self._shared:
            self._shared[key] = self.constant(array)
        return self._shared[key]

    def symint(self, op: str, *args: Any) -> Value:
        return self._call(op, args, Value(self._add(vulkan.SymInt(0))))

    def call(self, op: str, *args: Any, shape: Sequence[int], dtype: str = "float32") -> Value:
        """Call an operator with all arguments of its schema; its result has at most `shape`."""
        return self._call(op, args, self.tensor(shape, dtype))

    def call_pair(
        self,
        op: str,
        *args: Any,
        shapes: tuple[Sequence[int], Sequence[int]],
        dtypes: tuple[str, str] = ("float32", "float32"),
    ) -> tuple[Value, Value]:
        """Call an operator that has two results."""
        first, second = (self.tensor(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
        self._call_list(op, args, [first, second])
        return first, second

    def call_first(self, op: str, *args: Any, shapes: Sequence[Sequence[int]]) -> Value:
        """Call an operator that has several results, of which only the first is used."""
        results = [self.tensor(shape) for shape in shapes]
        self._call_list(op, args, results)
        return results[0]

    def _call_list(self, op: str, args: Sequence[Any], results: Sequence[Value]) -> None:
        self._call(op, args, Value(self._add(vulkan.ValueList(tuple(result.id for result in results)))))

    def finish(self, *outputs: Value) -> VkGraph:
        graph = VkGraph(
            version="0",
            chain=tuple(self._chain),
            values=tuple(VkValue(value) for value in self._values),
            input_ids=tuple(self._inputs),
            output_ids=tuple(value.id for value in outputs),
            constants=tuple(self._constants),
        )
        return share_memory(graph)

    def _call(self, op: str, args: Sequence[Any], result: Value) -> Value:
        ids = (*(self._argument(arg) for arg in args), result.id)
        self._chain.append(OperatorCall(len(self._chain), op, ids))
        return result

    def _argument(self, arg: Any) -> int:
        if isinstance(arg, Value):
            return arg.id
        if isinstance(arg, (list, tuple)):
            return self._list(arg)
        key = (type(arg), arg)
        if key not in self._scalars:
            self._scalars[key] = self._add(_scalar(arg))
        return self._scalars[key]

    def _list(self, items: Sequence[Any]) -> int:
        if all(isinstance(item, int) for item in items):
            return self._add(vulkan.IntList(tuple(items)))
        return self._add(vulkan.ValueList(tuple(self._argument(item) for item in items)))

    def _add(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1


def _scalar(value: object) -> Any:
    match value:
        case None:
            return vulkan.Null()
        case bool():
            return vulkan.Bool(value)
        case int():
            return vulkan.Int(value)
        case float():
            return vulkan.Double(value)
        case str():
            return vulkan.String(value)
    raise TypeError(f"{value!r} is not a scalar")


def share_memory(graph: VkGraph) -> VkGraph:
    """Let tensors whose lives do not overlap share memory.

    Inputs, outputs and what is prepacked, which lives from one run to the next, keep memory of their own.
    """
    last_use = {
        value: number for number, call in enumerate(graph.chain) for value in _tensors_in(graph, call)
    }
    prepacked = (call.args[-1] for call in graph.chain if call.name == PREPACK)
    private = {*graph.input_ids, *graph.output_ids, *prepacked}
    objects: dict[int, int] = {}
    free: dict[int, list[int]] = {}  # by size in elements
    for number, call in enumerate(graph.chain):
        tensors = dict.fromkeys(_tensors_in(graph, call))
        for value in tensors:
            if value not in objects and value not in private:
                objects[value] = (free.get(_size(graph, value)) or [len(objects)]).pop()
        for value in tensors:
            if last_use[value] == number and value in objects:
                free.setdefault(_size(graph, value), []).append(objects[value])
    values = list(graph.values)
    for value, memory in objects.items():
        values[value] = VkValue(replace(_tensor(graph, value), mem_obj_id=memory))
    return replace(graph, values=tuple(values))


def _tensors_in(graph: VkGraph, call: OperatorCall) -> list[int]:
    """The tensors that a call reads or writes, constants left out."""
    found: list[int] = []
    for value in call.args:
        match graph.values[value].value:
            case vulkan.ValueList(items):
                found.extend(item for item in items if isinstance(graph.values[item].value, VkTensor))
            case VkTensor(constant_id=constant) if constant < 0:
                found.append(value)
    return found


def _tensor(graph: VkGraph, value: int) -> VkTensor:
    tensor = graph.values[value].value
    assert isinstance(tensor, VkTensor)
    return tensor


def _size(graph: VkGraph, value: int) -> int:
    return prod(_tensor(graph, value).dims)
