"""The options of commands that generate text, with the names of llama-cli where the meaning is the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from pteron.llm.options import TABLE, ContextPolicy, Option

Policy: TypeAlias = Annotated[
    ContextPolicy,
    typer.Option(
        "--context-policy",
        help="If the context is full: stop the answer, or shift: drop the oldest messages and go on.",
    ),
]


def takes_sampling_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the table. It gets them as one argument, `options`."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "options"
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        options = {row.name: _value(row, given.pop(row.name)) for row in TABLE.values()}
        command(**given, options=options)

    signature = inspect.Signature([*own, *map(_parameter, TABLE.values())])
    vars(run)["__signature__"] = signature
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run


def _parameter(row: Option) -> inspect.Parameter:
    """An option as an argument of a command, where -1 stands for None."""
    is_list = row.kind not in (int, float)
    help = row.text.replace("None", "-1") + " Repeatable." * is_list
    metavar = "TOKEN(+|-)BIAS" if row.name == "logit_bias" else None
    flag = typer.Option(*row.flags, help=help, metavar=metavar, rich_help_panel="Generation")
    return inspect.Parameter(
        row.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if is_list else -1 if row.typed is None else row.typed,
        annotation=Annotated[list[str] | None if is_list else row.kind, flag],
    )


def _value(row: Option, given: Any) -> Any:
    """What was typed, as in Python."""
    if row.default is None and given == -1:
        return None
    value = dict(map(_bias, given or ())) if row.kind is dict else given or () if row.kind is tuple else given
    if row.check and not row.check.holds(value):
        raise typer.BadParameter(f"{row.flags[0]} is {given}: expected {row.check.expected}")
    return value


def _bias(text: str) -> tuple[int, float]:
    for sign in "+-":
        token, found, bias = text.partition(sign)
        if found:
            try:
                return int(token), float(sign + bias)
            except ValueError:
                break
    raise typer.BadParameter(f"--logit-bias {text}: write a token and what to add, such as 15043+1")
