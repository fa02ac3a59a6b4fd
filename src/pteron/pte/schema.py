"""The tables of an ExecuTorch program ("ET12"), with ExecuTorch's names.

Fields are in slot order: never reorder them, only append. A number that Pteron uses is an enum, and an
unknown value is refused. A number that Pteron ignores is a plain integer, so that newer files still load.
"""

from enum import IntEnum
from math import prod
from typing import Annotated

from pteron.pte.flat import NO_BYTES, f64, i8, i32, i64, table, u8, u32, u64

IDENTIFIER = b"ET12"


class ScalarType(IntEnum):
    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX_HALF = 8  # these three are not in the published schema, but the exporter writes them
    COMPLEX_FLOAT = 9
    COMPLEX_DOUBLE = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _WIDER_THAN_A_BYTE.get(self, 1)


_WIDER_THAN_A_BYTE = {
    ScalarType.SHORT: 2,
    ScalarType.INT: 4,
    ScalarType.LONG: 8,
    ScalarType.HALF: 2,
    ScalarType.FLOAT: 4,
    ScalarType.DOUBLE: 8,
    ScalarType.COMPLEX_HALF: 4,
    ScalarType.COMPLEX_FLOAT: 8,
    ScalarType.COMPLEX_DOUBLE: 16,
    ScalarType.QINT32: 4,
    ScalarType.BFLOAT16: 2,
    ScalarType.BITS16: 2,
    ScalarType.UINT16: 2,
    ScalarType.UINT32: 4,
    ScalarType.UINT64: 8,
}


class TensorShapeDynamism(IntEnum):
    STATIC = 0
    DYNAMIC_BOUND = 1  # sizes are the upper bound
    DYNAMIC_UNBOUND = 2  # sizes have no meaning


class TensorDataLocation(IntEnum):
    SEGMENT = 0
    EXTERNAL = 1  # in a .ptd file, under the tensor's fully qualified name


class DataLocation(IntEnum):
    INLINE = 0
    SEGMENT = 1


@table
class ContainerMetadata:
    encoded_inp_str: str | None = None
    encoded_out_str: str | None = None


@table
class Null:
    pass


@table
class Int:
    int_val: i64 = 0


@table
class Bool:
    bool_val: bool = False


@table
class Double:
    double_val: f64 = 0.0


@table
class String:
    string_val: str = ""


@table
class IntList:
    items: tuple[i64, ...] = ()  # ids of Int values, not numbers: a kernel may change these values


@table
class DoubleList:
    items: tuple[f64, ...] = ()


@table
class BoolList:
    items: tuple[bool, ...] = ()


@table
class TensorList:
    items: tuple[i32, ...] = ()  # value ids


@table
class OptionalTensorList:
    items: tuple[i32, ...] = ()  # value ids; -1 is None


@table
class AllocationDetails:
    memory_id: u32 = 0
    memory_offset_low: u32 = 0
    memory_offset_high: u32 = 0

    @property
    def memory_offset(self) -> int:
        return self.memory_offset_high << 32 | self.memory_offset_low


@table
class ExtraTensorInfo:
    mutable_data_segments_idx: u64 = 0
    fully_qualified_name: str | None = None
    location: Annotated[TensorDataLocation, "b"] = TensorDataLocation.SEGMENT
    device_type: i8 = 0
    device_index: i8 = 0


@table
class Tensor:
    scalar_type: Annotated[ScalarType, "b"] = ScalarType.BYTE
    storage_offset: i32 = 0
    sizes: tuple[i32, ...] = ()
    dim_order: tuple[u8, ...] = ()  # outermost to innermost; empty: the order of sizes
    requires_grad: bool = False
    data_buffer_idx: u32 = 0
    allocation_info: AllocationDetails | None = None
    layout: i8 = 0
    shape_dynamism: Annotated[TensorShapeDynamism, "b"] = TensorShapeDynamism.STATIC
    extra_tensor_info: ExtraTensorInfo | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the data at `sizes`. For a tensor with an upper bound these are the largest sizes."""
        return prod(self.sizes) * self.scalar_type.nbytes


@table
class EValue:
    val: (
        Null | Int | Bool | Double | Tensor | String
        | IntList | DoubleList | BoolList | TensorList | OptionalTensorList
    )  # fmt: skip


@table
class Operator:
    name: str = ""
    overload: str = ""


@table
class KernelCall:
    op_index: i32 = 0
    args: tuple[i32, ...] = ()


@table
class DelegateCall:
    delegate_index: i32 = 0
    args: tuple[i32, ...] = ()


@table
class MoveCall:
    move_from: i32 = 0
    move_to: i32 = 0


@table
class JumpFalseCall:
    cond_value_index: i32 = 0
    destination_instruction: i32 = 0


@table
class FreeCall:
    value_index: i32 = 0


@table
class Instruction:
    instr_args: KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@table
class Frame:
    filename: str | None = None
    lineno: i32 = 0
    name: str | None = None
    context: str | None = None


@table
class FrameList:
    items: tuple[Frame, ...] = ()


@table
class BackendDelegateDataReference:
    location: Annotated[DataLocation, "b"] = DataLocation.INLINE
    index: u32 = 0


@table
class CompileSpec:
    key: str = ""
    value: memoryview = NO_BYTES


@table
class BackendDelegate:
    id: str
    processed: BackendDelegateDataReference
    compile_specs: tuple[CompileSpec, ...] = ()


@table
class Chain:
    inputs: tuple[i32, ...] = ()
    outputs: tuple[i32, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    stacktrace: tuple[FrameList, ...] | None = None


@table
class NonConstBufferDevice:
    buffer_idx: i32 = 0
    device_type: i8 = 0
    device_index: i8 = 0


@table
class ExecutionPlan:
    name: str
    container_meta_type: ContainerMetadata | None = None
    values: tuple[EValue, ...] = ()
    inputs: tuple[i32, ...] = ()
    outputs: tuple[i32, ...] = ()
    chains: tuple[Chain, ...] = ()
    operators: tuple[Operator, ...] = ()
    delegates: tuple[BackendDelegate, ...] = ()
    non_const_buffer_sizes: tuple[i64, ...] = ()
    non_const_buffer_device: tuple[NonConstBufferDevice, ...] | None = None


@table
class Buffer:
    storage: memoryview = NO_BYTES


@table
class BackendDelegateInlineData:
    data: memoryview = NO_BYTES


@table
class DataSegment:
    offset: u64 = 0
    size: u64 = 0


@table
class SubsegmentOffsets:
    segment_index: u32 = 0
    offsets: tuple[u64, ...] = ()


@table
class NamedData:
    key: str
    segment_index: u32 = 0


@table
class Program:
    version: u32 = 0
    execution_plan: tuple[ExecutionPlan, ...] = ()
    constant_buffer: tuple[Buffer, ...] = ()  # deprecated: replaced by constant_segment
    backend_delegate_data: tuple[BackendDelegateInlineData, ...] = ()
    segments: tuple[DataSegment, ...] = ()
    constant_segment: SubsegmentOffsets | None = None
    mutable_data_segments: tuple[SubsegmentOffsets, ...] = ()
    named_data: tuple[NamedData, ...] = ()
