"""Flags of llama.cpp that have another name here or no use: they are translated, or ignored with a line.

Flags that have the same name and meaning are in `sampling_flags` and `language`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand

NO_VALUE, ONE_VALUE = "", ".*"
SWITCH = r"(on|off|auto|0|1)(,(on|off|auto|0|1))*"


@dataclass(frozen=True, slots=True)
class Flag:
    names: tuple[str, ...]
    value: str  # what its value looks like. A word that does not is the next argument
    why: str = ""  # it is ignored
    becomes: Callable[[str, frozenset[str]], list[str] | None] | None = None  # None: ignored after all


def _model(value: str, _: frozenset[str]) -> list[str]:
    return [value]


def _kv_type(value: str, options: frozenset[str]) -> list[str] | None:
    return ["--kv-dtype", value] if value in ("f16", "f32") and "--kv-dtype" in options else None


def _chat(_: str, options: frozenset[str]) -> list[str] | None:
    return ["--chat"] if "--chat" in options else []


def _no_chat(_: str, options: frozenset[str]) -> list[str] | None:
    return [] if "--chat" in options else None  # `generate` continues a text unless it gets --chat


MODEL = Flag(("-m", "--model"), ONE_VALUE, becomes=_model)
FLAGS = (
    MODEL,
    Flag(("-cnv", "--conversation"), NO_VALUE, becomes=_chat),
    Flag(("-no-cnv", "--no-conversation"), NO_VALUE, "`pteron generate` continues a text", _no_chat),
    Flag(("-ctk", "--cache-type-k"), ONE_VALUE, "a KV cache is f16 or f32, see --kv-dtype", _kv_type),
    Flag(("-ctv", "--cache-type-v"), ONE_VALUE, "values are stored in the type of the keys, see --kv-dtype"),
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), ONE_VALUE, "all layers run on the GPU"),
    Flag(("-fa", "--flash-attn"), SWITCH, "attention is always computed in this way where it can be"),
    Flag(("-t", "--threads", "-tb", "--threads-batch"), ONE_VALUE, "the GPU computes, not threads"),
    Flag(("-b", "--batch-size"), ONE_VALUE, "see --ubatch-size for the tokens of a call"),
    Flag(("-ub", "--ubatch-size"), ONE_VALUE, "the program states its largest batch"),
    Flag(("--mlock", "--no-mmap"), NO_VALUE, "weights are on the GPU"),
    Flag(("--jinja",), NO_VALUE, becomes=lambda *_: []),  # chat templates are always Jinja
)


class LlamaCommand(TyperCommand):
    """A command for language models. It also takes the flags of llama.cpp."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name: option for option in self.params for name in (*option.opts, *option.secondary_opts)}
        translated, notes = translate(args, own)
        for note in notes:
            typer.echo(note, err=True)
        return super().parse_args(ctx, translated)


def translate(args: Iterable[str], own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The arguments with Pteron's names, and a line for each ignored flag. `own`: the command's options."""
    known = {name: flag for flag in FLAGS for name in flag.names if name not in own}
    options = frozenset(own)
    model: list[str] = []
    words: list[str] = []
    notes: list[str] = []
    rest = deque(args)
    while rest:
        word = rest.popleft()
        if word == "--":
            return [*model, *words, word, *rest], notes
        flag = known.get(word.partition("=")[0])
        if flag is None:
            words.append(word)
            if rest and _takes_value(own.get(word)):
                words.append(rest.popleft())
            continue
        value = _value(flag, word, rest)
        new = flag.becomes(value, options) if flag.becomes else None
        if new is None:
            notes.append(f"{word} {value}".rstrip() + f" is ignored: {flag.why}")
        elif flag is MODEL:
            model += new
        else:
            words += new
    return [*model, *words], notes


def _takes_value(option: Any) -> bool:
    return option is not None and not option.is_flag


def _value(flag: Flag, word: str, rest: deque[str]) -> str:
    """The value of a flag: after =, or the next word."""
    _, stated, value = word.partition("=")
    if stated or flag.value == NO_VALUE:
        return value
    if rest and re.fullmatch(flag.value, rest[0]):
        return rest.popleft()
    if flag.value == ONE_VALUE:
        raise typer.BadParameter(f"{word} needs a value")
    return ""
