"""The tools that a caller offers, in OpenAI's format, and which of them the answer may call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pteron.errors import InputError
from pteron.llm.closed_schema import closed

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TOOLS = 128
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class ToolError(InputError):
    """A tool, or the choice of tools, is wrong. `param` is the name of the option."""

    def __init__(self, message: str, param: str = "tools") -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    parameters: the JSON schema of its arguments, which are an object.
    strict: refuse a schema with a keyword that cannot be enforced. Otherwise that keyword is ignored.
        The arguments then have only the properties that the schema states.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool

    @classmethod
    def read(cls, given: Any, where: str) -> Tool:
        """A tool in OpenAI's format: {"type": "function", "function": {"name": ...}}."""
        if not isinstance(given, Mapping) or given.get("type") != "function":
            raise ToolError(f"{where} must be an object with the type function")
        function = given.get("function")
        if not isinstance(function, Mapping):
            raise ToolError(f"{where}.function must be an object with a name")
        where = f"{where}.function"
        strict = function.get("strict")
        if strict not in (None, True, False):
            raise ToolError(f"{where}.strict must be true or false")
        description = function.get("description") or ""
        if not isinstance(description, str):
            raise ToolError(f"{where}.description must be a text")
        parameters = _parameters(function, where)
        try:
            parameters = closed(parameters) if strict else parameters
        except RecursionError:
            raise ToolError(f"{where}.parameters is nested too deeply") from None
        return cls(_name(function.get("name"), where), description, parameters, bool(strict))

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        wanted = "1 to 64 letters, digits, underscores or hyphens"
        raise ToolError(f"{where}.name is {name!r}: expected {wanted}")
    return name


def _parameters(function: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    given = function.get("parameters")
    if given is None:
        return NO_PARAMETERS
    if not isinstance(given, Mapping) or given.get("type", "object") != "object":
        raise ToolError(f"{where}.parameters must be a JSON schema with the type object")
    return {"type": "object", **given}


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """What the caller offers and allows.

    must_call: the answer is a call. Otherwise the model may also answer with text.
    several: the answer may have more than one call.
    """

    offered: tuple[Tool, ...]
    allowed: tuple[Tool, ...]
    must_call: bool
    several: bool

    @classmethod
    def read(cls, tools: Any, choice: Any, several: bool) -> ToolSelection | None:
        """None if there are no tools, or none may be called."""
        offered = _tools(tools)
        if not offered:
            if choice in (None, "none", "auto"):
                return None
            raise ToolError("tool_choice needs tools", "tool_choice")
        name = _chosen_name(choice)
        if name is None:
            if choice == "none":
                return None
            if choice not in (None, "auto", "required"):
                wanted = 'none, auto, required or {"type": "function", "function": {"name": ...}}'
                raise ToolError(f"tool_choice must be {wanted}", "tool_choice")
            return cls(offered, offered, choice == "required", several)
        allowed = tuple(tool for tool in offered if tool.name == name)
        if not allowed:
            known = ", ".join(tool.name for tool in offered)
            raise ToolError(f"tool_choice names {name!r}, but the tools are: {known}", "tool_choice")
        return cls(offered, allowed, must_call=True, several=False)


def _tools(given: Any) -> tuple[Tool, ...]:
    if given is None:
        return ()
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ToolError("tools must be a list")
    if len(given) > MOST_TOOLS:
        raise ToolError(f"tools has {len(given)} entries: expected at most {MOST_TOOLS}")
    tools = tuple(Tool.read(each, f"tools[{place}]") for place, each in enumerate(given))
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ToolError(f"tools has two functions with the name {twice!r}")
    return tools


def _chosen_name(choice: Any) -> str | None:
    """The name in {"type": "function", "function": {"name": ...}}."""
    if not isinstance(choice, Mapping) or choice.get("type") != "function":
        return None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
