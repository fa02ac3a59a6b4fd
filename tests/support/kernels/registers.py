"""An estimate of the registers that one invocation of a kernel needs.

All names that are in scope at the same place are taken to be in registers, at the place of the kernel where
they are the most. Names that are never used do not count. Functions that are called there count too, because
drivers inline them. A compiler keeps fewer names, since some are not used again. It also needs registers for
addresses and intermediate results: an allowance stands for these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.support.kernels.wgsl_types import DECLARATION, Types, closing

ALLOWANCE = 8

_COMMENT = re.compile(r"//.*")
_FUNCTION = re.compile(r"\bfn (\w+)\s*\(")
_RESULT = re.compile(r"\s*->\s*([^{]+?)\s*\{|\s*\{")
_ATTRIBUTE = re.compile(r"@\w+(\([^)]*\))?\s*")
_DECLARED = re.compile(r"(?:var|let|const)\s+(\w+)\s*(?::\s*([^=]+?))?\s*(?:=\s*(.*))?$", re.DOTALL)
_HEADER = re.compile(r"(?:else\s+)?(?:if|for|while|switch)\s*\(")
_CALL = re.compile(r"\b(\w+)\s*\(")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class _Function:
    parameters: dict[str, str]
    result: str
    body: str


@cache
def registers(text: str) -> int:
    """The estimated number of 32-bit registers per invocation of a shader text."""
    code = _COMMENT.sub("", text)
    functions = dict(_functions(code))
    types = Types.of(code, {name: function.result for name, function in functions.items()})
    return ALLOWANCE + _Estimate(functions, types).most("main")


def _functions(code: str) -> Iterator[tuple[str, _Function]]:
    for match in _FUNCTION.finditer(code):
        end = closing(code, match.end() - 1)
        result = _RESULT.match(code, end + 1)
        assert result is not None, f"function {match[1]} has no body"
        body = code[result.end() : closing(code, result.end() - 1)]
        given = _ATTRIBUTE.sub("", code[match.end() : end])
        yield match[1], _Function(dict(DECLARATION.findall(given)), result[1] or "f32", body)


class _Estimate:
    def __init__(self, functions: dict[str, _Function], types: Types) -> None:
        self._functions, self._types = functions, types
        self._known: dict[str, int] = {}

    def most(self, name: str) -> int:
        """The most words in scope at one place of a function, with the functions that it calls there."""
        if name not in self._known:
            self._known[name] = self._walk(self._functions[name])
        return self._known[name]

    def _walk(self, function: _Function) -> int:
        scopes = [dict(function.parameters)]
        uses = Counter(_WORD.findall(function.body))
        most = 0
        for kind, text in _statements(function.body):
            if kind == "open":
                scopes.append({})
            elif kind == "close":
                scopes.pop()
            visible = {name: type_ for scope in scopes for name, type_ in scope.items()}
            called = [self.most(name) for name in _CALL.findall(text) if name in self._functions]
            if (declared := _DECLARED.match(text)) and uses[declared[1]] > 1:
                name, given, value = declared.groups()
                scopes[-1][name] = given or self._types.infer(value or "", visible)
            words = sum(self._types.words(type_) for scope in scopes for type_ in scope.values())
            most = max(most, words + max(called, default=0))
        return most


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """The statements of a function, and where blocks open and close. A `for` opens a block of its own."""
    at, loops = 0, []  # for each open block: how many blocks its end closes
    pending = 0
    while at < len(body):
        if body[at].isspace() or body[at] == ";":
            at += 1
        elif body[at] == "{":
            yield "open", ""
            loops.append(1 + pending)
            pending, at = 0, at + 1
        elif body[at] == "}":
            for _ in range(loops.pop()):
                yield "close", ""
            at += 1
        elif header := _HEADER.match(body, at):
            end = closing(body, header.end() - 1)
            yield "open", ""  # the variable of a `for` is visible in its block only
            pending = 1
            for part in body[header.end() : end].split(";"):
                yield "statement", part.strip()
            at = end + 1
        else:
            end = min((place for place in (body.find(c, at) for c in ";{}") if place >= 0), default=len(body))
            yield "statement", body[at:end].strip()
            at = end
