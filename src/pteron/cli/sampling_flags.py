"""The options of commands that generate text, with the names of llama-cli where the meaning is the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast, get_type_hints

import typer

if TYPE_CHECKING:
    from pteron.llm import Options


class Policy(StrEnum):
    stop = "stop"
    shift = "shift"


ContextPolicy: TypeAlias = Annotated[
    Policy,
    typer.Option(
        "--context-policy",
        help="If the context is full: stop the answer, or shift: drop the oldest messages and go on.",
    ),
]


_option = partial(typer.Option, rich_help_panel="Generation")


@dataclass(frozen=True, slots=True)
class SamplingFlags:
    """The fields have the names of `pteron.llm.Options`."""

    max_new_tokens: Annotated[
        int, _option("-n", "--predict", "--n-predict", help="Maximum tokens to generate; -1: no limit.")
    ] = -1
    temperature: Annotated[
        float, _option("--temp", "--temperature", min=0, help="Temperature; 0: the most probable token.")
    ] = 0.8
    top_k: Annotated[
        int, _option("--top-k", min=0, help="Sample from the k most probable tokens; 0: all.")
    ] = 40
    top_p: Annotated[
        float, _option("--top-p", help="Sample from the most probable tokens with this total; 1: all.")
    ] = 0.95
    min_p: Annotated[
        float, _option("--min-p", help="Minimum probability, relative to the best token; 0: all.")
    ] = 0.05
    typical_p: Annotated[
        float, _option("--typical", help="Locally typical sampling with this total; 1: off.")
    ] = 1.0
    xtc_probability: Annotated[
        float, _option("--xtc-probability", help="How often XTC removes the top tokens; 0: never.")
    ] = 0.0
    xtc_threshold: Annotated[
        float, _option("--xtc-threshold", help="XTC removes tokens above this probability but one.")
    ] = 0.1
    repetition_penalty: Annotated[
        float, _option("--repeat-penalty", help="Penalty for repeated tokens; 1: none.")
    ] = 1.0
    presence_penalty: Annotated[
        float, _option("--presence-penalty", help="Penalty for tokens that are in the text; 0: none.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, _option("--frequency-penalty", help="Penalty for each time that a token is in the text.")
    ] = 0.0
    penalty_last_n: Annotated[
        int, _option("--repeat-last-n", help="Number of last tokens that penalties look at; -1: all.")
    ] = 64
    dry_multiplier: Annotated[
        float, _option("--dry-multiplier", help="Penalty for repeated sequences (DRY); 0: none.")
    ] = 0.0
    dry_base: Annotated[float, _option("--dry-base", help="How fast the penalty grows with the length.")] = (
        1.75
    )
    dry_allowed_length: Annotated[
        int, _option("--dry-allowed-length", help="Shorter repetitions are allowed.")
    ] = 2
    dry_last_n: Annotated[
        int, _option("--dry-penalty-last-n", help="Number of last tokens to look at; -1: all.")
    ] = -1
    logit_bias: Annotated[
        list[str] | None,
        _option(
            "-l",
            "--logit-bias",
            metavar="TOKEN(+|-)BIAS",
            help="Add to a token's logit. Repeatable.",
        ),
    ] = None
    seed: Annotated[int, _option("-s", "--seed", help="Random seed; -1: a new one each time.")] = -1
    stop: Annotated[
        list[str] | None, _option("-r", "--reverse-prompt", help="Stop before this text. Repeatable.")
    ] = None

    def options(self) -> Options:
        """As the library's options. On the command line, -1 stands for None."""
        options: Any = {flag.name: getattr(self, flag.name) for flag in fields(self)}
        for name in ("max_new_tokens", "seed"):
            options[name] = None if options[name] < 0 else options[name]
        options["logit_bias"] = dict(map(_bias, self.logit_bias or []))
        options["stop"] = self.stop or []
        return cast("Options", options)


def _bias(text: str) -> tuple[int, float]:
    for sign in "+-":
        token, found, bias = text.partition(sign)
        if found:
            try:
                return int(token), float(sign + bias)
            except ValueError:
                break
    raise typer.BadParameter(f"--logit-bias {text}: write a token and what to add, such as 15043+1")


def takes_sampling_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `SamplingFlags`. It gets them as one argument, `flags`."""
    hints = get_type_hints(command, include_extras=True)
    flag_hints = get_type_hints(SamplingFlags, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [
        parameter.replace(annotation=hints[name], kind=keyword)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "flags"
    ]
    flags = [
        inspect.Parameter(f.name, keyword, default=f.default, annotation=flag_hints[f.name])
        for f in fields(SamplingFlags)
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = SamplingFlags(**{flag.name: given.pop(flag.name) for flag in flags})
        command(**given, flags=chosen)

    signature = inspect.Signature([*own, *flags])
    vars(run)["__signature__"] = signature
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run
