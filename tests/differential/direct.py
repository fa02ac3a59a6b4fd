"""Write a record as a `.pte` file of kernel calls, without an exporter. Each tensor has memory of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pteron.pte import program_chunks, schema
from pteron.pte.schema import ScalarType, TensorShapeDynamism
from tests.differential.fills import tensor_of
from tests.differential.kernels import SYM_SIZE, WITHOUT_RESULT, Kernel, kernel
from tests.differential.record import Record, Shape, Source, Step

CODES = {
    "float32": ScalarType.FLOAT,
    "float16": ScalarType.HALF,
    "bfloat16": ScalarType.BFLOAT16,
    "float64": ScalarType.DOUBLE,
    "int8": ScalarType.CHAR,
    "uint8": ScalarType.BYTE,
    "int32": ScalarType.INT,
    "int64": ScalarType.LONG,
    "bool": ScalarType.BOOL,
    "complex64": ScalarType.COMPLEX_FLOAT,
}
INT = "int"
SHARED_MEMORY = 2  # the memory of the buffers that methods share
Bounds = Mapping[str, tuple[str, Shape]]  # the dtype and the largest shape of every computed value


def written(methods: Mapping[str, tuple[Record, Bounds, Sequence[str]]]) -> bytes:
    """A file with these methods: a record, the bounds of its values, and the names of its outputs.

    Methods share the buffers that have the same name.
    """
    data = _Data(len(methods) > 1)
    plans = tuple(_Method(name, *method, data).plan() for name, method in methods.items())
    program = schema.Program(
        execution_plan=plans,
        constant_segment=schema.SubsegmentOffsets(0, tuple(data.constants.offsets)),
        mutable_data_segments=(schema.SubsegmentOffsets(1, tuple(data.buffers.offsets)),),
    )
    return b"".join(program_chunks(program, (bytes(data.constants.data), bytes(data.buffers.data))))


class _Segment:
    """Tensors one after another. Entry 0 means: no data."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets = [0]

    def add(self, data: bytes) -> int:
        self.data.extend(bytes(-len(self.data) % 16))
        self.offsets.append(len(self.data))
        self.data.extend(data)
        return len(self.offsets) - 1


class _Data:
    """`shared` says where each buffer is that all methods share, and how many bytes these have."""

    def __init__(self, is_shared: bool) -> None:
        self.constants, self.buffers = _Segment(), _Segment()
        self.is_shared = is_shared
        self.shared: dict[str, tuple[int, schema.AllocationDetails]] = {}
        self.shared_bytes = 0

    def share(self, name: str, data: bytes) -> tuple[int, schema.AllocationDetails]:
        if name not in self.shared:
            room = schema.AllocationDetails(SHARED_MEMORY, self.shared_bytes)
            self.shared[name] = (self.buffers.add(data), room)
            self.shared_bytes += len(data) + -len(data) % 16
        return self.shared[name]


class _Method:
    def __init__(
        self, name: str, record: Record, bounds: Bounds, outputs: Sequence[str], data: _Data
    ) -> None:
        self._name, self._record, self._bounds, self._outputs = name, record, bounds, outputs
        self._data = data
        self._values: list[schema.EValue] = []
        self._operators: list[schema.Operator] = []
        self._named: dict[str, int] = {}
        self._memory = 0

    def plan(self) -> schema.ExecutionPlan:
        for name, source in self._record.sources.items():
            self._named[name] = self._source(name, source)
        calls = [schema.Instruction(self._call(step)) for step in self._record.steps]
        shared = [self._data.shared_bytes] if self._data.is_shared else []
        return schema.ExecutionPlan(
            self._name,
            container_meta_type=schema.ContainerMetadata("", ""),
            values=tuple(self._values),
            inputs=tuple(self._named[name] for name in self._record.inputs),
            outputs=tuple(self._named[name] for name in self._outputs),
            chains=(schema.Chain(instructions=tuple(calls)),),
            operators=tuple(self._operators),
            non_const_buffer_sizes=(0, max(self._memory, 16), *shared),
        )

    def _add(self, value: Any) -> int:
        self._values.append(schema.EValue(value))
        return len(self._values) - 1

    # -- tensors --------------------------------------------------------------------------------

    def _source(self, name: str, source: Source) -> int:
        if source.kind == "input":
            return self._planned(source.dtype, source.bound)
        data = raw_bytes(tensor_of(source, 0))
        if source.kind == "constant":
            return self._add(self._tensor(source, data_buffer_idx=self._data.constants.add(data)))
        info = schema.ExtraTensorInfo(mutable_data_segments_idx=0)
        if self._data.is_shared:
            place, room = self._data.share(name, data)
        else:
            place, room = self._data.buffers.add(data), self._room(data)
        return self._add(
            self._tensor(source, data_buffer_idx=place, allocation_info=room, extra_tensor_info=info)
        )

    def _tensor(self, source: Source, **how: Any) -> schema.Tensor:
        order = tuple(range(len(source.bound)))
        return schema.Tensor(CODES[source.dtype], sizes=source.bound, dim_order=order, **how)

    def _room(self, data: bytes | int) -> schema.AllocationDetails:
        nbytes = data if isinstance(data, int) else len(data)
        place = schema.AllocationDetails(1, self._memory)
        self._memory += nbytes + -nbytes % 16
        return place

    def _planned(self, dtype: str, shape: Shape) -> int:
        code = CODES[dtype]
        tensor = schema.Tensor(
            code,
            sizes=shape,
            dim_order=tuple(range(len(shape))),
            shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND,
            allocation_info=self._room(max(schema.Tensor(code, sizes=shape).nbytes, 1)),
        )
        return self._add(tensor)

    # -- calls ----------------------------------------------------------------------------------

    def _call(self, step: Step) -> schema.KernelCall:
        called = kernel(step.kernel)
        args = [self._argument(step.args.get(p.name, p.default), p.type) for p in called.parameters]
        if called.in_place:
            (output,) = step.outputs
            self._named[output] = args[0]
            return schema.KernelCall(self._operator(called), (*args, args[0]))
        outs = [self._output(name) for name in step.outputs]
        if called.name in WITHOUT_RESULT:
            outs = [self._planned("float32", (1,))]
        if step.kernel == SYM_SIZE:
            return schema.KernelCall(self._operator(called), (*args, *outs))
        if called.writes_list:
            given = self._add(schema.TensorList(tuple(outs)))
            return schema.KernelCall(self._operator(called), (*args, given, given))
        returned = outs if len(outs) == 1 else [self._add(schema.TensorList(tuple(outs)))]
        return schema.KernelCall(self._operator(called), (*args, *outs, *returned))

    def _operator(self, called: Kernel) -> int:
        namespace, _, rest = called.name.partition("::")
        name, _, overload = rest.partition(".")
        operator = schema.Operator(f"{namespace}::{name}", overload)
        if operator not in self._operators:
            self._operators.append(operator)
        return self._operators.index(operator)

    def _output(self, name: str) -> int:
        dtype, shape = self._bounds[name]
        self._named[name] = self._add(schema.Int(0)) if dtype == INT else self._planned(dtype, shape)
        return self._named[name]

    def _argument(self, arg: Any, kind: str) -> int:
        if isinstance(arg, str) and arg.startswith("$"):
            return self._named[arg[1:]]
        if arg is None:
            return self._add(schema.Null())
        if isinstance(arg, (list, tuple)) or "List" in kind:
            return self._list(arg if isinstance(arg, (list, tuple)) else [arg], kind)
        if isinstance(arg, str) and arg in CODES:
            return self._add(schema.Int(CODES[arg]))
        return self._add(_number(arg, kind))

    def _list(self, items: Sequence[Any], kind: str) -> int:
        if "Optional[Tensor]" in kind:
            ids = tuple(-1 if item is None else self._named[item[1:]] for item in items)
            return self._add(schema.OptionalTensorList(ids))
        if "Tensor" in kind:
            return self._add(schema.TensorList(tuple(self._named[item[1:]] for item in items)))
        if "float" in kind:
            return self._add(schema.DoubleList(tuple(map(float, items))))
        if "bool" in kind:
            return self._add(schema.BoolList(tuple(items)))
        return self._add(schema.IntList(tuple(self._argument(item, "int") for item in items)))


def _number(arg: Any, kind: str) -> Any:
    if isinstance(arg, str):
        return schema.String(arg)
    if isinstance(arg, bool):
        return schema.Bool(arg)
    if isinstance(arg, float) or "float" in kind:
        return schema.Double(float(arg))
    return schema.Int(arg)


def raw_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
