"""Bundled programs (`.bpte`, "BP08"): a program with test cases for its methods.

Table fields are in slot order: never reorder them, only append.
"""

from typing import Annotated

from pteron.errors import FormatError
from pteron.pte.bytesource import ByteSource
from pteron.pte.flat import NO_BYTES, decode, encode, f64, i32, i64, table, u8, u32
from pteron.pte.schema import ScalarType

IDENTIFIERS = (b"BP08", b"BP06")


@table
class TestTensor:
    scalar_type: Annotated[ScalarType, "b"] = ScalarType.BYTE
    sizes: tuple[i32, ...] = ()
    data: memoryview = NO_BYTES  # dimensions in the order of `dim_order`
    dim_order: tuple[u8, ...] = ()


@table
class TestInt:
    int_val: i64 = 0


@table
class TestBool:
    bool_val: bool = False


@table
class TestDouble:
    double_val: f64 = 0.0


@table
class TestValue:
    value: TestTensor | TestInt | TestBool | TestDouble


@table
class TestCase:
    inputs: tuple[TestValue, ...] = ()
    expected_outputs: tuple[TestValue, ...] = ()


@table
class TestSuite:
    method_name: str = ""
    test_cases: tuple[TestCase, ...] = ()


@table
class BundledProgram:
    version: u32 = 0
    method_test_suites: tuple[TestSuite, ...] = ()
    program: memoryview = NO_BYTES


def is_bundle(source: ByteSource) -> bool:
    return bytes(source.region()[:8].view[4:]) in IDENTIFIERS


def read_bundle(source: ByteSource) -> BundledProgram:
    """The program in a bundle, and its test cases."""
    data = source.view
    bundle = decode(BundledProgram, data, identifier=bytes(data[4:8]), what=source.name)
    for suite in bundle.method_test_suites:
        for number, case in enumerate(suite.test_cases):
            for value in (*case.inputs, *case.expected_outputs):
                if isinstance(value.value, TestTensor):
                    _check(value.value, f"{source.name}: test {number} of {suite.method_name}")
    return bundle


def write_bundle(bundle: BundledProgram) -> bytes:
    return encode(bundle, identifier=IDENTIFIERS[0])


def _check(tensor: TestTensor, where: str) -> None:
    order = tensor.dim_order or tuple(range(len(tensor.sizes)))
    if sorted(order) != list(range(len(tensor.sizes))):
        raise FormatError(f"{where}: {list(order)} is no order of {len(tensor.sizes)} dimensions")
    nbytes = tensor.scalar_type.nbytes
    for size in tensor.sizes:
        if size < 0:
            raise FormatError(f"{where}: a size of {size}")
        nbytes *= size
    if len(tensor.data) != nbytes:
        raise FormatError(f"{where}: {len(tensor.data)} bytes for a tensor of {nbytes}")
