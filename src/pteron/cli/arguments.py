"""Parse shapes and inputs on the command line, such as `1,7,64` or `input0=1,7,64`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import typer

_NAMED = re.compile(r"(?P<name>[A-Za-z_][^=]*)=(?P<value>.*)")


def split_name(text: str) -> tuple[str | None, str]:
    """Split `input0=x.npy` into (`input0`, `x.npy`). Without a name: (None, text)."""
    match = _NAMED.fullmatch(text)
    return (match["name"], match["value"]) if match else (None, text)


def parse_shape(text: str) -> tuple[int, ...]:
    parts = [part for part in text.strip("()[] ").split(",") if part.strip()]
    try:
        sizes = tuple(int(part) for part in parts)
    except ValueError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise typer.BadParameter(f"{text!r} is not a shape: write sizes with commas, such as 1,7,64")
    return sizes


def parse_bounds(texts: Iterable[str] | None) -> dict[str, tuple[int | tuple[int, int] | None, ...]] | None:
    """The `shapes` of `pteron.load`, from arguments such as `x=1,512,-`."""
    shapes = {}
    for text in texts or ():
        name, value = split_name(text)
        if name is None:
            raise typer.BadParameter(f"--bound {text!r}: name the input, such as x={text}")
        if name in shapes:
            raise typer.BadParameter(f"--bound {text!r}: {name} is given twice")
        shapes[name] = tuple(_bound(text, part.strip()) for part in value.strip("()[] ").split(","))
    return shapes or None


def _bound(text: str, part: str) -> int | tuple[int, int] | None:
    if part == "-":
        return None
    low, dots, high = part.partition("..")
    if not (low.isdecimal() and (high.isdecimal() if dots else True)):
        raise typer.BadParameter(
            f"--bound {text!r}: write sizes with commas, such as 1,512,- or 1,512..512,-"
        )
    return (int(low), int(high)) if dots else int(low)


def in_order(given: Iterable[str], names: Iterable[str], what: str) -> dict[str, str]:
    """Arguments by input name. Named arguments go to their input, the others in order to the rest."""
    known = list(names)
    taken: dict[str, str] = {}
    nameless: list[str] = []
    for text in given:
        name, value = split_name(text)
        if name is None:
            nameless.append(value)
        elif name not in known:
            raise typer.BadParameter(
                f"{what} {text!r}: there is no such input; the inputs are {', '.join(known) or 'none'}"
            )
        elif name in taken:
            raise typer.BadParameter(f"{what} {text!r}: {name} is given twice")
        else:
            taken[name] = value
    free = [name for name in known if name not in taken]
    if len(nameless) > len(free):
        raise typer.BadParameter(
            f"{what} is given for {len(nameless)} inputs, but only {len(free)} can take one"
        )
    return taken | dict(zip(free, nameless, strict=False))
