"""The page of the site that describes the command `pteron`, made from the same texts as `--help`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from pteron.cli.commands import app

HEAD = """\
# Commands

This page has the texts of `pteron COMMAND --help`. With `--json`, a command prints JSON instead of tables.
`pteron --install-completion` completes commands and options in your shell.

"""


def page() -> str:
    root: Any = typer.main.get_command(app)
    parts = [HEAD, *_options(root, "Options of all commands, before the name of the command")]
    for name, command in root.commands.items():
        parts += _section(f"pteron {name}", command)
    return "".join(parts)


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}\n\n{command.help}\n\n"
    nested = getattr(command, "commands", None)
    if nested:
        for word, inner in nested.items():
            yield f"```\n{name} {word}\n```\n\n{inner.help}\n\n"
            yield from _options(inner)
        return
    arguments = [p for p in command.params if not _is_option(p)]
    yield f"```\n{' '.join([name, *map(_placeholder, arguments), '[OPTIONS]'])}\n```\n\n"
    yield from _table("argument", ((f"`{_placeholder(p)}`", p) for p in arguments))
    yield from _options(command)


def _options(command: Any, title: str | None = None) -> Iterator[str]:
    options = [p for p in command.params if _is_option(p) and not p.hidden and p.name != "help"]
    for panel, members in groupby(options, lambda p: p.rich_help_panel or title):
        if panel:
            yield f"**{panel}**\n\n"
        yield from _table("option", ((_names(p), p) for p in members))


def _table(title: str, rows: Any) -> Iterator[str]:
    lines = [f"| {names} | {_meaning(parameter)} |\n" for names, parameter in rows]
    if lines:
        yield f"| {title} | meaning |\n| --- | --- |\n{''.join(lines)}\n"


def _is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _placeholder(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=len, reverse=True)
    value = "" if parameter.is_flag or parameter.count else f" {parameter.metavar or _kind(parameter)}"
    return _cell(", ".join([f"`{names[0]}{value}`", *(f"`{name}`" for name in names[1:])]))


def _kind(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    element = next(iter(get_args(annotation)), annotation)  # of a list
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return {int: "N", float: "X", Path: "PATH"}.get(element, "TEXT")


def _meaning(parameter: Any) -> str:
    text = parameter.help or ""
    default = parameter.default
    if isinstance(default, (int, float, str)) and not isinstance(default, bool) and default != "":
        text += f" Default: `{default}`."
    if parameter.envvar:
        text += f" Environment variable: `{parameter.envvar}`."
    return _cell(text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
