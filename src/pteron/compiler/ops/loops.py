"""Prove that the loops of a shader text end.

A WebGPU implementation must assume that a loop may never end. So it adds a counter to every loop, and no
compiler unrolls a loop with two counters. A text whose loops are all proved to end needs none.

The proof knows only loops that count: `for (var i = ..; i < end; i += step)`, where the body does not assign
i. If i grows by one, it ends at every `end`. If it grows by more, it could pass over the largest integer, so
`end` must be a *size*: made of constants and fields of Params by sums, products and quotients, or a minimum
with one. A loop that counts down by one, or halves, ends too. All other loops are not proved.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

_COMMENT = re.compile(r"//[^\n]*")
_LOOP = re.compile(r"\b(for|while|loop)\b\s*")
_BRACKET = re.compile(r"[(){}]")
_COUNTED = re.compile(r"(?:\d+u? \* )?(\w+)(?: \+ \d+u?)? <=? (.+)")
_PLAIN = re.compile(r"(\w+) < (.+)")
_LEFT = re.compile(r"(\w+) > 0u?")
_UP = re.compile(r"(\w+) \+= (.+)")
_ASSIGNED = r"\b{0}\b\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|&{0}\b"
_DEFINED = re.compile(r"\b(?:let|const) (\w+)(?:\s*:[^=;]+)?\s*=\s*([^;]+);")
_CONSTANT = re.compile(r"^const (\w+)(?:: \w+)? = ([^;]+);", re.MULTILINE)
_VARIABLE = re.compile(r"\bvar (\w+)")
_PARAMETERS = re.compile(r"\bfn \w+\(([^{]*)\{")
_NAME = re.compile(r"(\w+)\s*:")
_TOKEN = re.compile(r"\d+u?|[A-Za-z_]\w*(?:\.\w+)*|[-+*/%(),[\]]")
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_ARITHMETIC = re.compile(r"(?:\d+u?|[-+*/() ])+")
_NUMBER = re.compile(r"\d+u?")
_FIELD = re.compile(r"p(?:\.\w+)+")
_DEEPEST = 8  # names that stand for names


@lru_cache(maxsize=1024)
def all_end(text: str) -> bool:
    """Whether every loop of a shader text is proved to end."""
    return not unproved(text)


def unproved(text: str) -> list[str]:
    """The heads of the loops that are not proved to end."""
    proof = _Proof(_COMMENT.sub("", text))
    return [
        proof.text[loop.start() : proof.text.find("{", loop.start())].strip()
        for loop in _LOOP.finditer(proof.text)
        if not proof.ends(loop)
    ]


class _Proof:
    """A text without comments, and what its names stand for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[str, list[str]] = defaultdict(list)
        for name, value in _DEFINED.findall(text):
            self.values[name].append(value)
        self.constants = dict(_CONSTANT.findall(text))
        self.changing = set(_VARIABLE.findall(text))
        for parameters in _PARAMETERS.findall(text):
            self.changing.update(_NAME.findall(parameters))

    def ends(self, loop: re.Match[str]) -> bool:
        if loop[1] != "for":
            return False
        closed = _closing(self.text, loop.end())
        parts = [part.strip() for part in self.text[loop.end() + 1 : closed].split(";")]
        if len(parts) != 3:
            return False
        begin = self.text.find("{", closed)
        body = self.text[begin : _closing(self.text, begin) + 1]
        _, condition, update = parts
        if "|" in condition or "!" in condition:
            return False
        return any(self._limits(each.strip(), update, body) for each in condition.split("&&"))

    def _limits(self, condition: str, update: str, body: str) -> bool:
        """Whether a condition becomes false after finitely many updates of its variable."""
        if down := _LEFT.fullmatch(condition):
            return update in (f"{down[1]}--", f"{down[1]} /= 2u") and not _assigns(body, down[1])
        counted = _COUNTED.fullmatch(condition)
        if counted is None or _assigns(body, counted[1]):
            return False
        variable, end = counted.groups()
        is_plain = _PLAIN.fullmatch(condition) is not None
        if update == f"{variable}++":
            return is_plain or self._is_size(end)
        if update == f"{variable}--":  # below zero comes the largest integer
            return is_plain and _NUMBER.fullmatch(end) is not None
        up = _UP.fullmatch(update)
        return up is not None and up[1] == variable and self._is_step(up[2]) and self._is_size(end)

    def _is_step(self, step: str) -> bool:
        """Whether an expression of numbers and constants is positive."""
        for _ in range(_DEEPEST):
            step = _WORD.sub(lambda name: f"({self.constants.get(name[0], '?')})", step)
        if not _ARITHMETIC.fullmatch(step):
            return False
        try:
            return int(eval(step.replace("u", "").replace("/", "//"))) > 0  # only digits and operators
        except (SyntaxError, ZeroDivisionError):
            return False

    def _is_size(self, expression: str, depth: int = 0) -> bool:
        return depth <= _DEEPEST and _Size(self, _tokens(expression), depth).holds()

    def stands_for_size(self, name: str, depth: int) -> bool:
        """Whether a name stands for a size wherever it is defined."""
        values = self.values.get(name, ())
        return bool(values) and name not in self.changing and all(self._is_size(v, depth + 1) for v in values)


class _Size:
    """A parser of expressions that answers whether each part is a size."""

    def __init__(self, proof: _Proof, tokens: list[str], depth: int) -> None:
        self.proof, self.tokens, self.depth, self.at = proof, tokens, depth, 0

    def holds(self) -> bool:
        return bool(self.tokens) and self._sum() and self.at == len(self.tokens)

    def _next(self, *wanted: str) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if token and (not wanted or token in wanted):
            self.at += 1
            return token
        return ""

    def _sum(self) -> bool:
        found = self._product()
        while operator := self._next("+", "-"):
            found = self._product() and found and operator == "+"
        return found

    def _product(self) -> bool:
        found = self._operand()
        while operator := self._next("*", "/", "%"):
            other = self._operand()
            found = found and (other or operator == "/")
        return found

    def _operand(self) -> bool:
        token = self._next()
        if token == "(":
            found = self._sum()
            return bool(self._next(")")) and found
        if self._next("["):  # an element of a tensor has any value
            self._sum()
            self._next("]")
            return False
        if token.isidentifier() and self._next("("):
            return self._call(token)
        if _NUMBER.fullmatch(token) or _FIELD.fullmatch(token):
            return True
        return token.isidentifier() and self.proof.stands_for_size(token, self.depth)

    def _call(self, name: str) -> bool:
        found = [self._sum()]
        while self._next(","):
            found.append(self._sum())
        if not self._next(")"):
            return False
        return any(found) if name == "min" else name in ("max", "u32") and all(found)


def _assigns(body: str, variable: str) -> bool:
    return re.search(_ASSIGNED.format(variable), body) is not None


def _closing(text: str, opened: int) -> int:
    """The place of the bracket that closes the one at `opened`."""
    depth = 0
    for bracket in _BRACKET.finditer(text, opened):
        depth += 1 if bracket[0] in "({" else -1
        if depth == 0:
            return bracket.start()
    return len(text)


def _tokens(expression: str) -> list[str]:
    """The tokens of an expression; empty if it has others than names, numbers and arithmetic."""
    tokens = _TOKEN.findall(expression)
    return tokens if "".join(tokens) == re.sub(r"\s", "", expression) else []
