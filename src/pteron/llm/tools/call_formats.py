"""How models write tool calls. The text of the chat template shows to which family a model belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass

READS_TOOLS = re.compile(r"\btools\b")


@dataclass(frozen=True, slots=True)
class Family:
    """The text of a call, from left to right: `begin head NAME middle ARGUMENTS tail`.

    `again` stands between the tail of one call and the name of the next. `end` follows the last call.
    """

    name: str
    marks: tuple[str, ...]  # a template of this family contains all of them
    begin: str  # text may come before it; after it, only a call may follow
    head: str
    middle: str
    tail: str
    again: str | None = None  # None: one call per answer
    end: str = ""
    lead: str = ""  # may stand before `begin`
    first_only: bool = False  # a call is the whole answer, without text before it
    has_own_template: bool = True  # False: the template cannot show tools, so Pteron describes them
    has_parameter_tags: bool = False  # ARGUMENTS are tags, one for each parameter, and not a JSON object


GENERIC = Family(
    "generic",
    marks=(),
    begin='{"name": "',
    head="",
    middle='", "parameters": ',
    tail="}",
    first_only=True,
    has_own_template=False,
)

# The first that fits is taken.
FAMILIES = (
    Family(  # Qwen 3 Coder, Qwen 3.5
        "qwen coder",
        marks=("<tool_call>", "<function="),
        begin="<tool_call>",
        head="\n<function=",
        middle=">\n",
        tail="</function>\n</tool_call>",
        again="\n<tool_call>\n<function=",
        has_parameter_tags=True,
    ),
    Family(  # Hermes, Qwen, SmolLM3
        "hermes",
        marks=("<tool_call>",),
        begin="<tool_call>",
        head='\n{"name": "',
        middle='", "arguments": ',
        tail="}\n</tool_call>",
        again='\n<tool_call>\n{"name": "',
    ),
    Family(  # Mistral Small 3.2 and later
        "mistral with arguments apart",
        marks=("[TOOL_CALLS]", "[ARGS]"),
        begin="[TOOL_CALLS]",
        head="",
        middle="[ARGS]",
        tail="",
        again="[TOOL_CALLS]",
    ),
    Family(
        "mistral",
        marks=("[TOOL_CALLS]",),
        begin="[TOOL_CALLS]",
        head='[{"name": "',
        middle='", "arguments": ',
        tail="}",
        again=', {"name": "',
        end="]",
    ),
    Family(  # Llama 3.1, 3.2 and 3.3: their templates refuse a second call
        "llama 3",
        marks=("<|start_header_id|>", '"parameters": '),
        begin='{"name": "',
        head="",
        middle='", "parameters": ',
        tail="}",
        lead="<|python_tag|>",
        first_only=True,
    ),
)


def family_of(template: str | None) -> Family:
    """The family of a chat template."""
    if template is None or not READS_TOOLS.search(template):
        return GENERIC
    fitting = (family for family in FAMILIES if all(mark in template for mark in family.marks))
    return next(fitting, GENERIC)
