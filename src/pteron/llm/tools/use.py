"""How one answer may use tools."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from pteron.llm.grammar import Source
from pteron.llm.tokenizer import Tokenizer
from pteron.llm.tools.call_formats import Family
from pteron.llm.tools.call_grammar import call_grammar, explained
from pteron.llm.tools.calls import CallReader
from pteron.llm.tools.definitions import ToolSelection


class ToolUse:
    """The tools of an answer, in the form that its model takes and writes."""

    def __init__(
        self, selection: ToolSelection, family: Family, schema: Mapping[str, Any] | None, tokenizer: Tokenizer
    ) -> None:
        self._selection = selection
        self._family = family
        self._schema = schema
        self._tokenizer = tokenizer

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """For the chat template."""
        return [tool.definition for tool in self._selection.offered]

    @cached_property
    def source(self) -> Source:
        """The grammar of the answer."""
        text = call_grammar(self._selection, self._family, self._schema, self._tokenizer)
        return Source("tools", text, partial(explained, text))

    @property
    def shown(self) -> frozenset[int]:
        """The special tokens that are part of a call's text."""
        family = self._family
        text = "".join((family.lead, family.begin, family.head, family.middle, family.tail, family.end))
        added = self._tokenizer.added_tokens.items()
        return frozenset(number for number, (token, special) in added if special and token in text)

    def reader(self) -> CallReader:
        schemas = {tool.name: tool.parameters for tool in self._selection.allowed}
        return CallReader(self._family, schemas)
