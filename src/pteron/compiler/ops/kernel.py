"""WGSL kernels: `.wgsl` files, and a small prelude that is generated for them.

The file declares its bindings and its `Params`. Both are read from the text and matched by name, so Python
has no second copy of them.

A binding of type `array<x_word>` accepts every dtype. The prelude then defines, for the dtype of the tensor:

    x_t, x_t4                 the type of a value (f32, i32 or vec2<u32>) and of four of them
    x_at(i) -> x_t            element i
    x_quad(i) -> x_t4         elements 4i .. 4i+3
    x_put(i, v)               store elements 4i .. 4i+3 (writable bindings)
    x_set(i, v)               store element i (writable bindings of types with whole words)

A 64-bit integer is a vec2<u32>, its low and its high word. Four of them are an array.

If `wide`, the accessors of some bindings move 64 bits at a time (see `WIDE_ACCESSORS`).

A word contains four elements of a narrow type (two elements of float16 or bfloat16). A quad is always made of
whole words, so no two invocations write to the same word. float16 and bfloat16 are computed as float32, which
needs no device feature. Stores round to the nearest value, and ties to even. A binding of another type
accepts only the dtype of that type.

Functions of lib/math.wgsl and lib/int64.wgsl are added to every kernel that calls them. For `//#include`,
`//#if` and `//#each` see preprocess.py. Conditional lines may declare bindings.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import count
from types import MappingProxyType

from pteron.compiler.ir.dispatch import WORKGROUP, Define
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.extensions import KERNEL_FOLDERS
from pteron.compiler.ops import preprocess
from pteron.compiler.ops.preprocess import Line, PreprocessorError

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<(storage|uniform)(?:,\s*(read|read_write))?>\s*(\w+)\s*:\s*([^;]+);"
)
_PARAMS_BINDING = re.compile(r"@group\(0\)\s*@binding\(\d+\)\s*var<uniform>\s*p\s*:\s*Params;")
_PARAMS = re.compile(r"struct\s+Params\s*\{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*:\s*(\w+(?:<\w+(?:<\w+>, \d+)?>)?)\s*,")
_NUMBER = re.compile(r"@binding\(\d+\)")
_HALF = re.compile(r"\bf16\b")
_FUNCTION = re.compile(r"^(?:fn|struct) (\w+)\b[^\n]*\}$|^fn (\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_BEGIN = re.compile(r"(?:fn|struct) (\w+)\b")
_PLACE = re.compile(r"(?:\bwgsl|(?<!\w)):(\d+):\d+\b")  # `wgsl:12:5` of naga, `:12:5` of Tint
_WORD = re.compile(r"\w+")
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


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One `.wgsl` file for some defines, parsed."""

    name: str
    lines: tuple[Line, ...]  # without directives
    bindings: tuple[Binding, ...]
    fields: tuple[Field, ...]  # of Params
    is_wide: bool = False

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

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


def load(name: str, defines: Mapping[str, Define] = MappingProxyType({}), wide: bool = False) -> Kernel:
    """The kernel of a file for these defines. `wide`: with 64-bit words."""
    return _load(name, tuple(defines.items()), wide)


@lru_cache(maxsize=1024)
def _load(name: str, defines: tuple[tuple[str, Define], ...], wide: bool) -> Kernel:
    try:
        return _parse(name, preprocess.expand(_lines(name), {**dict(defines), "WIDE": wide}), wide)
    except PreprocessorError as error:
        raise PreprocessorError(f"kernel {name}: {error}") from None


@cache
def _lines(file: str) -> list[Line]:
    return preprocess.read(file, _read)


def _parse(name: str, lines: list[Line], wide: bool = False) -> Kernel:
    numbers = count()  # if a binding is left out, the bindings after it get lower numbers
    lines = [
        line._replace(text=_NUMBER.sub(lambda m: f"@binding({next(numbers)})", line.text)) for line in lines
    ]
    code = _COMMENT.sub("", "\n".join(line.text for line in lines))
    bindings = tuple(
        Binding(int(index), var, "uniform" if space == "uniform" else access or "read", kind.strip())
        for index, space, access, var, kind in _BINDING.findall(code)
    )
    match = _PARAMS.search(code)
    fields = _fields(name, _FIELD.findall(match.group(1) + ",")) if match else ()
    return Kernel(name, tuple(lines), bindings, fields, wide)


def names() -> list[str]:
    """All kernels."""
    found = (path.name for folder in _folders() for path in folder.iterdir())
    return sorted(name.removesuffix(".wgsl") for name in found if name.endswith(".wgsl"))


def _read(file: str) -> str:
    *others, last = (folder / f"{file}.wgsl" for folder in _folders())
    return next((path for path in others if path.is_file()), last).read_text("utf-8")


def _folders() -> list[Traversable]:
    return [resources.files(package) / "wgsl" for package in (__package__, *KERNEL_FOLDERS)]


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


def source(kernel: Kernel, dtypes: Mapping[str, DType], defines: Mapping[str, Define], code: str = "") -> str:
    """The whole shader text: defines, accessors, functions, and then the file."""
    lines = tuple([(name, value, _define(name, value)) for name, value in defines.items()])
    return _source(kernel, tuple(dtypes.items()), lines, code)


# A model has thousands of dispatches, but few different texts. The lines of the defines are part of the key,
# because 1, 1.0 and True are equal.
@lru_cache(maxsize=1024)
def _source(
    kernel: Kernel,
    dtypes: tuple[tuple[str, DType], ...],
    defines: tuple[tuple[str, Define, str], ...],
    code: str,
) -> str:
    dtype_of = dict(dtypes)
    body = kernel.text
    plain = _COMMENT.sub("", code + body)
    accessors = "\n".join(
        (kernel.is_wide and _wide_accessors(b, dtype_of[b.name], plain)) or _accessors(b, dtype_of[b.name])
        for b in kernel.bindings
        if b.is_generic
    )
    functions = _math_functions(accessors + code + body)
    values = " ".join(value for _, value, _ in defines if isinstance(value, str))
    used = set(_WORD.findall(_COMMENT.sub("", f"{values} {accessors} {code} {body}")))
    lines = [line for name, _, line in defines if name in used]
    text = "\n".join([f"const WG = {WORKGROUP}u;", *lines, accessors, functions, code, _FLAT, body])
    return f"enable f16;\n{text}" if _HALF.search(_COMMENT.sub("", text)) else text


def with_params(kernel: Kernel, text: str, params: bytes) -> str:
    """The text with the values of `Params` in it. The driver's compiler then knows them.

    They are no constants of WGSL: a division by one that is 0 is an error there, even where it never runs.
    Infinity and NaN cannot be written, so their bits are.
    """
    values, others = [], []
    for field in kernel.fields:
        numbers = struct.unpack_from(f"<{field.count}{field.code}", params, field.offset)
        if not math.isfinite(numbers[0]):
            bits = struct.unpack_from("<I", params, field.offset)[0]
            others.append(f" var<private> p_{field.name}: u32 = {bits}u;")
            text = re.sub(rf"\bp\.{field.name}\b", f"bitcast<f32>(p_{field.name})", text)
            numbers = (0.0,)
        values.append(_literal(numbers, {"I": "u32", "i": "i32", "f": "f32"}[field.code]))
    declared = f"var<private> p: Params = Params({', '.join(values)});{''.join(others)}"
    return _PARAMS_BINDING.sub(declared, text)


def _literal(numbers: tuple[float, ...], kind: str) -> str:
    """A number, a vector of three, or an array of vectors of four."""
    items = [f"{kind}({number!r})" for number in numbers]
    if len(items) == 1:
        return items[0]
    if len(items) == 3:
        return f"vec3<{kind}>({', '.join(items)})"
    fours = [f"vec4<{kind}>({', '.join(items[at : at + 4])})" for at in range(0, len(items), 4)]
    return f"array<vec4<{kind}>, {len(fours)}>({', '.join(fours)})"


def explain(kernel: Kernel, text: str, message: str) -> str:
    """Add the `.wgsl` file and line to every place that a compiler's message about a shader text names."""
    lines = text.split("\n")
    before = len(lines) - len(kernel.lines)  # generated

    def with_origin(place: re.Match[str]) -> str:
        at = int(place[1]) - 1
        inside = before <= at < len(lines)
        origin = kernel.lines[at - before] if inside else _origin_in_library(lines[: at + 1])
        return f"{place[0]} ({origin.file}.wgsl:{origin.number})" if origin else place[0]

    return _PLACE.sub(with_origin, message)


def _origin_in_library(lines: list[str]) -> Line | None:
    """Where the last of these lines of the generated part comes from, if it is a function of a library."""
    for back, line in enumerate(reversed(lines)):
        begin = _BEGIN.match(line)
        if begin:
            function = _library().get(begin[1])
            return function._replace(number=function.number + back) if function else None
    return None


def _math_functions(text: str) -> str:
    """The functions and structs of the libraries that a text uses, directly or through other functions."""
    known = _library()
    needed: dict[str, str] = {}
    calls = _CALL.findall(text)
    while calls:
        name = calls.pop()
        if name in known and name not in needed:
            needed[name] = known[name].text
            calls += _CALL.findall(needed[name])
    return "\n".join(needed.values())


@cache
def _library() -> dict[str, Line]:
    known = {}
    for file in ("lib/math", "lib/int64"):
        text = _read(file)
        for match in _FUNCTION.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            known[match.group(1) or match.group(2)] = Line(match.group(), file, number)
    return known


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
    DType.complex64: ("mat4x2<f32>", "vec2<f32>", "{w}", "{v}"),  # for copies
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


# The last quad may end beyond the buffer, whose size is a multiple of 16 bytes.
_INT64_ACCESSORS = """alias {n}_word = vec2<u32>;
alias {n}_t = vec2<u32>;
alias {n}_t4 = array<vec2<u32>, 4>;
fn {n}_at(i: u32) -> {n}_t {{ return {n}[i]; }}
fn {n}_quad(i: u32) -> {n}_t4 {{
    return {n}_t4({n}[4u * i], {n}[4u * i + 1u], {n}[4u * i + 2u], {n}[4u * i + 3u]);
}}"""
_INT64_STORES = """
fn {n}_set(i: u32, v: {n}_t) {{ {n}[i] = v; }}
fn {n}_put(i: u32, v: {n}_t4) {{
    {n}[4u * i] = v[0];
    {n}[4u * i + 1u] = v[1];
    if (4u * i + 2u < arrayLength(&{n})) {{
        {n}[4u * i + 2u] = v[2];
        {n}[4u * i + 3u] = v[3];
    }}
}}"""


# Accessors of an extension for a binding in a text, if the device has 64-bit words; None: the usual ones.
WIDE_ACCESSORS: list[Callable[[Binding, DType, str], str | None]] = []


def _wide_accessors(binding: Binding, dtype: DType, text: str) -> str | None:
    return next(filter(None, (make(binding, dtype, text) for make in WIDE_ACCESSORS)), None)


def _accessors(binding: Binding, dtype: DType) -> str:
    if dtype is DType.int64:
        stores = _INT64_STORES if binding.kind == "read_write" else ""
        return (_INT64_ACCESSORS + stores).format(n=binding.name)
    word, value, read, write = _ACCESSORS[dtype]
    n = binding.name
    lines = [
        f"alias {n}_word = {word};",
        f"alias {n}_t = {value};",
        f"alias {n}_t4 = {_four(value)};",
        f"fn {n}_quad(i: u32) -> {n}_t4 {{ let w = {n}[i]; return {read.format(w='w')}; }}",
        f"fn {n}_at(i: u32) -> {n}_t {{ {_element(n, dtype)} }}",
    ]
    if binding.kind == "read_write":
        lines.append(f"fn {n}_put(i: u32, v: {n}_t4) {{ {n}[i] = {write.format(v='v')}; }}")
        if dtype.itemsize == 4:
            lines.append(f"fn {n}_set(i: u32, v: {n}_t) {{ {n}[i >> 2u][i & 3u] = v; }}")
    return "\n".join(lines)


def _four(value: str) -> str:
    """The type of four values. Four complex numbers are the columns of a matrix."""
    return "mat4x2<f32>" if value == "vec2<f32>" else f"vec4<{value}>"


def _element(n: str, dtype: DType) -> str:
    """Read one element, without unpacking the other elements of its quad."""
    if dtype.itemsize >= 4:
        return f"return {n}[i >> 2u][i & 3u];"
    if dtype is DType.float16:
        return f"return unpack2x16float({n}[i >> 2u][(i >> 1u) & 1u])[i & 1u];"
    if dtype is DType.bfloat16:
        return f"return bitcast<f32>(({n}[i >> 2u][(i >> 1u) & 1u] >> (16u * (i & 1u))) << 16u);"
    if dtype is DType.int8:
        return f"return extractBits(bitcast<i32>({n}[i >> 2u]), (i & 3u) * 8u, 8u);"
    return f"return i32(extractBits({n}[i >> 2u], (i & 3u) * 8u, 8u));"
