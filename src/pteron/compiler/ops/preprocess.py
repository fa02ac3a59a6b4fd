"""The preprocessor of `.wgsl` files. A directive has a line of its own:

    //#include file x     the lines of lib/file.wgsl, with x (the name of a binding) instead of NAME
    //#if HAS_BIAS        the lines up to //#elif, //#else or //#end, if the define HAS_BIAS is true
    //#each i ROWS        the lines up to `//#end i`, as a block for every i below ROWS: an unrolled loop
    //#trusted            the rule has checked all indices: no bounds checks are needed on software adapters

A condition is `HAS_BIAS`, `not HAS_BIAS`, `OUTPUTS > 1`, `BITS == 4` or `MASK != none`. The rule must define
the flag, and a limit such as ROWS: a misspelt one is an error. Directives may be nested. Every line remembers
its file and its line number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn

from pteron.compiler.ir.dispatch import Define

_DIRECTIVE = re.compile(r"//#(include|if|elif|else|each|end|trusted)\b ?(.*)")
_CONDITION = re.compile(r"(not )?(\w+)|(\w+) (==|!=|>) (\w+)")


class PreprocessorError(Exception):
    """A directive that is wrong, or a rule that does not define what a directive needs."""


class Line(NamedTuple):
    text: str
    file: str
    number: int


def read(file: str, text_of: Callable[[str], str]) -> list[Line]:
    """The lines of a file and of those that it includes."""
    lines = []
    for number, text in enumerate(text_of(file).splitlines(), 1):
        line = Line(text, file, number)
        word, rest = _directive(line)
        if word == "include":
            name, _, binding = rest.partition(" ")
            included = read(f"lib/{name}", text_of)
            lines += [each._replace(text=each.text.replace("NAME", binding or "NAME")) for each in included]
        elif word or not text.lstrip().startswith("//#"):
            lines.append(line)
        else:
            _fail(line, "there is no such directive, or it is not at the beginning of the line")
    return lines


def expand(lines: Iterable[Line], defines: Mapping[str, Define]) -> list[Line]:
    """The lines that are left for these defines, without directives."""
    kept, end = _block(iter(lines), defines)
    if end is not None:
        _fail(end, "this closes nothing")
    return kept


def _directive(line: Line) -> tuple[str, str]:
    """The word of a directive and what follows it; two empty strings for other lines."""
    match = _DIRECTIVE.fullmatch(line.text.rstrip())
    return (match[1], match[2]) if match else ("", "")


def _block(lines: Iterator[Line], defines: Mapping[str, Define] | None) -> tuple[list[Line], Line | None]:
    """The lines up to a directive that ends or continues a block, and this directive.

    defines: None if the block is left out. Its conditions are not evaluated.
    """
    kept: list[Line] = []
    for line in lines:
        word, _ = _directive(line)
        if word in ("elif", "else", "end"):
            return kept, line
        if word == "if":
            kept += _choice(line, lines, defines)
        elif word == "each":
            kept += _loop(line, lines, defines)
        else:
            kept.append(line)
    return kept, None


def _choice(begin: Line, lines: Iterator[Line], defines: Mapping[str, Define] | None) -> list[Line]:
    """The lines of the first branch whose condition holds."""
    kept: list[Line] = []
    word, at = "if", begin
    while word != "end":
        holds = defines is not None and (word == "else" or _holds(at, defines))
        block, end = _block(lines, defines if holds else None)
        if holds:
            kept, defines = block, None
        after_else = word == "else"
        word, rest = _directive(end) if end else ("", "")
        if end is None or (after_else and word != "end") or (word == "end" and rest):
            _fail(end or begin, f"expected //#end of the //#if at line {begin.number}")
        at = end
    return kept


def _loop(begin: Line, lines: Iterator[Line], defines: Mapping[str, Define] | None) -> list[Line]:
    variable, _, limit = _directive(begin)[1].partition(" ")
    body, end = _block(lines, defines)
    if end is None or _directive(end) != ("end", variable):
        _fail(end or begin, f"expected `//#end {variable}` of the //#each at line {begin.number}")
    if defines is None:
        return []
    times = int(limit if limit.isdigit() else _value(limit, begin, defines))
    place = re.compile(rf"\b{variable}\b")
    blocks = [[each._replace(text=place.sub(f"{i}u", each.text)) for each in body] for i in range(times)]
    opened, closed = (begin._replace(text=brace) for brace in "{}")
    return [line for block in blocks for line in (opened, *block, closed)]


def _holds(at: Line, defines: Mapping[str, Define]) -> bool:
    match = _CONDITION.fullmatch(_directive(at)[1])
    if match is None:
        _fail(at, "a condition is FLAG, `not FLAG`, `N > 1`, `N == 2` or `N != 2`")
    negated, flag, name, comparison, other = match.groups()
    value = _value(flag or name, at, defines)
    if comparison == ">":
        return int(value) > int(other)
    if comparison:
        return (str(value) == other) == (comparison == "==")
    return bool(value) != bool(negated)


def _value(name: str, at: Line, defines: Mapping[str, Define]) -> Define:
    try:
        return defines[name]
    except KeyError:
        _fail(at, f"the rule does not define {name}, only {', '.join(sorted(defines)) or 'nothing'}")


def _fail(line: Line, problem: str) -> NoReturn:
    raise PreprocessorError(f"{line.file}.wgsl:{line.number}: `{line.text.strip()}`: {problem}")
