"""The operator registry.

An operator is one plain function of its live arguments. It resizes its outputs and returns its
dispatches; it is called at load with live == max, and again whenever something it reads changed.
The function's signature is the operator's schema:

- the parameters stand in the order of the serialised arguments;
- the last one is `out` (a tensor or SymInt) or `outs` (a list of them);
- an annotation `int`, `float` or `bool` (or `| None`) says what a scalar is coerced to: the exporter
  merges equal scalars across types, so a file may well say 1 where 1.0 is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pteron.ir.values import Arg, SymInt, Tensor, Value, values_in

if TYPE_CHECKING:
    from pteron.ir.work import WorkRule


class OpError(Exception):
    """Raised by an operator's rule; the sweep adds which node it was and picks the public error."""


_checking = ContextVar("checking", default=True)


def check(condition: bool, message: str) -> None:
    """Refuse a call unless a condition on its arguments holds."""
    if not condition and _checking.get():
        raise OpError(message)


@contextmanager
def unchecked() -> Iterator[None]:
    """Let rules run on made-up integers: at load, to see the kernels of a node whose SymInts are unknown."""
    token = _checking.set(False)
    try:
        yield
    finally:
        _checking.reset(token)


@dataclass(frozen=True, slots=True)
class OpSpec:
    name: str
    rule: Callable[..., Any]
    parameters: tuple[str, ...]
    kinds: tuple[str | None, ...]  # per parameter: the scalar type to coerce to
    mutates: frozenset[str]  # tensors written in place
    uniforms: frozenset[str]  # SymInts that kernels read; they are not read when planning
    alias: str | None  # `out` has the same bytes as this argument, in the same order
    work: WorkRule | None  # operations and bytes; None: no product, and every tensor is read whole

    def bind(self, args: Iterable[Arg]) -> tuple[Arg, ...]:
        """Arguments as the rule takes them: counted, and scalars coerced."""
        args = tuple(args)
        if len(args) != len(self.parameters):
            raise OpError(
                f"takes {len(self.parameters)} arguments {self.parameters}, the file has {len(args)}"
            )
        return tuple(map(_coerce, self.parameters, self.kinds, args))

    def outputs(self, args: tuple[Arg, ...]) -> tuple[Value, ...]:
        return tuple(values_in(args[-1]))

    def mutated(self, args: tuple[Arg, ...]) -> tuple[Tensor, ...]:
        return tuple(
            arg
            for name, arg in zip(self.parameters, args, strict=True)
            if name in self.mutates and isinstance(arg, Tensor)
        )


_REGISTRY: dict[str, OpSpec] = {}


def op(
    *names: str,
    mutates: Iterable[str] = (),
    uniforms: Iterable[str] = (),
    alias: str | None = None,
    work: WorkRule | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule under the names that files use for it."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(rule).parameters
        order = tuple(parameters)
        if not order or order[-1] not in ("out", "outs"):
            raise TypeError(f"{names[0]}: the last parameter must be `out` or `outs`")
        for listed in (*mutates, *uniforms, *([alias] if alias else [])):
            if listed not in order:
                raise TypeError(f"{names[0]}: there is no parameter `{listed}`")
        for name in names:
            if name in _REGISTRY:
                raise TypeError(f"{name} is registered twice")
            _REGISTRY[name] = OpSpec(
                name,
                rule,
                order,
                tuple(_kind(p.annotation) for p in parameters.values()),
                frozenset(mutates),
                frozenset(uniforms),
                alias,
                work,
            )
        return rule

    return register


def find(name: str) -> OpSpec | None:
    return _REGISTRY.get(name)


def registered() -> dict[str, OpSpec]:
    return dict(_REGISTRY)


def _kind(annotation: Any) -> str | None:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    base = text.removesuffix(" | None")
    return base if base in ("int", "float", "bool") else None


def _coerce(name: str, kind: str | None, arg: Arg) -> Arg:
    if kind is None or arg is None or isinstance(arg, (Tensor, SymInt, tuple, str)):
        return arg
    if kind == "float":
        return float(arg)
    if kind == "bool":
        return bool(arg)
    if isinstance(arg, float) and not arg.is_integer():
        raise OpError(f"`{name}` must be an integer, the file has {arg}")
    return int(arg)
