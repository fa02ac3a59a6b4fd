"""Read tool calls out of a model's text, while it is written."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pteron.llm.tools.call_formats import Family
from pteron.llm.tools.definitions import NAME, NO_PARAMETERS
from pteron.llm.tools.parameter_tags import ParameterReader

LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A part of a call. The first part of each call has its id and name, the others more of its arguments."""

    index: int
    arguments: str = ""  # a part of a JSON text
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call."""

    id: str
    name: str
    arguments: dict[str, Any]


def complete_calls(deltas: Iterable[CallDelta]) -> list[ToolCall]:
    """Without the last call, if the answer ended inside it."""
    heads: dict[int, CallDelta] = {}
    texts: dict[int, str] = {}
    for delta in deltas:
        heads.setdefault(delta.index, delta)
        texts[delta.index] = texts.get(delta.index, "") + delta.arguments
    calls = []
    for index, head in heads.items():
        try:
            calls.append(ToolCall(head.id or "", head.name or "", json.loads(texts[index])))
        except ValueError:
            continue
    return calls


def new_id() -> str:
    """Mistral's templates accept only ids of this length."""
    return "".join(random.choices(LETTERS, k=9))


class CallReader:
    """Divides an answer into text and calls. Text that may be the beginning of a call is held back."""

    def __init__(self, family: Family | None, schemas: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """None: the answer has no calls. schemas: of the arguments, by the names of the tools."""
        self.count = 0  # complete calls
        self._family = family
        self._schemas = schemas or {}
        self._unread = ""
        self._has_text = False
        self._begun = 0
        self._arguments: ObjectReader | ParameterReader | None = None
        if family:
            before = f"(?:{re.escape(family.lead)})?{re.escape(family.begin)}"
            self._first = _head(before + re.escape(family.head), family.middle)
            self._next = _head(re.escape(family.again or ""), family.middle)

    def push(self, text: str, ended: bool) -> tuple[str, tuple[CallDelta, ...]]:
        """More of the answer. `ended`: there is no more."""
        if self._family is None:
            return text, ()
        self._unread += text
        visible, deltas = "", []
        while self._unread and (step := self._read_call()):
            before, delta = step
            visible += before
            deltas.append(delta)
        if not self._begun:
            visible += self._free_text(self._family, ended)
        self._has_text = self._has_text or bool(visible)
        return visible, tuple(deltas)

    def _read_call(self) -> tuple[str, CallDelta] | None:
        """The text before a call, and a part of the call. None if there is no call yet."""
        if self._arguments is not None:
            delta = self._more_arguments(self._arguments)
            return None if delta is None else ("", delta)
        if self._begun:
            head = self._next.search(self._unread)
        elif self._family and self._family.first_only:
            head = None if self._has_text else self._first.match(self._unread)
        else:
            head = self._first.search(self._unread)
        if head is None:
            return None
        before, self._unread = self._unread[: head.start()], self._unread[head.end() :]
        delta = CallDelta(self._begun, id=new_id(), name=head["name"])
        text = "" if self._begun else before
        self._begun += 1
        self._arguments = self._argument_reader(head["name"])
        return text, delta

    def _argument_reader(self, name: str) -> ObjectReader | ParameterReader:
        if self._family and self._family.has_parameter_tags:
            return ParameterReader(self._schemas.get(name, NO_PARAMETERS))
        return ObjectReader()

    def _more_arguments(self, arguments: ObjectReader | ParameterReader) -> CallDelta | None:
        """None if no further part is complete."""
        length, part = arguments.read(self._unread)
        self._unread = self._unread[length:]
        if arguments.is_closed:
            self._arguments = None
            self.count += 1
        return CallDelta(self._begun - 1, part) if part else None

    def _free_text(self, family: Family, ended: bool) -> str:
        """What cannot be the beginning of a call."""
        text = self._unread
        beginnings = (family.begin, family.lead + family.begin)
        if ended or (family.first_only and self._has_text):
            kept = len(text)
        elif family.first_only:
            may_begin = any(b.startswith(text) or text.startswith(b) for b in beginnings)
            kept = 0 if may_begin else len(text)
        else:
            kept = _place_of(text, family.begin)
        self._unread = text[kept:]
        return text[:kept]


def _head(before: str, middle: str) -> re.Pattern[str]:
    return re.compile(f"{before}(?P<name>{NAME.pattern}){re.escape(middle)}")


def _place_of(text: str, mark: str) -> int:
    """The index of the mark, else of an end of the text that may begin it, else the length of the text."""
    found = text.find(mark)
    if found >= 0:
        return found
    starts = range(max(0, len(text) - len(mark) + 1), len(text))
    return next((start for start in starts if mark.startswith(text[start:])), len(text))


class ObjectReader:
    """Finds the end of a JSON object, as its text arrives."""

    def __init__(self) -> None:
        self.is_closed = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def read(self, text: str) -> tuple[int, str]:
        """How many characters of the text belong to the object, and these characters."""
        length = self._length_in(text)
        return length, text[:length]

    def _length_in(self, text: str) -> int:
        for place, character in enumerate(text):
            if self._in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif character == "\\":
                    self._is_escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.is_closed = True
                    return place + 1
        return len(text)
