"""Models for the tests of tools: chat templates of each family, and a model that answers as it is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pteron.llm import LanguageModel, Tokenizer
from pteron.llm.tools.definitions import Tool
from tests.llm.reciter import Script
from tests.llm.tiny_llama import tokenizer_json
from tests.llm.tiny_models import LLAMA, write_gguf

QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "Is it warm in Rome?"}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Rome", "Oslo"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 3},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock", "description": "The time"}}
TOOLS = [WEATHER, CLOCK]

# How templates of each family show tools, calls and results, as far as it matters here.
HERMES = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>\n"
    "{% else %}{{ m.role }}: {{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}\n{% endif %}"
    "{% endfor %}assistant: "
)
LLAMA_3 = (
    '{% if tools %}Answer as {\'"name": function name, "parameters": its arguments\'}\n'
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}\n{% endif %}"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}: "
    "{% if m.tool_calls %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
)
MISTRAL = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "{% for m in messages %}"
    "{% if m.tool_calls %}[TOOL_CALLS][{% for call in m.tool_calls %}"
    "{{ call.function | tojson }}{% endfor %}]"
    "{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
)
MISTRAL_ARGS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}[TOOL_CALLS]{{ call.function.name }}[ARGS]"
    "{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
)
QWEN_CODER = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>\n"
    "{% else %}{{ m.role }}: {{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n<function={{ call.function.name }}>\n"
    "{% for name, value in call.function.arguments | items %}<parameter={{ name }}>\n"
    "{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
    "{% endfor %}\n{% endif %}"
    "{% endfor %}assistant: "
)
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
TEMPLATES = {
    "hermes": HERMES,
    "qwen coder": QWEN_CODER,
    "llama 3": LLAMA_3,
    "mistral": MISTRAL,
    "mistral with arguments apart": MISTRAL_ARGS,
    "generic": PLAIN,
}
MARKS = {"<tool_call>": False, "</tool_call>": False, "<think>": False, "[TOOL_CALLS]": True, "[ARGS]": True}


class LongScript(Script):
    """A script after a prompt of any length. A grammar may make the answer longer than the script."""

    def row(self, place: int) -> Any:
        row = np.zeros(self.vocab_size)
        row[self.script[min(max(0, place), len(self.script) - 1)]] = 100  # certain, at any temperature
        return row


@cache
def scripted(template: str, marks: bool) -> LanguageModel:
    """A model without a script. It is kept, because each model has two processes."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Library

    library = Library.from_str(tokenizer_json())
    if marks:
        library.add_tokens([AddedToken(mark, special=special) for mark, special in MARKS.items()])
    tokenizer = Tokenizer(library.to_str())
    end = tokenizer.id_of("<|end|>")
    assert end is not None
    script: Any = LongScript([], 0, end, tokenizer.vocab_size)
    return LanguageModel(script, tokenizer, template)


def answering(
    text: str, template: str, tools: Sequence[Any] = TOOLS, messages: Any = None, marks: bool = True
) -> LanguageModel:
    """A model that answers messages with a text, where the grammar lets it.

    marks: the vocabulary has tokens for the marks of calls, as most models have. Otherwise they are text.
    """
    model = scripted(template, marks)
    script: Any = model.decoder
    script.script = [*model.tokenizer.encode(text), *script.eos_ids]
    definitions = [Tool.read(tool, "tool").definition for tool in tools]
    script.prompt_length = len(model.encode(messages or QUESTION, tools=definitions))
    for session in model.sessions._idle:  # they know the logits of the script before
        session.reset()
    return model


def make_tool_model(folder: Path) -> None:
    """Random weights with a context for prompts that describe tools, and a template for such prompts."""
    write_gguf(folder / "model.gguf", replace(LLAMA, layers=1, context=1024), tool_template=HERMES)


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments in a JSON text, checked against WEATHER."""
    arguments: dict[str, Any] = json.loads(text)
    assert arguments["city"] in ("Rome", "Oslo")
    assert arguments["days"] in (1, 2, 3)
    assert arguments.keys() == {"city", "days"}
    return arguments
