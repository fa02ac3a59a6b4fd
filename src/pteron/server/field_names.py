"""The names of the fields of requests. A field without a meaning here is refused.

It may be misspelt, and an answer without it would be another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

# Fields that change no answer, whatever their value is.
HARMLESS = frozenset(
    [
        "metadata",
        "user",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prediction",
        "cache_prompt",
        "id_slot",
        "timings_per_token",
        "return_progress",
    ]
)
# Unsupported fields, and the values without an effect. Other values would change the answer.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
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
_BOTH = frozenset(
    [
        "model",
        "stream",
        "stream_options",
        "max_tokens",
        "n",
        "best_of",
        "stop",
        "seed",
        "temperature",
        "top_p",
        "min_p",
        "top_k",
        "typical_p",
        "xtc_probability",
        "xtc_threshold",
        "repeat_penalty",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "repeat_last_n",
        "dry_multiplier",
        "dry_base",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "logit_bias",
        "logprobs",
        "response_format",
    ]
)
CHAT = (
    _BOTH
    | {"messages", "max_completion_tokens", "top_logprobs"}
    | {"tools", "tool_choice", "parallel_tool_calls"}
)
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
