"""The operator registry.

An operator is one function of its live arguments. It resizes its outputs and returns its dispatches. It is
called at load with the largest shapes, and again whenever a value that it reads has changed. The signature of
the function is the schema of the operator:

- the parameters are in the order of the serialized arguments;
- the last one is `out` (a tensor or SymInt) or `outs` (a list of them);
- each annotation gives the kind of the argument (see `pteron.compiler.ir.kinds`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.integer_rules import IntegerRule
from pteron.compiler.ir.kinds import ArgumentKind, kind_of
from pteron.compiler.ir.values import Arg, Node, SymInt, Tensor, values_in

if TYPE_CHECKING:
    from pteron.compiler.ir.row_rules import RowRule
    from pteron.compiler.ir.work import WorkRule

# Exceptions of arithmetic on a file's numbers that do not fit together. AttributeError is not in this list:
# kinds are checked before a rule runs, so an AttributeError is a bug in the rule.
_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class OpSpec:
    name: str
    rule: Callable[..., Any]
    parameters: tuple[str, ...]
    kinds: tuple[ArgumentKind, ...]  # one per parameter
    mutates: frozenset[str]  # tensors written in place
    uniforms: frozenset[str]  # SymInts that kernels read; plans do not depend on them
    alias: str | None  # `out` has the same bytes as this argument
    work: WorkRule | None  # operations and bytes; None: no multiplications, and every tensor is read once
    rows: RowRule | None  # how it treats the rows of a sequence; None: it is taken to mix them
    integers: IntegerRule  # what it does with 64-bit integers

    def bind(self, args: Iterable[Arg]) -> tuple[Arg, ...]:
        """The arguments for the rule: their number and kinds are checked, scalars are converted."""
        args = tuple(args)
        if len(args) != len(self.parameters):
            raise OpError(
                f"takes {len(self.parameters)} arguments {self.parameters}, the file has {len(args)}"
            )
        return tuple(
            [kind.take(name, arg) for name, kind, arg in zip(self.parameters, self.kinds, args, strict=True)]
        )

    def evaluate(self, live_args: Sequence[Any]) -> Any:
        """Call the rule. If it cannot compute with the arguments, they are refused with an OpError."""
        try:
            return self.rule(*live_args)
        except ZeroDivisionError:
            raise OpError("division by zero") from None
        except _FAULTS as error:
            reason = f"{type(error).__name__}: {error}"
            raise OpError(f"its arguments do not fit together ({reason})") from error

    def node(
        self,
        args: tuple[Arg, ...],
        origin: str,
        *,
        index: int = 0,
        when: SymInt | None = None,
        replaces: tuple[Node, ...] = (),
    ) -> Node:
        """Make a call of the operator. The arguments are bound; the last one holds the outputs."""
        reads = tuple([value for arg in args[:-1] for value in values_in(arg)])
        writes = tuple(values_in(args[-1]))
        mutates = self.mutated(args)
        return Node(index, self.name, self, args, reads, writes, mutates, origin, when, replaces)

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
    rows: RowRule | None = None,
    integers: IntegerRule | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule under the operator names that files use."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(rule, eval_str=True).parameters
        order = tuple(parameters)
        if not order or order[-1] not in ("out", "outs"):
            raise TypeError(f"{names[0]}: the last parameter must be `out` or `outs`")
        for listed in (*mutates, *uniforms, *([alias] if alias else [])):
            if listed not in order:
                raise TypeError(f"{names[0]}: there is no parameter `{listed}`")
        kinds = tuple([_kind(names[0], parameter) for parameter in parameters.values()])
        for name in names:
            if name in _REGISTRY:
                raise TypeError(f"{name} is registered twice")
            _REGISTRY[name] = OpSpec(
                name,
                rule,
                order,
                kinds,
                frozenset(mutates),
                frozenset(uniforms),
                alias,
                work,
                rows,
                integers or IntegerRule((alias,) if alias else ()),
            )
        return rule

    return register


def find(name: str) -> OpSpec | None:
    return _REGISTRY.get(name)


def known(name: str) -> OpSpec:
    """The operator that Pteron itself asks for."""
    spec = _REGISTRY.get(name)
    assert spec is not None, f"there is no operator {name}"
    return spec


def registered() -> dict[str, OpSpec]:
    return dict(_REGISTRY)


def _kind(operator: str, parameter: inspect.Parameter) -> ArgumentKind:
    try:
        return kind_of(parameter.annotation)
    except TypeError as error:
        raise TypeError(f"{operator}: parameter `{parameter.name}`: {error}") from None
