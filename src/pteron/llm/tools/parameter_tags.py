"""Arguments of a call that are written as tags, one for each parameter:

    <parameter=city>
    Rome
    </parameter>

A text stands there as it is. Every other value stands there as JSON. So only the schema of a parameter says
whether `12` is a number or a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pteron.llm.tools.definitions import Tool, ToolError

BEGIN, MIDDLE, END = "<parameter=", ">\n", "\n</parameter>\n"
NAME_RULE, TEXT_RULE = "PARAMETER_NAME", "PARAMETER_TEXT"
ANY, MARK = "(?s:.*)", r"\n<\/parameter>\n"
# Both rules end with the mark that ends them, so that they cannot end at any other place.
RULES = (rf"{NAME_RULE}: /[^<>\n]+>\n/", f"{TEXT_RULE}: /{ANY}{MARK}/ & ~/{ANY}{MARK}(?s:.+)/")
# The keywords of a schema that say nothing about the value.
NOTES = {
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$schema",
    "$comment",
    "$defs",
    "definitions",
}
OBJECT_KEYWORDS = {"type", "properties", "required", "additionalProperties"} | NOTES
TEXT_KEYWORDS = {"type"} | NOTES
PARAMETER = re.compile(rf"\s*{BEGIN}(?P<name>[^<>\n]+){MIDDLE}(?P<text>.*?){END}", re.DOTALL)
CLOSE = re.compile(r"\s*</function>")
# Models that were trained on Python write these, too.
PYTHON_WORDS = {"True": True, "False": False, "None": None}
TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


class ParameterSchemas:
    """The parameters of a tool: the schema of each, with references looked up."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self.definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        named = schema.get("properties") or {}
        required = schema.get("required") or []
        if not isinstance(named, Mapping):
            raise ToolError("properties must be an object")
        if not isinstance(required, list):
            raise ToolError("required must be a list")
        self.required = frozenset(map(str, required))
        self.named = {**named, **{name: {} for name in required if name not in named}}
        # Without named parameters, a schema that says nothing else takes any.
        self.others = schema.get("additionalProperties", not self.named)

    def schema_of(self, name: str) -> Any:
        return self.named.get(name, self.others)

    def alternatives(self, schema: Any, seen: frozenset[str] = frozenset()) -> Iterator[Mapping[str, Any]]:
        """Schemas without references, of one type or of none. A value satisfies one of them."""
        if not isinstance(schema, Mapping):  # true: any value
            yield {}
            return
        reference = schema.get("$ref")
        if reference is not None:
            if reference in seen:
                raise ToolError(f"$ref {reference!r} refers to itself")
            yield from self.alternatives(self._definition(reference), seen | {reference})
            return
        several = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(several, list):
            for each in several:
                yield from self.alternatives(each, seen)
        elif isinstance(schema.get("type"), list):
            yield from ({**schema, "type": each} for each in schema["type"])
        else:
            yield schema

    def _definition(self, reference: Any) -> Any:
        found: Any = self._schema
        for part in str(reference).removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is None:
            raise ToolError(f"$ref {reference!r} names nothing in the schema")
        return found


class ParameterGrammar:
    """The rule for the arguments of a tool."""

    def __init__(
        self, tool: Tool, literal: Callable[[str], str], json_rule: Callable[[Mapping[str, Any], bool], str]
    ) -> None:
        """literal: a text as a part of a rule. json_rule: a JSON value of a schema."""
        self._tool, self._literal, self._json_rule = tool, literal, json_rule

    def rule(self) -> str:
        try:
            parameters = ParameterSchemas(self._tool.parameters)
            self._check(self._tool.parameters, OBJECT_KEYWORDS)
            rules = [self._parameter(name, parameters) for name in parameters.named]
            if parameters.others is not False:
                value = self._value(parameters.others, parameters)
                rules.append(f"({self._literal(BEGIN)} {NAME_RULE} {value})*")
        except ToolError as error:
            raise ToolError(
                f"the parameters of the tool {self._tool.name!r} cannot be used: {error}"
            ) from None
        return " ".join(rules)

    def _parameter(self, name: str, parameters: ParameterSchemas) -> str:
        value = self._value(parameters.schema_of(name), parameters)
        rule = f"{self._literal(BEGIN + name + MIDDLE)} {value}"
        return rule if name in parameters.required else f"({rule})?"

    def _value(self, schema: Any, parameters: ParameterSchemas) -> str:
        rules = [
            rule for each in parameters.alternatives(schema) for rule in self._rules_of(each, parameters)
        ]
        return f"({' | '.join(dict.fromkeys(rules))})"

    def _rules_of(self, schema: Mapping[str, Any], parameters: ParameterSchemas) -> Iterator[str]:
        if "enum" in schema or "const" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            yield from (self._literal(_written(value) + END) for value in values)
        elif schema.get("type") in (None, "string"):
            self._check(schema, TEXT_KEYWORDS)
            yield TEXT_RULE
        else:
            value = self._json_rule({**schema, **parameters.definitions}, self._tool.strict)
            yield f"{value} {self._literal(END)}"

    def _check(self, schema: Mapping[str, Any], known: set[str]) -> None:
        unknown = sorted(schema.keys() - known)
        if unknown and self._tool.strict:
            raise ToolError(f"{unknown[0]} cannot be enforced in the format of this model's calls")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class ParameterReader:
    """Turns tags into a JSON object, as their text arrives."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.is_closed = False
        self._parameters = ParameterSchemas(schema)
        self._count = 0

    def read(self, text: str) -> tuple[int, str]:
        """How many characters were read, and the JSON text for them. A tag is read when it is complete."""
        place, made = 0, ""
        while found := PARAMETER.match(text, place):
            place = found.end()
            value = self._value(found["name"], found["text"])
            made += f"{', ' if self._count else '{'}{json.dumps(found['name'])}: {json.dumps(value)}"
            self._count += 1
        if close := CLOSE.match(text, place):
            place, self.is_closed = close.end(), True
            made += "}" if self._count else "{}"
        return place, made

    def _value(self, name: str, text: str) -> Any:
        """A text, unless it is JSON of a type that the schema allows."""
        try:
            value = PYTHON_WORDS[text] if text in PYTHON_WORDS else json.loads(text)
        except (ValueError, RecursionError):
            return text
        allowed = self._types(self._parameters.schema_of(name))
        kind = TYPES[type(value)]
        is_allowed = not allowed or kind in allowed or (kind == "integer" and "number" in allowed)
        return value if is_allowed else text

    def _types(self, schema: Any) -> set[str]:
        """The names of types. Empty: any type."""
        types: set[str] = set()
        for each in self._parameters.alternatives(schema):
            values = each.get("enum") or ([each["const"]] if "const" in each else [])
            if not values and "type" not in each:
                return set()
            types |= {TYPES[type(value)] for value in values} or {each["type"]}
        return types
