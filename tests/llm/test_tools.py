"""Tool calls: shown to the model, constrained while it writes, and read from its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.llm import LanguageModel, ToolCall, ToolError
from pteron.llm.tools import CallReader, family_of
from pteron.llm.tools.call_formats import FAMILIES, GENERIC, Family
from tests.llm.tool_models import (
    CLOCK,
    HERMES,
    LLAMA_3,
    MISTRAL,
    MISTRAL_ARGS,
    PLAIN,
    QUESTION,
    QWEN_CODER,
    TEMPLATES,
    TOOLS,
    WEATHER,
    answering,
    make_tool_model,
)

ROME = '{"city": "Rome", "days": 2}'
# A call of `weather` as each family writes it, with text before it where that is possible.
WRITTEN = {
    HERMES: ("Let me see.", f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>'),
    QWEN_CODER: (
        "Let me see.",
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        "</function>\n</tool_call>",
    ),
    LLAMA_3: ("", f'{{"name": "weather", "parameters": {ROME}}}'),
    MISTRAL: ("Hm.", f'[TOOL_CALLS][{{"name": "weather", "arguments": {ROME}}}]'),
    MISTRAL_ARGS: ("", f"[TOOL_CALLS]weather[ARGS]{ROME}"),
    PLAIN: ("", f'{{"name": "weather", "parameters": {ROME}}}'),
}


def calls_of(made: pteron.llm.Generation) -> list[tuple[str, dict[str, Any]]]:
    assert all(len(call.id) == 9 and call.id.isalnum() for call in made.tool_calls)
    return [(call.name, call.arguments) for call in made.tool_calls]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_template_shows_the_family(name: str) -> None:
    assert family_of(TEMPLATES[name]).name == name
    assert family_of(TEMPLATES[name].replace("tools", "others")) is GENERIC


@pytest.mark.parametrize("marks", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_call_in_the_models_own_format(name: str, marks: bool) -> None:
    before, call = WRITTEN[TEMPLATES[name]]
    model = answering(before + call, TEMPLATES[name], marks=marks)
    made = model.generate(QUESTION, tools=TOOLS)
    assert made.text == before
    assert calls_of(made) == [("weather", {"city": "Rome", "days": 2})]
    assert made.finish_reason == "tool_calls"


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_without_a_call(name: str) -> None:
    text = 'It is {"name": warm} and <b>sunny</b>.'
    model = answering(text, TEMPLATES[name])
    made = model.generate(QUESTION, tools=TOOLS)
    assert model.generate(QUESTION, tools=TOOLS, max_new_tokens=6).finish_reason == "length"
    assert (made.text, made.tool_calls, made.finish_reason) == (text, [], "stop")


@pytest.mark.parametrize("name", TEMPLATES)
def test_after_its_beginning_a_call_becomes_valid(name: str) -> None:
    """The model wants to write a tool that does not exist, or wrong arguments."""
    before, call = WRITTEN[TEMPLATES[name]]
    for wrong in (call.replace("weather", "winds"), call.replace("Rome", "Bonn").replace("2", "900")):
        model = answering(before + wrong, TEMPLATES[name])
        made = model.generate(QUESTION, tools=TOOLS, max_new_tokens=400, parallel_tool_calls=False)
        assert [call.name for call in made.tool_calls] in (["weather"], ["clock"])
        assert made.finish_reason == "tool_calls"


def test_several_calls() -> None:
    calls = [f'{{"name": "weather", "arguments": {ROME}}}', '{"name": "clock", "arguments": {}}']
    hermes = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
    mistral = f"[TOOL_CALLS][{', '.join(calls)}]"
    apart = f"[TOOL_CALLS]weather[ARGS]{ROME}[TOOL_CALLS]clock[ARGS]{{}}"
    tags = f"{WRITTEN[QWEN_CODER][1]}\n<tool_call>\n<function=clock>\n</function>\n</tool_call>"
    want = [("weather", {"city": "Rome", "days": 2}), ("clock", {})]
    for text, template in ((hermes, HERMES), (mistral, MISTRAL), (apart, MISTRAL_ARGS), (tags, QWEN_CODER)):
        model = answering(text, template)
        assert calls_of(model.generate(QUESTION, tools=TOOLS)) == want
        one = model.generate(QUESTION, tools=TOOLS, parallel_tool_calls=False)
        assert calls_of(one) == want[:1]


def test_a_thought_before_the_call() -> None:
    text = "<think>warm?" + WRITTEN[HERMES][1]
    model = answering(text, HERMES)
    made = model.generate(QUESTION, tools=TOOLS)
    assert (made.text, len(made.tool_calls)) == ("<think>warm?", 1)


def test_llama_3_may_write_its_tag_first() -> None:
    text = "<|python_tag|>" + WRITTEN[LLAMA_3][1]
    for wrong in (text, text.replace("Rome", "Bonn")):
        made = answering(wrong, LLAMA_3).generate(QUESTION, tools=TOOLS)
        assert (made.text, made.tool_calls[0].name) == ("", "weather")


@pytest.mark.parametrize("family", [*FAMILIES, GENERIC], ids=lambda family: family.name)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_reader_takes_pieces_of_any_size(family: Family, size: int) -> None:
    before = "" if family.first_only else "a < b and [x] "
    names = ["weather"] if family.again is None else ["weather", "clock"]
    arguments = r'{"a": "}\"]{", "b": [{}, [1]]}'
    if family.has_parameter_tags:
        arguments = '<parameter=a>\n}"]{\n</parameter>\n<parameter=b>\n[{}, [1]]\n</parameter>\n'
    calls = (family.again or "").join(f"{name}{family.middle}{arguments}{family.tail}" for name in names)
    text = f"{before}{family.begin}{family.head}{calls}{family.end}"
    reader, visible, found = CallReader(family), "", {}
    for start in range(0, len(text), size):
        shown, deltas = reader.push(text[start : start + size], ended=start + size >= len(text))
        visible += shown
        for delta in deltas:
            name, so_far = found.get(delta.index, (delta.name, ""))
            found[delta.index] = (name, so_far + delta.arguments)
    assert visible == before
    read = [(name, json.loads(text)) for name, text in found.values()]
    assert read == [(name, {"a": '}"]{', "b": [{}, [1]]}) for name in names]
    assert reader.count == len(names)


def test_text_is_not_held_back_for_long() -> None:
    reader = CallReader(family_of(HERMES))
    assert reader.push("one <tool", ended=False)[0] == "one "
    assert reader.push("box> two", ended=False)[0] == "<toolbox> two"
    assert reader.push(" <tool_c", ended=True)[0] == " <tool_c"


TYPED = {
    "properties": {
        "code": {"type": "string"},
        "count": {"type": ["integer", "null"]},
        "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "unit": {"$ref": "#/$defs/Unit"},
        "more": {"type": "object", "properties": {"unit": {"$ref": "#/$defs/Unit"}}},
        "any": {},
    },
    "required": ["code", "unit"],
    "$defs": {"Unit": {"enum": ["C", "F", 1]}},
}


def in_tags(**texts: str) -> str:
    tags = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in texts.items())
    return f"<tool_call>\n<function=f>\n{tags}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (
            {"code": 'if a < b:\n  print("</p>")', "count": "12", "label": "12", "unit": "F"},
            {"code": 'if a < b:\n  print("</p>")', "count": 12, "label": "12", "unit": "F"},
        ),
        (
            {"code": "", "count": "null", "label": "null", "unit": "1", "more": '{"unit": 1}', "any": "True"},
            {"code": "", "count": None, "label": None, "unit": 1, "more": {"unit": 1}, "any": True},
        ),
        ({"code": "12", "unit": "C", "any": "[1]"}, {"code": "12", "unit": "C", "any": [1]}),
    ],
)
def test_values_in_tags_have_the_types_of_the_schema(texts: Any, values: Any) -> None:
    tools = with_parameters(TYPED, strict=True)
    made = answering(in_tags(**texts), QWEN_CODER, tools).generate(QUESTION, tools=tools, max_new_tokens=400)
    assert calls_of(made) == [("f", values)]


def test_tags_follow_the_schema() -> None:
    """The model wants to write a wrong value, a parameter that there is not, and no required one."""
    tools = with_parameters(TYPED)
    wrong = in_tags(code="a", unit="K", other="b"), in_tags(more='{"unit": "K"}')
    for text in wrong:
        model = answering(text, QWEN_CODER, tools)
        made = model.generate(QUESTION, tools=tools, max_new_tokens=400, parallel_tool_calls=False)
        for call in made.tool_calls:
            assert call.arguments["unit"] in ("C", "F", 1)
            assert call.arguments.keys() <= TYPED["properties"].keys()


@pytest.mark.parametrize("parameters", [{}, {"additionalProperties": {"type": "string"}}])
def test_a_tool_may_take_any_parameter(parameters: Any) -> None:
    tools = with_parameters(parameters)
    model = answering(in_tags(a="x", b="y"), QWEN_CODER, tools)
    assert calls_of(model.generate(QUESTION, tools=tools)) == [("f", {"a": "x", "b": "y"})]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"properties": 3}, "properties must be an object"),
        ({"properties": {"a": {"type": "string", "minLength": 3}}}, "minLength cannot be enforced"),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}}, "'#/[$]defs/A' names nothing"),
        (
            {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}},
            "refers to itself",
        ),
    ],
)
def test_wrong_parameters_in_tags(parameters: Any, message: str) -> None:
    tools = with_parameters(parameters, strict=True)
    with pytest.raises(ToolError, match=f"the parameters of the tool 'f' cannot be used: .*{message}"):
        answering("", QWEN_CODER, []).generate(QUESTION, tools=tools)


def test_no_choice_means_no_tools() -> None:
    call = WRITTEN[HERMES][1]
    model = answering(call, HERMES, tools=[])
    made = model.generate(QUESTION, tools=TOOLS, tool_choice="none")
    assert (made.text, made.tool_calls, made.finish_reason) == (call, [], "stop")


def test_a_schema_or_a_call() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for text, calls in (('{"a": 1}', 0), (WRITTEN[HERMES][1], 1)):
        model = answering(text, HERMES)
        made = model.generate(QUESTION, tools=TOOLS, schema=schema, max_new_tokens=200)
        assert (made.text, len(made.tool_calls)) == ("" if calls else text, calls)
    model = answering("", PLAIN)
    with pytest.raises(ToolError, match="cannot be used together"):
        model.generate(QUESTION, tools=TOOLS, schema=schema)


CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": ROME}}
HISTORY = [
    *QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "sunny"},
]


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_and_results_go_back_to_the_model(name: str) -> None:
    model = answering("Yes.", TEMPLATES[name], messages=HISTORY)
    prompt = model.tokenizer.decode(model.encode(HISTORY, tools=TOOLS), skip_special_tokens=False)
    assert model.generate(HISTORY, tools=TOOLS).text == "Yes."
    assert WRITTEN[TEMPLATES[name]][1] in prompt
    assert "sunny" in prompt
    assert "The weather of a city" in prompt


def test_results_of_several_calls_are_one_turn_for_a_plain_template() -> None:
    second = {**CALL, "id": "123456789", "function": {"name": "clock", "arguments": {}}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [CALL, second]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "sunny"},
        {"role": "tool", "tool_call_id": "123456789", "content": "noon"},
        {"role": "user", "content": "Well?"},
    ]
    model = answering("", PLAIN)
    prompt = model.tokenizer.decode(model.encode(messages))
    assert prompt.count("user: ") == 2
    assert prompt.endswith("user: The result of weather:\nsunny\n\nThe result of clock:\nnoon\n\nWell?\n")


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def with_parameters(parameters: Any, strict: bool = False) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}]


UNENFORCEABLE = {"properties": {"a": {"type": "array", "uniqueItems": True}}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": "weather"}, "tools must be a list"),
        ({"tools": [{"type": "custom"}]}, r"tools\[0\] must be an object with the type function"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\].function must be an object with a name"),
        ({"tools": [named("a b")]}, r"tools\[0\].function.name is 'a b': expected 1 to 64 letters"),
        ({"tools": [CLOCK, CLOCK]}, "two functions with the name 'clock'"),
        ({"tools": [CLOCK] * 129}, "at most 128"),
        ({"tools": with_parameters([])}, "parameters must be a JSON schema with the type object"),
        ({"tools": with_parameters({"type": "string"})}, "parameters must be a JSON schema"),
        (
            {"tools": with_parameters({"properties": 3})},
            "parameters of the tool 'f' cannot be used: properties must be",
        ),
        (
            {"tools": with_parameters(UNENFORCEABLE, strict=True)},
            "the parameters of the tool 'f' cannot be used: .*uniqueItems",
        ),
        ({"tools": TOOLS, "tool_choice": named("wind")}, "names 'wind', but the tools are: weather, clock"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice must be none, auto, required or"),
        ({"tool_choice": "required"}, "tool_choice needs tools"),
        ({"tools": TOOLS, "regex": "a"}, "cannot be used together with regex"),
    ],
)
def test_wrong_tools(options: Any, message: str) -> None:
    model = answering("", HERMES)
    with pytest.raises(pteron.InputError, match=message):
        model.generate(QUESTION, **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tool_calls": "no"}, r"messages\[1\].tool_calls must be a list"),
        ({"tool_calls": [{"id": "1"}]}, r"tool_calls\[0\] must have an id and a function"),
        ({"tool_calls": [{**CALL, "id": 1}]}, "id must be a text"),
        ({"tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}, "must be a JSON object"),
        ({"role": "tool", "tool_calls": None}, "tool_call_id must be the id"),
    ],
)
def test_wrong_messages(change: Any, message: str) -> None:
    model = answering("", HERMES)
    with pytest.raises(ToolError, match=message):
        model.generate([QUESTION[0], {**HISTORY[1], **change}])


def test_without_strict_a_keyword_that_cannot_be_enforced_is_ignored() -> None:
    model = answering('<tool_call>\n{"name": "f", "arguments": {"a": []}}\n</tool_call>', HERMES, [])
    tools = with_parameters(UNENFORCEABLE)
    assert model.grammar_of({"tools": tools}) is not None
    model.generate(QUESTION, tools=tools, max_new_tokens=1)


def test_tools_need_messages() -> None:
    model = answering("", HERMES)
    with pytest.raises(ToolError, match="a prompt of messages"):
        model.generate("a", tools=TOOLS)


# -- random weights -------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["hermes", "qwen coder", "generic"])
def random_model(request: Any, once: Any, device: Device) -> Iterator[LanguageModel]:
    folder: Path = once("tool-model", make_tool_model)
    template = TEMPLATES[request.param]
    with pteron.llm.load(folder / "model.gguf", chat_template=template, device=device) as model:
        yield model


@pytest.mark.parametrize("seed", range(3))
def test_random_weights_write_valid_calls(random_model: LanguageModel, seed: int) -> None:
    options: Any = {"tools": TOOLS, "temperature": 1.0, "seed": seed, "max_new_tokens": 400}
    made = random_model.generate(QUESTION, tool_choice=named("weather"), **options)
    assert isinstance(made.tool_calls[0], ToolCall)
    assert made.tool_calls[0].arguments["city"] in ("Rome", "Oslo")
    assert made.tool_calls[0].arguments["days"] in (1, 2, 3)
    assert (made.text, made.finish_reason) == ("", "tool_calls")
    free = random_model.generate(QUESTION, tool_choice="required", parallel_tool_calls=False, **options)
    assert [call.name for call in free.tool_calls] in (["weather"], ["clock"])


def test_a_file_may_have_a_template_for_tools(once: Any, device: Device) -> None:
    folder: Path = once("tool-model", make_tool_model)
    with pteron.llm.load(folder / "model.gguf", device=device) as model:
        assert model.tool_family.name == "hermes"
        plain, with_tools = (
            model.tokenizer.decode(model.encode(QUESTION, tools=tools), skip_special_tokens=False)
            for tools in ((), [WEATHER])
        )
    assert "<tools>" not in plain
    assert "<tools>" in with_tools
    assert "weather" in with_tools
