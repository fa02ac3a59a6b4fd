"""What litellm makes of the server at an address. It runs in an environment of its own: see test_litellm."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "city", "strict": True, "schema": TOOL["function"]["parameters"]},  # type: ignore[index]
}


def main(url: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": "openai/tiny",
        "api_base": f"{url}/v1",
        "api_key": "none",
        "messages": [{"role": "user", "content": "Is it warm in Rome?"}],
        "num_retries": 0,
    }
    text = litellm.completion(**options, max_tokens=5)
    stream = litellm.completion(**options, max_tokens=5, stream=True)
    structured = litellm.completion(**options, response_format=SCHEMA)
    named = {"type": "function", "function": {"name": "weather"}}
    called = litellm.completion(**options, tools=[TOOL], tool_choice=named)
    [call] = called.choices[0].message.tool_calls
    return {
        "tokens": text.usage.completion_tokens,
        "chunks": len(list(stream)),
        "structured": json.loads(structured.choices[0].message.content),
        "call": [call.function.name, json.loads(call.function.arguments)],
        "reason": called.choices[0].finish_reason,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
