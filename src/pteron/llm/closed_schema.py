"""JSON schemas in OpenAI's strict form: an object has the properties that its schema states, and no others.

OpenAI refuses a strict schema that does not say `additionalProperties: false`. Here it need not say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NAMED = ("properties", "$defs", "definitions")  # schemas by name
LISTED = ("anyOf", "oneOf", "prefixItems")
ONE = ("items", "additionalProperties")
# A schema with one of these says itself which other properties it allows, or gets more from elsewhere.
OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "anyOf", "oneOf", "$ref", "if")


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema, closed. One with `allOf` stays as it is: each of its parts states only some properties."""
    return schema if _has_all_of(schema) else _closed(schema)


def _has_all_of(schema: Any) -> bool:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if "allOf" in part:
                return True
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False


def _closed(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made = {**schema, **dict(_closed_parts(schema))}
    if "properties" in made and not any(name in made for name in OPEN):
        made["additionalProperties"] = False
    return made


def _closed_parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            yield key, {name: _closed(part) for name, part in value.items()}
        elif key in LISTED and isinstance(value, list):
            yield key, [_closed(part) for part in value]
        elif key in ONE:
            yield key, _closed(value)
