"""ETDump files ("ED00"): what ExecuTorch records of its calls. Its Inspector reads them.

Fields are in slot order. The names are ExecuTorch's, except where another table has the same name.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from pteron.pte.flat import encode, i32, i64, table, u32, u64
from pteron.pte.schema import ScalarType

IDENTIFIER = b"ED00"


class DebugKind(IntEnum):
    """The kind of a recorded value."""

    NULL = 0
    TENSOR = 5


@table
class DebugTensor:
    scalar_type: Annotated[ScalarType, "b"] = ScalarType.BYTE
    sizes: tuple[i64, ...] = ()
    strides: tuple[i64, ...] = ()
    offset: i64 = 0  # in the file with the data


@table
class DebugTensorList:
    tensors: tuple[DebugTensor, ...] = ()


@table
class DebugInt:
    int_val: i64 = 0


@table
class DebugFloat:
    float_val: Annotated[float, "f"] = 0.0


@table
class DebugDouble:
    double_val: Annotated[float, "d"] = 0.0


@table
class DebugBool:
    bool_val: Annotated[bool, "?"] = False


@table
class DebugValue:
    val: Annotated[DebugKind, "b"] = DebugKind.NULL
    tensor: DebugTensor | None = None
    tensor_list: DebugTensorList | None = None
    int_value: DebugInt | None = None
    float_value: DebugFloat | None = None
    double_value: DebugDouble | None = None
    bool_value: DebugBool | None = None
    output: DebugBool | None = None  # whether it is an output of the method


@table
class DebugEvent:
    chain_index: u64 = 0
    instruction_id: i32 = -1
    debug_entry: DebugValue | None = None
    delegate_debug_id_int: i32 = -1
    delegate_debug_id_str: str | None = None
    name: str | None = None


@table
class AllocationEvent:
    allocator_id: i32 = 0
    allocation_size: u64 = 0


@table
class ProfileEvent:
    name: str | None = None
    chain_index: i32 = 0
    instruction_id: i32 = -1
    delegate_debug_id_int: i32 = -1
    delegate_debug_id_str: str | None = None
    delegate_debug_metadata: memoryview | None = None
    start_time: u64 = 0  # nanoseconds
    end_time: u64 = 0


@table
class RunEvent:
    """One of its fields is set."""

    profile_event: ProfileEvent | None = None
    allocation_event: AllocationEvent | None = None
    debug_event: DebugEvent | None = None


@table
class DebugAllocator:
    name: str = ""


@table
class RunData:
    """The events of one call."""

    name: str | None = None
    bundled_input_index: i32 = -1
    allocators: tuple[DebugAllocator, ...] = ()
    events: tuple[RunEvent, ...] = ()


@table
class ETDump:
    version: u32 = 0
    run_data: tuple[RunData, ...] = ()


def etdump_bytes(dump: ETDump) -> bytes:
    return encode(dump, identifier=IDENTIFIER, size_prefixed=True)
