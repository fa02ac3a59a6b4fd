"""Tables for notebooks: what `_repr_html_` of programs, methods, profiles and reports returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def section(title: str, *parts: str) -> str:
    """A heading and the parts below it."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = _row("th", header)
    body = "".join(_row("td", row) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Iterable[Any]) -> str:
    made = "".join(f"<{tag} style='text-align:left'>{escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{made}</tr>"


class Shapes(dict[str, Any]):
    """Live shapes by name: a dictionary that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return table(("name", "live shape"), ((name, _text(shape)) for name, shape in self.items()))


def _text(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]" if isinstance(shape, tuple) else str(shape)


def facts(entries: Mapping[str, Any]) -> str:
    """One line of names and values."""
    made = (f"{escape(name)}: {escape(str(value))}" for name, value in entries.items())
    return f"<p>{' · '.join(made)}</p>"


def size(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:,.2f} ms"
