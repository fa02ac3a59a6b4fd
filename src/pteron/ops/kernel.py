"""WGSL kernels: `.wgsl` files, and a small prelude that is generated for them.

The file declares its bindings and its `Params`. Both are read from the text and matched by name, so Python
has no second copy of them.

A binding of type `array<x_word>` accepts every dtype. The prelude then defines, for the dtype of the tensor:

    x_t, x_t4                 the type of a value (f32 or i32) and of four of them
    x_at(i) -> x_t            element i
    x_quad(i) -> x_t4         elements 4i .. 4i+3
    x_put(i, v)               store elements 4i .. 4i+3 (writable bindings)
    x_set(i, v)               store element i (writable bindings of four-byte types)

If `wide`, accessors move 64 bits at a time, where a kernel reads or writes quads. This is for drivers that
run shaders on the CPU, whose loads and stores cost the same for 32 and for 64 bits. WGSL has no 64-bit types;
naga has them as an extension. A file may have two forms of some lines: between `//#narrow` and `//#wide`, and
between `//#wide` and `//#end wide`.

A word contains four elements of a narrow type (two elements of float16 or bfloat16). A quad is always made of
whole words, so no two invocations write to the same word. float16 and bfloat16 are computed as float32, which
needs no device feature. Stores round to the nearest value, and ties to even. A binding of another type
accepts only the dtype of that type.

Functions of lib/math.wgsl are added to every kernel that calls them. `//#include file` inserts a file of
lib/, and `//#include file x` a file that is written for any binding, with x instead of NAME. Lines between
`//#if FLAG` and `//#end` are kept if the define FLAG is true; they may declare bindings. Lines between
`//#each i N` and `//#end i` are repeated for every i below N, which is a define or a number. This is an
unrolled loop.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import count
from types import MappingProxyType

from pteron.ir.dispatch import WORKGROUP, Define
from pteron.ir.dtypes import DType

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<(storage|uniform)(?:,\s*(read|read_write))?>\s*(\w+)\s*:\s*([^;]+);"
)
_PARAMS = re.compile(r"struct\s+Params\s*\{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*:\s*(\w+(?:<\w+(?:<\w+>, \d+)?>)?)\s*,")
_NUMBER = re.compile(r"@binding\(\d+\)")
_IF = re.compile(r"^//#if (\w+)\n(.*?)^//#end\n", re.MULTILINE | re.DOTALL)
_EACH = re.compile(r"^//#each (\w+) (\w+)\n(.*?)^//#end \1\n", re.MULTILINE | re.DOTALL)
_FORMS = re.compile(r"^//#narrow\n(.*?)^//#wide\n(.*?)^//#end wide\n", re.MULTILINE | re.DOTALL)
_HALF = re.compile(r"\bf16\b")
_INCLUDE = re.compile(r"^//#include (\w+)(?: (\w+))?$", re.MULTILINE)
_FUNCTION = re.compile(r"^fn (\w+)\([^\n]*\}$|^fn (\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"\b(\w+)\(")
_COMMENT = re.compile(r"//.*")
LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127

# For each parameter type: the number of its four-byte scalars, and their `struct` code.
_FIELD_TYPES = {
    "u32": (1, "I"),
    "i32": (1, "i"),
    "f32": (1, "f"),
    "vec3<u32>": (3, "I"),
    "vec3<i32>": (3, "i"),
    "array<vec4<u32>, 2>": (8, "I"),
    "array<vec4<i32>, 2>": (8, "i"),
    "array<vec4<u32>, 4>": (16, "I"),
}

# The dtypes of array types that are not generic.
_LITERAL = {
    "f32": DType.float32,
    "vec4<f32>": DType.float32,
    "f16": DType.float16,
    "vec4<f16>": DType.float16,
    "i32": DType.int32,
    "vec4<i32>": DType.int32,
}


@dataclass(frozen=True, slots=True)
class Binding:
    index: int
    name: str
    kind: str  # "read", "read_write" or "uniform"
    type: str

    @property
    def is_generic(self) -> bool:
        return self.type == f"array<{self.name}_word>"

    def accepts(self, dtype: DType) -> bool:
        if self.is_generic:
            return True
        literal = _LITERAL.get(self.type.removeprefix("array<").removesuffix(">"))
        return literal is None or literal == dtype


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter: its offset in `Params`, the number of its scalars, and their `struct` code."""

    name: str
    offset: int
    count: int
    code: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One `.wgsl` file, parsed."""

    name: str
    text: str
    bindings: tuple[Binding, ...]
    fields: tuple[Field, ...]  # of Params

    @property
    def params_nbytes(self) -> int:
        last = self.fields[-1]
        return -(-(last.offset + 4 * last.count) // 16) * 16

    def binding(self, name: str) -> Binding:
        return next(b for b in self.bindings if b.name == name)

    def pack(self, params: Mapping[str, int | float | tuple[int, ...]]) -> bytes:
        """The bytes of `Params`. The names must be exactly those of the fields."""
        if params.keys() != {field.name for field in self.fields}:
            names = [field.name for field in self.fields]
            raise KeyError(f"kernel {self.name}: Params has {names}, but the rule gave {list(params)}")
        out = bytearray(self.params_nbytes)
        for field in self.fields:
            value = params[field.name]
            items = value if isinstance(value, tuple) else (value,)
            numbers = [_as_float32(item) if field.code == "f" else int(item) for item in items]
            try:
                struct.pack_into(f"<{len(items)}{field.code}", out, field.offset, *numbers)
            except (struct.error, OverflowError) as error:
                raise ValueError(f"kernel {self.name}: parameter {field.name} = {value}: {error}") from None
        return bytes(out)


def _as_float32(number: float) -> float:
    """A number that a float32 can hold. As in torch, larger numbers become infinite."""
    return math.copysign(math.inf, number) if abs(number) > LARGEST_FLOAT32 else number


def load(name: str, defines: Mapping[str, Define] = MappingProxyType({})) -> Kernel:
    """A kernel with the lines between `//#if NAME` and `//#end` whose define NAME is true."""
    return _parse(name, frozenset(flag for flag in _flags(name) if defines.get(flag)))


@cache
def _flags(name: str) -> frozenset[str]:
    return frozenset(flag for flag, _ in _IF.findall(_read(name)))


@cache
def _parse(name: str, flags: frozenset[str]) -> Kernel:
    text = _IF.sub(lambda m: m.group(2) if m.group(1) in flags else "", _read(name))
    numbers = count()  # if a binding is left out, the bindings after it get lower numbers
    text = _NUMBER.sub(lambda m: f"@binding({next(numbers)})", text)
    code = _COMMENT.sub("", text)
    bindings = tuple(
        Binding(int(index), var, "uniform" if space == "uniform" else access or "read", kind.strip())
        for index, space, access, var, kind in _BINDING.findall(code)
    )
    match = _PARAMS.search(code)
    fields = _fields(name, _FIELD.findall(match.group(1) + ",")) if match else ()
    return Kernel(name, text, bindings, fields)


def _read(name: str) -> str:
    text = (resources.files(__package__) / "wgsl" / f"{name}.wgsl").read_text("utf-8")
    return _INCLUDE.sub(lambda m: _read(f"lib/{m.group(1)}").replace("NAME", m.group(2) or "NAME"), text)


def _fields(kernel: str, declared: list[tuple[str, str]]) -> tuple[Field, ...]:
    """The fields of Params with their offsets. Vectors and arrays start at a multiple of 16 bytes."""
    fields, end = [], 0
    for name, kind in declared:
        if kind not in _FIELD_TYPES:
            raise TypeError(
                f"kernel {kernel}: Params.{name} has type {kind}, not one of {', '.join(_FIELD_TYPES)}"
            )
        count, code = _FIELD_TYPES[kind]
        offset = end if count == 1 else -(-end // 16) * 16
        fields.append(Field(name, offset, count, code))
        end = offset + 4 * count
    return tuple(fields)


def source(
    kernel: Kernel,
    dtypes: Mapping[str, DType],
    defines: Mapping[str, Define],
    code: str = "",
    wide: bool = False,
) -> str:
    """The whole shader text: defines, accessors, functions, and then the file. `wide`: with 64-bit words."""
    lines = tuple([_define(name, value) for name, value in defines.items()])
    return _source(kernel, tuple(dtypes.items()), tuple(defines.items()), lines, code, wide)


# A model has thousands of dispatches, but few different texts. The lines of the defines are part of the key,
# because 1, 1.0 and True are equal.
@lru_cache(maxsize=1024)
def _source(
    kernel: Kernel,
    dtypes: tuple[tuple[str, DType], ...],
    defines: tuple[tuple[str, Define], ...],
    lines: tuple[str, ...],
    code: str,
    wide: bool,
) -> str:
    dtype_of = dict(dtypes)
    form = _FORMS.sub(lambda forms: forms.group(2 if wide else 1), kernel.text)
    body = _unroll(form, dict(defines))
    accessors = "\n".join(
        _accessors(b, dtype_of[b.name], wide and _moves_quads(b.name, _COMMENT.sub("", code + body)))
        for b in kernel.bindings
        if b.is_generic
    )
    functions = _math_functions(accessors + code + body)
    text = "\n".join([f"const WG = {WORKGROUP}u;", *lines, accessors, functions, code, _FLAT, body])
    return f"enable f16;\n{text}" if _HALF.search(_COMMENT.sub("", text)) else text


def _unroll(text: str, defines: Mapping[str, Define]) -> str:
    """Repeat the lines between `//#each i N` and `//#end i` as a block for every i below N."""

    def blocks(match: re.Match[str]) -> str:
        variable, limit, lines = match.groups()
        place = re.compile(rf"\b{variable}\b")
        times = int(limit if limit.isdigit() else defines[limit])
        return "".join(f"{{\n{place.sub(f'{i}u', lines)}}}\n" for i in range(times))

    while _EACH.search(text):
        text = _EACH.sub(blocks, text)
    return text


def _math_functions(text: str) -> str:
    """The functions of lib/math.wgsl that a text calls, directly or through other functions."""
    known = _library()
    needed: dict[str, str] = {}
    calls = _CALL.findall(text)
    while calls:
        name = calls.pop()
        if name in known and name not in needed:
            needed[name] = known[name]
            calls += _CALL.findall(known[name])
    return "\n".join(needed.values())


@cache
def _library() -> dict[str, str]:
    return {m.group(1) or m.group(2): m.group() for m in _FUNCTION.finditer(_read("lib/math"))}


# A one-dimensional index. A large grid has two dimensions.
_FLAT = """
fn flat_index(id: vec3<u32>, groups: vec3<u32>) -> u32 { return id.x + id.y * groups.x * WG; }
fn flat_group(id: vec3<u32>, groups: vec3<u32>) -> u32 { return id.x + id.y * groups.x; }
"""


def _define(name: str, value: Define) -> str:
    if isinstance(value, bool):
        return f"const {name} = {str(value).lower()};"
    if isinstance(value, int):
        return f"const {name} = {value}u;"
    if isinstance(value, float):
        return f"const {name} = f32({value!r});"
    return f"alias {name} = {value};"


# For each dtype: the type in memory of four elements, the value type, and expressions to unpack and to pack.
_ACCESSORS = {
    DType.float32: ("vec4<f32>", "f32", "{w}", "{v}"),
    DType.int32: ("vec4<i32>", "i32", "{w}", "{v}"),
    DType.float16: (
        "vec2<u32>",
        "f32",
        "vec4<f32>(unpack2x16float({w}.x), unpack2x16float({w}.y))",
        "vec2<u32>(pack2x16float({v}.xy), pack2x16float({v}.zw))",
    ),
    DType.bfloat16: (  # the upper half of a float32
        "vec2<u32>",
        "f32",
        "bitcast<vec4<f32>>(({w}.xxyy << vec4<u32>(16u, 0u, 16u, 0u)) & vec4<u32>(0xffff0000u))",
        "bfloat16_pairs(bitcast<vec4<u32>>({v}))",
    ),
    DType.int8: (
        "u32",
        "i32",
        "(vec4<i32>(bitcast<i32>({w})) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u)",
        "dot(bitcast<vec4<u32>>({v}) & vec4<u32>(255u), vec4<u32>(1u, 256u, 65536u, 16777216u))",
    ),
    DType.uint8: (
        "u32",
        "i32",
        "vec4<i32>((vec4<u32>({w}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u))",
        "dot(bitcast<vec4<u32>>({v}) & vec4<u32>(255u), vec4<u32>(1u, 256u, 65536u, 16777216u))",
    ),
    DType.bool: (
        "u32",
        "i32",
        "vec4<i32>((vec4<u32>({w}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u))",
        "dot(vec4<u32>({v} != vec4<i32>(0)), vec4<u32>(1u, 256u, 65536u, 16777216u))",
    ),
}


# The same with 64-bit words, for the dtypes whose quads have at least 64 bits.
_UNPACKED = "vec4<u32>(vec2<u32>({w}), vec2<u32>({w} >> vec2<u32>(32u))).xzyw"
_WIDE_ACCESSORS = {
    dtype: (
        "vec2<u64>",
        value,
        f"bitcast<vec4<{value}>>({_UNPACKED})",
        "wide_pairs(bitcast<vec4<u32>>({v}))",
    )
    for dtype, value in ((DType.float32, "f32"), (DType.int32, "i32"))
}


def _moves_quads(name: str, text: str) -> bool:
    """Whether a kernel moves quads of a binding. A wide word cannot be stored in part or indexed directly."""
    calls = set(re.findall(rf"\b{name}(_quad|_put|_set|\[)", text))
    return bool(calls & {"_quad", "_put"}) and not calls & {"_set", "["}


def _accessors(binding: Binding, dtype: DType, wide: bool) -> str:
    wide = wide and dtype in _WIDE_ACCESSORS
    word, value, read, write = (_WIDE_ACCESSORS if wide else _ACCESSORS)[dtype]
    n = binding.name
    lines = [
        f"alias {n}_word = {word};",
        f"alias {n}_t = {value};",
        f"alias {n}_t4 = vec4<{value}>;",
        f"fn {n}_quad(i: u32) -> {n}_t4 {{ let w = {n}[i]; return {read.format(w='w')}; }}",
        f"fn {n}_at(i: u32) -> {n}_t {{ {_wide_element(n) if wide else _element(n, dtype)} }}",
    ]
    if binding.kind == "read_write":
        lines.append(f"fn {n}_put(i: u32, v: {n}_t4) {{ {n}[i] = {write.format(v='v')}; }}")
        if dtype.itemsize == 4 and not wide:
            lines.append(f"fn {n}_set(i: u32, v: {n}_t) {{ {n}[i >> 2u][i & 3u] = v; }}")
    return "\n".join(lines)


def _wide_element(n: str) -> str:
    return f"return bitcast<{n}_t>(u32({n}[i >> 2u][(i >> 1u) & 1u] >> (32u * (i & 1u))));"


def _element(n: str, dtype: DType) -> str:
    """Read one element, without unpacking the other elements of its quad."""
    if dtype.itemsize == 4:
        return f"return {n}[i >> 2u][i & 3u];"
    if dtype is DType.float16:
        return f"return unpack2x16float({n}[i >> 2u][(i >> 1u) & 1u])[i & 1u];"
    if dtype is DType.bfloat16:
        return f"return bitcast<f32>(({n}[i >> 2u][(i >> 1u) & 1u] >> (16u * (i & 1u))) << 16u);"
    if dtype is DType.int8:
        return f"return extractBits(bitcast<i32>({n}[i >> 2u]), (i & 3u) * 8u, 8u);"
    return f"return i32(extractBits({n}[i >> 2u], (i & 3u) * 8u, 8u));"
