"""The requirements of a shader text, read from the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONST = re.compile(r"^const (\w+) = ([^;]+);", re.MULTILINE)
_ALIAS = re.compile(r"^alias (\w+) = ([^;]+);", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+) \{(.*?)\}", re.MULTILINE | re.DOTALL)
_STORAGE = re.compile(r"var<storage\b")
_WORKGROUP = re.compile(r"var<workgroup> \w+: ([^;]+);")
_SIZE = re.compile(r"@workgroup_size\(([^)]*)\)")
_ENABLE = re.compile(r"^enable ([^;]+);", re.MULTILINE)
_COMMENT = re.compile(r"//.*")
_ARRAY = re.compile(r"array<(.+), ([^,]+)>")
_VECTOR = re.compile(r"vec([234])<(.+)>")
_SCALARS = {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "atomic<u32>": 4}


@dataclass(frozen=True)
class Needs:
    invocations: int  # of a workgroup
    storage_buffers: int
    workgroup_nbytes: int
    extensions: frozenset[str]


def needs(text: str) -> Needs:
    code = _COMMENT.sub("", text)
    numbers = integer_constants(code)
    types = dict(_ALIAS.findall(code)) | dict(_STRUCT.findall(code))
    (size,) = _SIZE.findall(code)
    invocations = 1
    for side in size.split(","):
        invocations *= evaluate(side, numbers)
    return Needs(
        invocations,
        len(_STORAGE.findall(code)),
        sum(_nbytes(kind, types, numbers) for kind in _WORKGROUP.findall(code)),
        frozenset(name for names in _ENABLE.findall(code) for name in re.split(r",\s*", names)),
    )


def integer_constants(code: str) -> dict[str, int]:
    """The integer constants, declared in any order."""
    pending, numbers = dict(_CONST.findall(code)), dict[str, int]()
    while True:
        known = {}
        for name, expression in pending.items():
            if set(re.findall(r"\b[A-Za-z_]\w*", expression)) <= numbers.keys() and "." not in expression:
                known[name] = evaluate(expression, numbers)
        if not known:
            return numbers
        numbers |= known
        pending = {name: value for name, value in pending.items() if name not in known}


def evaluate(expression: str, numbers: dict[str, int]) -> int:
    """An expression of unsigned integers: a number, a constant, or arithmetic on them."""
    python = re.sub(r"\b(\d+)u\b", r"\1", expression).replace("/", "//")
    return int(eval(python, {"__builtins__": {}}, dict(numbers)))


def _nbytes(kind: str, types: dict[str, str], numbers: dict[str, int]) -> int:
    """The bytes of a type in workgroup memory. A vec3 needs as many bytes as a vec4."""
    kind = kind.strip()
    if kind in _SCALARS:
        return _SCALARS[kind]
    if match := _ARRAY.fullmatch(kind):
        return _nbytes(match[1], types, numbers) * evaluate(match[2], numbers)
    if match := _VECTOR.fullmatch(kind):
        return (2 if match[1] == "2" else 4) * _nbytes(match[2], types, numbers)
    if kind not in types:
        raise ValueError(f"the size of {kind} is not known")
    if ":" not in types[kind]:
        return _nbytes(types[kind], types, numbers)
    fields = re.split(r",\s*(?=\w+:)", types[kind].strip().rstrip(","))
    fields = [field.partition(":")[2] for field in fields]
    return sum(-(-_nbytes(field, types, numbers) // 16) * 16 for field in fields)  # at most, with padding
