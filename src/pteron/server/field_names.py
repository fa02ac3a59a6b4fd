"""The names of the fields of requests. A field without a meaning here is refused.

It may be misspelt, and an answer without it would be another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pteron.llm.options import TABLE

# Fields that change no answer, whatever their value is.
HARMLESS = {
    "metadata", "user", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prediction", "cache_prompt", "id_slot", "timings_per_token",
    "return_progress",
}  # fmt: skip
# Unsupported fields, and the values without an effect. Other values would change the answer.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "best_of": (None, 1),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "reasoning_effort": (None, "none"),
    "verbosity": (None, "medium"),
    "mirostat": (None, 0),
    "dynatemp_range": (None, 0),
    "ignore_eos": (None, False),
}
# The names in requests of the options that all kinds of requests take.
SAMPLING = {name for option in TABLE.values() for name in option.names} - {"max_tokens"}
_BOTH = SAMPLING | {
    "model", "stream", "stream_options", "max_tokens", "n", "logprobs", "response_format",
}  # fmt: skip
CHAT = _BOTH | {
    "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
}  # fmt: skip
COMPLETION = _BOTH | {"prompt", "echo"}


def first_unknown(
    fields: Mapping[str, Any], known: Collection[str], unsupported: Mapping[str, tuple[Any, ...]]
) -> str | None:
    """The first name without a meaning. `unsupported`: fields with the values that change nothing."""
    for name, value in fields.items():
        if name not in known and name not in HARMLESS and value not in unsupported.get(name, ()):
            return name
    return None


def similar_name(name: str, known: Collection[str]) -> str | None:
    """The name that was probably meant."""
    return next(iter(get_close_matches(name, known, 1, 0.8)), None)
