"""Element types: the types on the GPU, and the GPU type of each host type.

WebGPU has no 64-bit types. An int64 is two words, which kernels compute with. Where one word is provably
enough (lower/narrowing.py), it is an int32. A float64 is narrowed on upload, with a range check, and widened
on read-back.
"""

from __future__ import annotations

from enum import Enum

from pteron.pte.schema import ScalarType
from pteron.pte.vulkan import VkDataType


class DType(Enum):
    """An element type as it is stored on the GPU."""

    float32 = ("float32", 4)
    float16 = ("float16", 2)
    bfloat16 = ("bfloat16", 2)
    int32 = ("int32", 4)
    int64 = ("int64", 8)  # two words, as in the host's memory
    int8 = ("int8", 1)
    uint8 = ("uint8", 1)
    bool = ("bool", 1)
    complex64 = ("complex64", 8)  # only a few operators take it: see `Builder.node`

    def __init__(self, label: str, itemsize: int) -> None:
        self.label = label
        self.itemsize = itemsize

    @property
    def is_float(self) -> bool:  # type: ignore[valid-type]
        return self in (DType.float32, DType.float16, DType.bfloat16)

    @property
    def words(self) -> str:
        """The numpy type of the stored elements. numpy has no bfloat16: its bits are a uint16."""
        return "uint16" if self is DType.bfloat16 else self.label

    def __str__(self) -> str:
        return self.label

    __repr__ = __str__


# Host element type -> (its name, which is numpy's name if numpy has the type; its type on the GPU).
HOST_TYPES: dict[int, tuple[str, DType]] = {
    ScalarType.BYTE: ("uint8", DType.uint8),
    ScalarType.CHAR: ("int8", DType.int8),
    ScalarType.SHORT: ("int16", DType.int32),
    ScalarType.INT: ("int32", DType.int32),
    ScalarType.LONG: ("int64", DType.int64),
    ScalarType.HALF: ("float16", DType.float16),
    ScalarType.FLOAT: ("float32", DType.float32),
    ScalarType.DOUBLE: ("float64", DType.float32),
    ScalarType.BOOL: ("bool", DType.bool),
    ScalarType.BFLOAT16: ("bfloat16", DType.bfloat16),
    ScalarType.COMPLEX_FLOAT: ("complex64", DType.complex64),
    ScalarType.UINT16: ("uint16", DType.int32),
    ScalarType.UINT32: ("uint32", DType.int64),
    ScalarType.UINT64: ("uint64", DType.int64),
}

DELEGATE_TYPES: dict[int, tuple[str, DType]] = {
    VkDataType.BOOL: ("bool", DType.bool),
    VkDataType.UINT8: ("uint8", DType.uint8),
    VkDataType.INT8: ("int8", DType.int8),
    VkDataType.INT32: ("int32", DType.int32),
    VkDataType.FLOAT16: ("float16", DType.float16),
    VkDataType.FLOAT32: ("float32", DType.float32),
    VkDataType.FLOAT64: ("float64", DType.float32),
    VkDataType.INT64: ("int64", DType.int64),
    VkDataType.BFLOAT16: ("bfloat16", DType.bfloat16),
}


def array_type(host_type: str) -> str:
    """The numpy dtype of the caller's arrays. numpy has no bfloat16: such values are float32 arrays."""
    return "float32" if host_type == "bfloat16" else host_type


def precision(host_type: str) -> str:
    """The type that values of a host type are computed in. There are no 64-bit floats on the GPU."""
    return "float32" if host_type == "float64" else host_type


def host_itemsize(host_type: str) -> int:
    """Bytes of one element in host memory, by the numpy name of its type: 8 for `int64`, 1 for `bool`."""
    bits = "".join(filter(str.isdigit, host_type))
    return int(bits) // 8 if bits else 1
