"""What an operator takes, read from the annotations of its rule.

A file may hold anything where an operator expects a tensor, an integer or a list. Each argument is checked
once, when its node is made, so that rules and fusion passes can rely on the kinds that they declare:

    LiveTensor            a tensor
    LiveInt               an integer that kernels read
    LiveResult            an integer that the operator computes
    int, float, bool      a scalar, or an integer that only a call knows
    Scalar                an integer or a float, as the file has it
    str, None             themselves
    Sequence[X], tuple[X, ...], tuple[X, Y], X | Y    lists and alternatives of these
    Unused                anything: the rule does not read it

The exporter merges equal scalars across types: a file may have 1 where 1.0 or True is meant. So scalars are
converted to what the rule declares, where that loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, cast, get_args, get_origin

from pteron.ir.checks import OpError
from pteron.ir.live import LiveInt, LiveResult, LiveTensor
from pteron.ir.values import Arg, SymInt, Tensor

Scalar: TypeAlias = int | float
Unused: TypeAlias = object


class _Unfit(Exception):
    """An argument is of another kind."""


# The argument as the rule takes it; raises _Unfit.
Convert: TypeAlias = Callable[[Any], Arg]


class Kind:
    """What one parameter of a rule takes."""

    def __init__(self, expected: str, convert: Convert) -> None:
        self.expected = expected
        self.convert = convert

    def take(self, name: str, arg: Arg) -> Arg:
        """The argument, converted; OpError says what was expected and what came."""
        try:
            return self.convert(arg)
        except _Unfit:
            raise OpError(f"`{name}` must be {self.expected}, the file has {_describe(arg)}") from None


@cache
def kind_of(annotation: Any) -> Kind:
    """The kind that an annotation stands for; TypeError if it stands for none."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return _either([kind_of(member) for member in inner])
    if origin is tuple and inner[-1] is not Ellipsis:
        return _row([kind_of(item) for item in inner])
    if origin in (tuple, Sequence):
        return _list(kind_of(inner[0]))
    raise TypeError(f"{annotation!r} does not say what an operator takes (see pteron.ir.kinds)")


def _only(*types: type) -> Convert:
    def convert(arg: Any) -> Arg:
        if not isinstance(arg, types):
            raise _Unfit
        return cast(Arg, arg)

    return convert


def _number(convert_number: Callable[[int | float], Arg]) -> Convert:
    def convert(arg: Any) -> Arg:
        if isinstance(arg, SymInt):
            return arg
        if not isinstance(arg, (int, float)):
            raise _Unfit
        return convert_number(arg)

    return convert


def _whole(number: int | float) -> int:
    if isinstance(number, float) and not number.is_integer():
        raise _Unfit
    return int(number)


def _either(members: list[Kind]) -> Kind:
    """The first kind that takes an argument as it is, or else the first that can convert it."""

    def convert(arg: Any) -> Arg:
        converted: list[Arg] = []
        for member in members:
            try:
                result = member.convert(arg)
            except _Unfit:
                continue
            if type(result) is type(arg):
                return result
            converted.append(result)
        if not converted:
            raise _Unfit
        return converted[0]

    return Kind(" or ".join(dict.fromkeys(member.expected for member in members)), convert)


def _list(item: Kind) -> Kind:
    def convert(arg: Any) -> Arg:
        if not isinstance(arg, tuple):
            raise _Unfit
        return tuple([item.convert(each) for each in arg])

    return Kind(f"a list, each item {item.expected}", convert)


def _row(items: list[Kind]) -> Kind:
    def convert(arg: Any) -> Arg:
        if not isinstance(arg, tuple) or len(arg) != len(items):
            raise _Unfit
        return tuple([item.convert(each) for item, each in zip(items, arg, strict=True)])

    return Kind(f"a list of {len(items)}, in order: {', '.join(item.expected for item in items)}", convert)


_INTEGER = Kind("an integer", _number(_whole))
_PLAIN: dict[Any, Kind] = {
    LiveTensor: Kind("a tensor", _only(Tensor)),
    LiveInt: _INTEGER,
    LiveResult: Kind("an integer to write to", _only(SymInt)),
    int: _INTEGER,
    float: Kind("a number", _number(float)),
    bool: Kind("true or false", _number(bool)),
    str: Kind("a string", _only(str)),
    None: Kind("nothing", _only(NoneType)),
    NoneType: Kind("nothing", _only(NoneType)),
    object: Kind("anything", lambda arg: arg),
}


def _describe(arg: Arg) -> str:
    match arg:
        case Tensor():
            return f"the tensor {arg!r}"
        case SymInt():
            return f"the integer {arg.name}, which is computed"
        case tuple():
            return f"a list of {len(arg)}: {', '.join(map(_describe, arg[:4]))}{', ...' * (len(arg) > 4)}"
        case str():
            return f"the string {arg[:40]!r}{'...' * (len(arg) > 40)}"
        case None:
            return "nothing"
    return repr(arg)
