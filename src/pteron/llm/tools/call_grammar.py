"""The grammar of an answer that may call tools, in the Lark format of llguidance.

Before a call, the model may write any text. After the beginning of a call, only a call of an allowed tool can
follow, with arguments that satisfy its schema. After a call, only further calls can follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pteron.llm.prompt_process import JSON_OPTIONS
from pteron.llm.tokenizer import Tokenizer
from pteron.llm.tools.call_formats import Family
from pteron.llm.tools.definitions import Tool, ToolError, ToolSelection
from pteron.llm.tools.parameter_tags import RULES, ParameterGrammar

ANY = "(?s:.*)"
# What llguidance says, before it repeats the lines of the grammar.
ERROR = re.compile(
    r"at (?P<line>\d+)\(\d+\): (?:failed to compile JSON schema: )?(?P<reason>.*?)(?:\n +\d+ \| .*)?",
    re.DOTALL,
)
CALL_RULE = re.compile(r'call_\d+: "([A-Za-z0-9_-]+)')


class Marks:
    """The tokens of a vocabulary that no text of a grammar matches. llguidance matches them by number."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.added_tokens.items()
        tokens = {number: text for number, (text, special) in added if special or _is_tag(text)}
        self.numbers = {text: number for number, text in tokens.items()}
        # A model writes some tags in its text, such as <think>. They are not special.
        self.in_text = [number for number, (text, special) in added if _is_tag(text) and not special]
        texts = sorted(self.numbers, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, texts))})" if texts else "(?!)")

    def literal(self, text: str) -> str:
        """A text as a sequence of strings and tokens."""
        parts = [part for part in self._pattern.split(text) if part]
        return " ".join(self._token(part) or json.dumps(part) for part in parts)

    def _token(self, text: str) -> str | None:
        number = self.numbers.get(text)
        return None if number is None else f"<[{number}]>"


def _is_tag(text: str) -> bool:
    return text.startswith("<") and text.endswith(">")


def call_grammar(
    selection: ToolSelection, family: Family, schema: Mapping[str, Any] | None, tokenizer: Tokenizer
) -> str:
    """`schema`: an answer that is no call is JSON of this schema. None: it is any text."""
    marks = Marks(tokenizer)
    beginnings = dict.fromkeys([family.begin, family.lead + family.begin])
    begin = f"({' | '.join(map(marks.literal, beginnings))})"
    calls = _calls(selection, family, marks)
    if selection.must_call:
        rules = [f"start: {begin} calls"]
    elif schema is not None:
        if family.first_only:
            reason = "both would be JSON, and this model marks its calls with nothing else"
            raise ToolError(f"a schema and tools cannot be used together: {reason}", "response_format")
        rules = [f"start: answer | {begin} calls", f"answer: {_json(schema, strict=True)}"]
    elif family.first_only:
        rules = _text_or_call(family, begin, marks)
    else:
        rules = _text_then_calls(family, marks)
    return "\n".join(["%llguidance {}", *rules, *calls])


def _text_or_call(family: Family, begin: str, marks: Marks) -> list[str]:
    tags = _tags(marks, family)
    more = f" ({tags} TEXT)*" if tags else ""
    return [
        f"start: FIRST{more} | {begin} calls",
        f"FIRST: /{ANY}/ & ~/({_regex(family.lead)})?{_regex(family.begin)}{ANY}/",
        *([f"TEXT: /{ANY}/"] if tags else []),
    ]


def _text_then_calls(family: Family, marks: Marks) -> list[str]:
    """The beginning of a call may be a token, or the same text in several tokens."""
    tags, mark = _tags(marks, family), _regex(family.begin)
    before = f"(TEXT {tags})* " if tags else ""
    token = f" | TEXT {marks.literal(family.begin)}" if family.begin in marks.numbers else ""
    return [
        f"start: {before}TEXT | {before}(UP_TO_CALL{token}) calls",
        f"TEXT: /{ANY}/ & ~/{ANY}{mark}{ANY}/",
        f"UP_TO_CALL: /{ANY}{mark}/ & ~/{ANY}{mark}(?s:.+)/",
    ]


def _tags(marks: Marks, family: Family) -> str:
    """Any tag that may be part of a text."""
    others = [number for number in marks.in_text if number != marks.numbers.get(family.begin)]
    return f"<[{','.join(map(str, others))}]>" if others else ""


def _calls(selection: ToolSelection, family: Family, marks: Marks) -> list[str]:
    """The rules from the end of `begin` to the end of the answer."""
    tail, again, end = (marks.literal(text) for text in (family.tail, family.again or "", family.end))
    more = f" ({again} call)*" if selection.several and family.again is not None else ""
    names = " | ".join(f"call_{number}" for number in range(len(selection.allowed)))
    return [
        f"calls: {marks.literal(family.head)} call{more} {end}",
        f"call: ({names}) {tail}",
        *(
            f"call_{number}: {marks.literal(tool.name + family.middle)} {_arguments(tool, family, marks)}"
            for number, tool in enumerate(selection.allowed)
        ),
        *(RULES if family.has_parameter_tags else ()),
    ]


def _arguments(tool: Tool, family: Family, marks: Marks) -> str:
    if family.has_parameter_tags:
        return ParameterGrammar(tool, marks.literal, _json).rule()
    return _json(tool.parameters, tool.strict)


def _json(schema: Mapping[str, Any], strict: bool) -> str:
    try:
        return "%json " + json.dumps({**schema, "x-guidance": {**JSON_OPTIONS, "lenient": not strict}})
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"a schema is not JSON: {error}") from error


def explained(grammar: str, error: str) -> str:
    """An error of llguidance, which names a line of the grammar, as an error of the tool in that line."""
    found = ERROR.fullmatch(error)
    line = grammar.splitlines()[int(found["line"]) - 1] if found else ""
    tool = CALL_RULE.match(line)
    what = (
        f"the parameters of the tool {tool[1]!r}"
        if tool
        else "the schema"
        if line.startswith("answer")
        else ""
    )
    return f"{what or 'tools'} cannot be used: {found['reason'] if found and what else error}"


def _regex(text: str) -> str:
    return re.escape(text).replace("/", r"\/")
