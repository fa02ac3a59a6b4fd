"""What mutants are made from: exported programs, a program of every operator, and a language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pteron.compiler.ir.dtypes import DELEGATE_TYPES, HOST_TYPES, DType
from pteron.compiler.ops import registered
from pteron.pte import program_chunks, schema, vulkan, write_delegate
from pteron.tools.verify.catalogue import CATALOGUE
from pteron.tools.verify.catalogue.arguments import Position, T

FOLDER = Path(__file__).parent / "seeds"
OLDER = Path(__file__).parent.parent / "data"

PLAN_TYPE = {dtype: code for code, (name, dtype) in HOST_TYPES.items() if name == dtype.label}
DELEGATE_TYPE = {dtype: code for code, (name, dtype) in DELEGATE_TYPES.items() if name == dtype.label}


def exported() -> list[bytes]:
    """Real programs, as stock ExecuTorch wrote them."""
    paths = sorted([*FOLDER.glob("*.pte"), *OLDER.glob("*.pte")])
    return [path.read_bytes() for path in paths if not path.with_suffix(".ptd").exists()]


def for_xnnpack() -> list[bytes]:
    """Programs whose delegates are for XNNPACK: floats, int8, 4 bits, and language models."""
    llamas = Path(__file__).parent.parent / "llm" / "programs"
    return [path.read_bytes() for path in sorted([*FOLDER.glob("*.xnnpack.pte"), *llamas.glob("*.pte")])]


def separate() -> tuple[bytes, bytes]:
    """A program, and the `.ptd` file that holds its weights."""
    path = FOLDER / "weights.portable.pte"
    return path.read_bytes(), path.with_suffix(".ptd").read_bytes()


def language_model() -> bytes:
    return (FOLDER / "tiny.gguf").read_bytes()


def operator_names() -> list[str]:
    return sorted(registered())


def of_every_operator() -> Iterator[bytes]:
    """For each operator that a delegate can name, a program with one call of it."""
    for name, entries in sorted(CATALOGUE.items()):
        entry, dtype = entries[0], entries[0].dtypes[0]
        args = entry.arguments(entry.sizes[0], dtype)
        if not name.startswith("pteron.") and _dtypes(args) | {dtype} <= DELEGATE_TYPE.keys():
            yield _Program(dtype, name, args).encode()


def _dtypes(arg: Any) -> set[DType]:
    if isinstance(arg, (list, tuple)):
        return set().union(*map(_dtypes, arg))
    return {arg.dtype} if isinstance(arg, T) and arg.dtype else set()


class _Program:
    """One operator in a delegate, its tensors and integers as the program's inputs and outputs."""

    def __init__(self, dtype: DType, operator: str, args: Any) -> None:
        self.dtype = dtype
        self.values: list[vulkan.VkValue] = []
        self.constants: list[vulkan.VkBytes] = []
        self.inline = b""
        self.inputs: list[int] = []
        *given, out = args
        ids = [self._add(arg, self.inputs) for arg in given]
        self.outputs: list[int] = []
        call = vulkan.OperatorCall(0, operator, (*ids, self._add(out, self.outputs)))
        self.graph = vulkan.VkGraph(
            chain=(call,),
            values=tuple(self.values),
            input_ids=tuple(self.inputs),
            output_ids=tuple(self.outputs),
            constants=tuple(self.constants),
        )

    def _add(self, arg: Any, ports: list[int]) -> int:
        if isinstance(arg, T):
            value: Any = self._tensor(arg)
        elif isinstance(arg, Position):
            value = vulkan.SymInt(0)
        elif isinstance(arg, (list, tuple)):
            if all(isinstance(item, int) for item in arg):
                value = vulkan.IntList(tuple(arg))
            else:
                value = vulkan.ValueList(tuple([self._add(item, ports) for item in arg]))
        else:
            kinds = {bool: vulkan.Bool, int: vulkan.Int, float: vulkan.Double, str: vulkan.String}
            value = vulkan.Null() if arg is None else kinds[type(arg)](arg)
        self.values.append(vulkan.VkValue(value))
        number = len(self.values) - 1
        if isinstance(arg, Position) or (isinstance(arg, T) and not arg.fixed):
            ports.append(number)
        return number

    def _tensor(self, arg: T) -> vulkan.VkTensor:
        dtype = arg.dtype or self.dtype
        constant = -1
        if arg.fixed:
            nbytes = dtype.itemsize
            for size in arg.shape:
                nbytes *= size
            constant = len(self.constants)
            self.constants.append(vulkan.VkBytes(len(self.inline), nbytes))
            self.inline += bytes(nbytes + -nbytes % 16)
        code = vulkan.VkDataType(DELEGATE_TYPE[dtype])
        return vulkan.VkTensor(code, tuple(arg.shape), constant, -1)

    def encode(self) -> bytes:
        ports = [*self.inputs, *self.outputs]
        where = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 1)
        call = schema.Instruction(schema.DelegateCall(0, tuple(range(len(ports)))))
        plan = schema.ExecutionPlan(
            name="forward",
            values=tuple([schema.EValue(self._port(self.values[number].value)) for number in ports]),
            inputs=tuple(range(len(self.inputs))),
            outputs=tuple(range(len(self.inputs), len(ports))),
            chains=(schema.Chain(instructions=(call,)),),
            delegates=(schema.BackendDelegate(vulkan.BACKEND_ID, where),),
            non_const_buffer_sizes=(0,),
        )
        program = schema.Program(execution_plan=(plan,), constant_segment=schema.SubsegmentOffsets(0, (0,)))
        segments = [b"", write_delegate(self.graph, self.inline)]
        return b"".join(map(bytes, program_chunks(program, segments)))

    def _port(self, value: Any) -> Any:
        if not isinstance(value, vulkan.VkTensor):
            return schema.Int(0)
        return schema.Tensor(
            scalar_type=schema.ScalarType(PLAN_TYPE[DELEGATE_TYPES[value.datatype][1]]),
            sizes=value.dims,
            dim_order=tuple(range(len(value.dims))),
            shape_dynamism=schema.TensorShapeDynamism.DYNAMIC_BOUND,
        )
