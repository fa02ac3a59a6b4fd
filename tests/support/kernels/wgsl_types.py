"""The types of WGSL expressions, as far as an estimate of registers needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.support.wgsl import evaluate, integer_constants

_ALIAS = re.compile(r"^alias (\w+) = ([^;]+);", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+)\s*\{(.*?)\}", re.MULTILINE | re.DOTALL)
DECLARATION = re.compile(r"(\w+)\s*:\s*((?:[^,<]|<(?:[^<>]|<[^<>]*>)*>)+)")  # of a field or a parameter
_GLOBAL = re.compile(
    r"^(?:@group.*?)?(?:var(?:<[^>]*>)?|const) (\w+)\s*(?::\s*([^;=]+))?(?:=\s*([^;]+))?;", re.MULTILINE
)
_ARRAY = re.compile(r"array<(.+?)(?:,\s*([^,<>]+))?>")
_VECTOR = re.compile(r"vec([234])(?:<(\w+)>)?")
_MATRIX = re.compile(r"mat([234])x([234])(?:<\w+>)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_GENERIC = re.compile(r"<(?:[^<>()]|<[^<>]*>)*>")
_LITERAL = re.compile(r"(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:e[-+]?\d+)?)[uifh]?")
_SWIZZLE = re.compile(r"[xyzwrgba]{1,4}")

# Built-in functions whose result has another shape than their arguments.
_SCALAR_RESULTS = re.compile(r"dot\w*|length|distance|all|any|arrayLength|pack\w+|atomic\w+|determinant")
_RESULTS = {"unpack2x16float": "vec2<f32>", "unpack4x8snorm": "vec4<f32>", "unpack4x8unorm": "vec4<f32>",
            "unpack4xI8": "vec4<i32>", "unpack4xU8": "vec4<u32>"}  # fmt: skip
SCALAR = "f32"


@dataclass(frozen=True)
class Types:
    """The named types, constants, global variables and functions of a shader text."""

    named: Mapping[str, str]  # aliases
    structs: Mapping[str, Mapping[str, str]]
    constants: Mapping[str, int]
    variables: dict[str, str]
    results: Mapping[str, str]  # of functions

    @classmethod
    def of(cls, code: str, results: Mapping[str, str]) -> Types:
        structs = {name: dict(DECLARATION.findall(body)) for name, body in _STRUCT.findall(code)}
        types = cls(dict(_ALIAS.findall(code)), structs, integer_constants(code), {}, results)
        for name, kind, value in _GLOBAL.findall(code):
            types.variables[name] = kind.strip() or types.infer(value, {})
        return types

    def words(self, kind: str) -> int:
        """The number of 32-bit registers of a type. 16-bit numbers get one each."""
        kind = self.resolved(kind)
        if kind in self.structs:
            return sum(self.words(field) for field in self.structs[kind].values())
        if match := _ARRAY.fullmatch(kind):
            return self.words(match[1]) * evaluate(match[2], dict(self.constants))
        if match := _VECTOR.fullmatch(kind):
            return int(match[1])
        if match := _MATRIX.fullmatch(kind):
            return int(match[1]) * int(match[2])
        return 1

    def resolved(self, kind: str) -> str:
        kind = kind.strip()
        while kind in self.named:
            kind = self.named[kind].strip()
        return kind

    def infer(self, expression: str, local: Mapping[str, str]) -> str:
        """The type of an expression: of its largest operand. A matrix times a vector is a vector."""
        found = [self.resolved(kind) for kind in self._operands(expression, local)]
        vectors = [kind for kind in found if _VECTOR.fullmatch(kind)]
        if vectors and any(_MATRIX.fullmatch(kind) for kind in found):
            found = vectors
        return max(found, key=self.words, default=SCALAR)

    def _operands(self, text: str, local: Mapping[str, str]) -> Iterator[str]:
        """The types of the operands of an expression, outside of parentheses."""
        at = 0
        while at < len(text):
            if match := _LITERAL.match(text, at):
                kind, at = SCALAR, match.end()
            elif text[at] == "(":
                end = closing(text, at)
                kind, at = self.infer(text[at + 1 : end], local), end + 1
            elif match := _NAME.match(text, at):
                kind, at = self._name(text, match, local)
            else:
                at += 1
                continue
            kind, at = self._members(text, at, kind)
            yield kind

    def _name(self, text: str, match: re.Match[str], local: Mapping[str, str]) -> tuple[str, int]:
        """A variable, a call, or a conversion to a type. Returns its type and its end."""
        name, at = match[0], match.end()
        generic = _GENERIC.match(text, at)
        if generic and text[generic.end() : generic.end() + 1] == "(":
            at = generic.end()
        if text[at : at + 1] != "(":
            return local.get(name) or self.variables.get(name, SCALAR), at
        end = closing(text, at)
        return self._call(text[match.start() : at], text[at + 1 : end], local), end + 1

    def _call(self, name: str, arguments: str, local: Mapping[str, str]) -> str:
        plain, _, generic = name.partition("<")
        if plain == "bitcast":
            return generic[:-1]
        if plain in self.results:
            return self.results[plain]
        resolved = self.resolved(name)
        if resolved in self.structs or _VECTOR.fullmatch(resolved) or _MATRIX.fullmatch(resolved):
            return resolved
        if resolved.startswith("array<"):
            return resolved
        if plain in _RESULTS:
            return _RESULTS[plain]
        if _SCALAR_RESULTS.fullmatch(plain) or plain in ("f32", "u32", "i32", "f16", "bool"):
            return SCALAR
        return self.infer(arguments, local)  # min, select, fma, ...

    def _members(self, text: str, at: int, kind: str) -> tuple[str, int]:
        """Follow the indices and fields after an operand."""
        while at < len(text) and text[at] in "[.":
            kind = self.resolved(kind)
            if text[at] == "[":
                at = closing(text, at) + 1
                if match := _ARRAY.fullmatch(kind):
                    kind = match[1]
                elif match := _MATRIX.fullmatch(kind):
                    kind = f"vec{match[2]}<f32>"
                else:
                    kind = SCALAR
            else:
                match = _NAME.match(text, at + 1)
                if match is None:
                    break
                at = match.end()
                if kind in self.structs:
                    kind = self.structs[kind][match[0]]
                elif _SWIZZLE.fullmatch(match[0]):
                    kind = SCALAR if len(match[0]) == 1 else f"vec{len(match[0])}<f32>"
        return kind, at


def closing(text: str, at: int) -> int:
    """The place of the bracket that closes the one at `at`."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    opened, closed, depth = text[at], pairs[text[at]], 0
    for place in range(at, len(text)):
        depth += (text[place] == opened) - (text[place] == closed)
        if depth == 0:
            return place
    raise ValueError(f"nothing closes {text[at : at + 40]!r}")
