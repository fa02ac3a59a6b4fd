"""The documents of the repository: their links, headings, commands and code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob(".github/**/*.md"),
        ROOT / "benchmarks/README.md",
    )
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.M)
_INLINE = re.compile(r"(?<!`)`(?P<text>pteron [^`]+)`(?!`)")
_SKIP = re.compile(r"<!-- not run: [^>]+-->\n\Z")


@dataclass(frozen=True)
class Block:
    """A block of code in a document."""

    language: str
    text: str
    line: int  # of its first line
    runs: bool  # no comment before it says why it cannot run


@cache
def text_of(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


def blocks(document: str) -> list[Block]:
    text = text_of(document)
    return [
        Block(
            found["language"],
            found["text"],
            text.count("\n", 0, found.start()) + 2,
            not _SKIP.search(text[: found.start()]),
        )
        for found in _FENCE.finditer(text)
    ]


def prose(document: str) -> str:
    """The text without blocks of code."""
    return _FENCE.sub("", text_of(document))


def links(document: str) -> list[str]:
    """The targets of links to other files, and to headings."""
    found = [match["target"] for match in _LINK.finditer(prose(document))]
    return [target for target in found if not re.match(r"\w+:", target)]


@cache
def anchors(document: str) -> frozenset[str]:
    """The anchors that code hosts and MkDocs give to the headings."""
    titles = [re.sub(r"[^\w\- ]", "", m["text"].strip().lower()) for m in _HEADING.finditer(prose(document))]
    return frozenset(title.replace(" ", "-") for title in titles)


def commands(document: str) -> Iterator[list[str]]:
    """The words of every `pteron` command in a document. Two blanks or a # begin a comment."""
    for block in blocks(document):
        if block.language in ("", "bash", "sh", "console"):
            for line in block.text.splitlines():
                if line.strip().startswith("pteron "):
                    yield _words(line)
    for match in _INLINE.finditer(prose(document)):
        yield _words(match["text"])


def _words(line: str) -> list[str]:
    command = re.split(r" {2,}| #", line.strip())[0]
    try:
        return shlex.split(command)
    except ValueError:  # an unfinished quote in an example
        return command.split()
