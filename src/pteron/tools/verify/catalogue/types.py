"""Groups of element types, for the entries of the catalogue."""

from pteron.compiler.ir.dtypes import DType

FLOATS = tuple(dtype for dtype in DType if dtype.is_float)
INTEGERS = (DType.int32, DType.int64, DType.int8, DType.uint8)
NUMBERS = (*FLOATS, *INTEGERS)
WHOLE = (*INTEGERS, DType.bool)
ANY = (*NUMBERS, DType.bool)
SUMMED = (*FLOATS, DType.int32, DType.int64)  # what sums and scatters take
COMPLEX = (DType.complex64,)
BYTES = (DType.int8, DType.uint8)
F32, F16, INT8, INT64 = (DType.float32,), (DType.float16,), (DType.int8,), (DType.int64,)
HALVES = (*F32, *F16)
