"""The arguments that an operator accepts, read from the annotations of its rule.

A file may have any value where an operator expects a tensor, an integer or a list. Each argument is checked
once, when its node is created. Rules and fusion passes can then rely on the declared kinds:

    LiveTensor            a tensor
    LiveInt               an integer that kernels read
    LiveResult            an integer that the operator computes
    int, float, bool      a scalar, or an integer that is known only in a call
    Scalar                an integer or a float, as in the file
    str, None             themselves
    Sequence[X], tuple[X, ...], tuple[X, Y], X | Y    lists and alternatives of these
    Unused                anything: the rule does not read it

The exporter merges equal scalars of different types: a file may have 1 where 1.0 or True is meant. So scalars
are converted to the declared type if no information is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, cast, get_args, get_origin

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.live import LiveInt, LiveResult, LiveTensor
from pteron.compiler.ir.values import Arg, SymInt, Tensor

Scalar: TypeAlias = int | float
Unused: TypeAlias = object


class _Unfit(Exception):
    """The argument has another kind."""


# Returns the argument as the rule expects it, or raises _Unfit.
Convert: TypeAlias = Callable[[Any], Arg]


class ArgumentKind:
    """The kind of one parameter of a rule."""

    def __init__(self, expected: str, convert: Convert) -> None:
        self.expected = expected
        self.convert = convert

    def take(self, name: str, arg: Arg) -> Arg:
        """The argument, converted. An OpError says what was expected and what was found."""
        try:
            return self.convert(arg)
        except _Unfit:
            raise OpError(f"`{name}` must be {self.expected}, the file has {_describe(arg)}") from None


@cache
def kind_of(annotation: Any) -> ArgumentKind:
    """The kind for an annotation. Raises TypeError if there is none."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return _either([kind_of(member) for member in inner])
    if origin is tuple and inner[-1] is not Ellipsis:
        return _row([kind_of(item) for item in inner])
    if origin in (tuple, Sequence):
        return _list(kind_of(inner[0]))
    raise TypeError(
        f"{annotation!r} is not the annotation of an operator argument (see compiler/ir/kinds.py)"
    )


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


def _either(members: list[ArgumentKind]) -> ArgumentKind:
    """The first kind that accepts the argument unchanged, or else the first that can convert it."""

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

    return ArgumentKind(" or ".join(dict.fromkeys(member.expected for member in members)), convert)


def _list(item: ArgumentKind) -> ArgumentKind:
    def convert(arg: Any) -> Arg:
        if not isinstance(arg, tuple):
            raise _Unfit
        return tuple([item.convert(each) for each in arg])

    return ArgumentKind(f"a list, each item {item.expected}", convert)


def _row(items: list[ArgumentKind]) -> ArgumentKind:
    def convert(arg: Any) -> Arg:
        if not isinstance(arg, tuple) or len(arg) != len(items):
            raise _Unfit
        return tuple([item.convert(each) for item, each in zip(items, arg, strict=True)])

    return ArgumentKind(
        f"a list of {len(items)}, in order: {', '.join(item.expected for item in items)}", convert
    )


_INTEGER = ArgumentKind("an integer", _number(_whole))
_PLAIN: dict[Any, ArgumentKind] = {
    LiveTensor: ArgumentKind("a tensor", _only(Tensor)),
    LiveInt: _INTEGER,
    LiveResult: ArgumentKind("an integer to write to", _only(SymInt)),
    int: _INTEGER,
    float: ArgumentKind("a number", _number(float)),
    bool: ArgumentKind("true or false", _number(bool)),
    str: ArgumentKind("a string", _only(str)),
    None: ArgumentKind("nothing", _only(NoneType)),
    NoneType: ArgumentKind("nothing", _only(NoneType)),
    object: ArgumentKind("anything", lambda arg: arg),
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
