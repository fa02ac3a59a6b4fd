"""The table of options in docs/generation.md: `python -m tests.support.option_table` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pteron.llm.options import TABLE, Option

PATH = Path(__file__).parents[2] / "docs" / "generation.md"
HEAD = "| Python | command line | server | default | |\n| --- | --- | --- | --- | --- |\n"


def with_table(page: str) -> str:
    """The page with its table of options as it should be."""
    table = HEAD + "".join(map(_line, TABLE.values()))
    return re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table, page)


def _line(row: Option) -> str:
    cells = [_names([row.name]), _names(row.flags), _names(row.names), _default(row), row.text]
    return f"| {' | '.join(cells)} |\n"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(row: Option) -> str:
    others = {"command line": row.typed, "server": row.sent}
    differ = [f"{place}: {_value(value)}" for place, value in others.items() if value != row.default]
    return ", ".join([_value(row.default), *differ])


def _value(value: Any) -> str:
    return "" if value is None or value in ((), {}) else f"{value:g}"


if __name__ == "__main__":
    PATH.write_text(with_table(PATH.read_text("utf-8")), "utf-8")
