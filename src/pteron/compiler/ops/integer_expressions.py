"""What the expression of an elementwise operator means for 64-bit integers.

The expressions of ops/elementwise.py are WGSL over 32-bit numbers, and their syntax is that of Python, too.
So one syntax tree answers three questions: how to compute the expression in two words, in which interval its
result lies, and which bits of its operands the result depends on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache

from pteron.compiler.ir.integers import ALL, EXACT, INT64, LOW, Demand, Interval, fits, hull, within


class NoIntegerForm(Exception):
    """The expression has a part that is not known for integers."""


@cache
def _parse(expression: str) -> ast.expr:
    text = expression.replace("vec4<i32>(", "same(").replace("!(", "no(")
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        raise NoIntegerForm(expression) from None


# -- in two words ------------------------------------------------------------------------------------

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add64({}, {})",
    ast.Sub: "sub64({}, {})",
    ast.Mult: "mul64({}, {})",
    ast.Div: "div64({}, {})",
    ast.Mod: "rem64({}, {})",
    ast.BitAnd: "({} & {})",
    ast.BitOr: "({} | {})",
    ast.BitXor: "({} ^ {})",
    ast.USub: "neg64({})",
    ast.Invert: "(~{})",
    ast.Lt: "lt64({0}, {1})",
    ast.Gt: "lt64({1}, {0})",
    ast.LtE: "!lt64({1}, {0})",
    ast.GtE: "!lt64({0}, {1})",
    ast.Eq: "all({} == {})",
    ast.NotEq: "any({} != {})",
}
_FUNCTIONS = {
    "min": "min64",
    "max": "max64",
    "abs": "abs64",
    "ifloordiv4": "floordiv64",
    "iremainder4": "remainder64",
    "ipow4": "pow64",
    "ishl4": "shl64",
    "ishr4": "shr64",
    "select": "select",
}


def in_two_words(expression: str) -> tuple[str, bool]:
    """WGSL for the expression, of operands with two words each, and whether it is a truth value."""
    return _text(_parse(expression))


def _text(part: ast.expr) -> tuple[str, bool]:
    match part:
        case ast.Name(id="zero"):
            return "vec2<u32>()", False
        case ast.Name(id=name):
            return name, False
        case ast.Constant(value=int(number)):
            return f"int64_of({number})", False
        case ast.UnaryOp(op=operator, operand=inner):
            return _operator(operator).format(_text(inner)[0]), False
        case ast.BinOp(left=left, op=operator, right=right):
            (a, is_truth), (b, _) = _text(left), _text(right)
            return _operator(operator).format(a, b), is_truth
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            (a, is_truth), (b, _) = _text(left), _text(right)
            return (f"({a} != {b})" if is_truth else _operator(operator).format(a, b)), True
        case ast.Call(func=ast.Name(id="same"), args=[inner]):
            return _text(inner)
        case ast.Call(func=ast.Name(id="no"), args=[inner]):
            return f"!({_text(inner)[0]})", True
        case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
            texts = [_text(arg) for arg in args]
            return f"{_FUNCTIONS[name]}({', '.join(text for text, _ in texts)})", texts[0][1]
    raise NoIntegerForm(ast.unparse(part))


def _operator(operator: ast.AST) -> str:
    if type(operator) not in _OPERATORS:
        raise NoIntegerForm(type(operator).__name__)
    return _OPERATORS[type(operator)]


# -- the interval of the result ------------------------------------------------------------------------


def interval(expression: str, of: Mapping[str, Interval]) -> Interval:
    """The interval of the result, given the intervals of the names in the expression."""
    try:
        return _interval(_parse(expression), of)
    except NoIntegerForm:
        return INT64


def _interval(part: ast.expr, of: Mapping[str, Interval]) -> Interval:
    match part:
        case ast.Name(id="zero"):
            return 0, 0
        case ast.Name(id=name):
            return of[name]
        case ast.Constant(value=int(number)):
            return number, number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            low, high = _interval(inner, of)
            return within(-high, -low)
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            low, high = _interval(inner, of)
            return within(-high - 1, -low - 1)
        case ast.Compare():
            return 0, 1
        case ast.BinOp(left=left, op=operator, right=right):
            return _combined(operator, _interval(left, of), _interval(right, of))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _called(name, args, of)
    raise NoIntegerForm(ast.unparse(part))


def _combined(operator: ast.operator, a: Interval, b: Interval) -> Interval:
    match operator:
        case ast.Add():
            return within(a[0] + b[0], a[1] + b[1])
        case ast.Sub():
            return within(a[0] - b[1], a[1] - b[0])
        case ast.Mult():
            products = [x * y for x in a for y in b]
            return within(min(products), max(products))
        case ast.Div():
            return _quotient(a, b, lambda x, y: -(-x // y) if x < 0 else x // y)
        case ast.Mod():
            largest = min(max(map(abs, a)), max(map(abs, b)))
            return (-largest if a[0] < 0 else 0), largest
        case ast.BitAnd() if a[0] >= 0 or b[0] >= 0:
            return 0, min(x[1] for x in (a, b) if x[0] >= 0)
        case ast.BitAnd() | ast.BitOr() | ast.BitXor():
            bits = max(x.bit_length() for x in (*a, *b))
            return (0 if a[0] >= 0 and b[0] >= 0 else -(1 << bits)), (1 << bits) - 1
    raise NoIntegerForm(type(operator).__name__)


def _quotient(a: Interval, b: Interval, divide: Callable[[int, int], int]) -> Interval:
    if b[0] <= 0:
        largest = max(map(abs, a))
        return within(-largest, largest)
    quotients = [divide(x, y) for x in a for y in b]
    return min(quotients), max(quotients)


def _called(name: str, args: list[ast.expr], of: Mapping[str, Interval]) -> Interval:
    if name == "select":
        return (
            hull(_interval(args[0], of), _interval(args[1], of)) if not _clamps(args) else _limited(args, of)
        )
    of_args = [_interval(arg, of) for arg in args]
    a, b = of_args[0], of_args[-1]
    match name:
        case "same":
            return a
        case "no":
            return 0, 1
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "abs":
            return (0 if a[0] <= 0 <= a[1] else min(map(abs, a))), min(max(map(abs, a)), INT64[1])
        case "ifloordiv4":
            return _quotient(a, b, int.__floordiv__)
        case "iremainder4":
            return min(b[0] + 1, 0), max(b[1] - 1, 0)
        case "ishr4" if b[0] >= 0:
            return _quotient(a, (1 << min(b[0], 63), 1 << min(b[1], 63)), int.__floordiv__)
        case "ishr4":
            return min(a[0], 0), max(a[1], 0)
        case "ishl4":
            most = min(max(b[1], 0), 63)
            return within(min(a[0] << most, a[0], 0), max(a[1] << most, a[1], 0))
        case "ipow4":
            size, most = max(map(abs, a)), max(b[1], 0)
            power = 1 if size <= 1 or not most else size ** min(most, 64)
            return within(0 if a[0] >= 0 else -power, power)
    raise NoIntegerForm(name)


# `select(x, limit, x < limit)` is the larger of both, and with > the smaller.
def _clamps(args: list[ast.expr]) -> bool:
    value, limit, condition = args
    return (
        isinstance(condition, ast.Compare)
        and isinstance(condition.ops[0], (ast.Lt, ast.Gt))
        and ast.dump(condition.left) == ast.dump(value)
        and ast.dump(condition.comparators[0]) == ast.dump(limit)
    )


def _limited(args: list[ast.expr], of: Mapping[str, Interval]) -> Interval:
    value, limit, condition = args
    assert isinstance(condition, ast.Compare)
    name = "max" if isinstance(condition.ops[0], ast.Lt) else "min"
    return _called(name, [value, limit], of)


# -- the bits that it depends on -------------------------------------------------------------------------


def demands(expression: str, of: Mapping[str, Interval], wanted: Demand) -> dict[str, Demand]:
    """For each name, the bits that the result depends on if these bits of the result are wanted."""
    found = dict.fromkeys(of, Demand(0))
    try:
        _demand(_parse(expression), of, wanted, found)
    except NoIntegerForm:
        return dict.fromkeys(of, ALL)
    return found


_MODULAR = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)


def _demand(part: ast.expr, of: Mapping[str, Interval], wanted: Demand, found: dict[str, Demand]) -> None:
    if not wanted:
        return
    if wanted & EXACT and fits(_interval(part, of)):
        wanted = LOW  # the low word says everything
    match part:
        case ast.Name(id=name):
            if name in found:
                found[name] |= wanted
            return
        case ast.Constant():
            return
        case ast.UnaryOp(operand=inner):
            _demand(inner, of, _low_or_all(wanted), found)
            return
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _MODULAR):
            for side in (left, right):
                _demand(side, of, _low_or_all(wanted), found)
            return
        case ast.Call(func=ast.Name(id="same"), args=[inner]):
            _demand(inner, of, wanted, found)
            return
        case ast.Call(func=ast.Name(id="select"), args=[a, b, condition]):
            _demand(a, of, wanted, found)
            _demand(b, of, wanted, found)
            _demand(condition, of, ALL, found)
            return
        case ast.Call(func=ast.Name(id="ishl4"), args=[value, by]):
            _demand(value, of, _low_or_all(wanted), found)
            _demand(by, of, ALL, found)
            return
        case ast.Call(args=args):
            inner_parts = args
        case ast.BinOp(left=left, right=right):
            inner_parts = [left, right]
        case ast.Compare(left=left, comparators=[right]):
            inner_parts = [left, right]
        case _:
            raise NoIntegerForm(ast.unparse(part))
    for inner in inner_parts:
        _demand(inner, of, ALL, found)


def _low_or_all(wanted: Demand) -> Demand:
    """Sums and products modulo 2**32 depend on the low words only."""
    return ALL if wanted & EXACT else LOW
