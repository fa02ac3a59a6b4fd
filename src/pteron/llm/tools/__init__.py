"""Tools that a language model may call.

`definitions` checks what the caller gives. `call_formats` says how a model writes a call. `turns` puts calls
and results into the prompt. `call_grammar` lets the model write only valid calls. `calls` reads them out of
its text. `parameter_tags` has both for arguments that are not JSON. `use` connects them.
"""

from pteron.llm.tools.call_formats import Family, family_of
from pteron.llm.tools.calls import CallDelta, CallReader, ToolCall, complete_calls
from pteron.llm.tools.definitions import ToolError
from pteron.llm.tools.turns import TemplateTurns
from pteron.llm.tools.use import ToolUse

__all__ = [
    "CallDelta",
    "CallReader",
    "Family",
    "TemplateTurns",
    "ToolCall",
    "ToolError",
    "ToolUse",
    "complete_calls",
    "family_of",
]
