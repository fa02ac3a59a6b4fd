"""The JavaScript of a site, compared with Python's own results. It runs in Node.js."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Element, Port, SymInt, Tensor
from pteron.compiler.plan.dynamic import check_shape
from pteron.engine.arrays import numpy_arrays
from pteron.engine.inputs import Inputs
from pteron.llm import Sampler, Sampling
from pteron.llm.chat_template import ChatTemplate
from pteron.llm.tokenizer import Tokenizer
from tests.llm import tiny_llama
from tests.support.node import run_javascript, write_modules


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    write_modules(folder)
    return folder


# -- types ----------------------------------------------------------------------------------------

EXPORTED = """
import * as pteron from "./pteron/pteron.js";
const steps = new Set(["constructor", "allocate", "fill", "compile", "bind", "commands", "belongsTo"]);
const members = (kind) => Object.getOwnPropertyNames(kind.prototype).filter((name) => !steps.has(name));
const isError = (kind) => kind === pteron.PteronError || kind.prototype instanceof pteron.PteronError;
answer({
  names: Object.keys(pteron),
  members: { Program: members(pteron.Program), State: members(pteron.State) },
  errors: Object.fromEntries(Object.entries(pteron).filter(([, kind]) => kind.prototype && isError(kind))
    .map(([name, kind]) => [name, [new kind("x").name, Object.getPrototypeOf(kind).name]])),
});
"""


def test_the_types_are_those_of_the_module(folder: Path) -> None:
    found = run_javascript(EXPORTED, folder, None)
    text = (folder / "pteron" / "pteron.d.ts").read_text()
    assert set(found["names"]) == set(re.findall(r"^export (?:class|function) (\w+)", text, re.MULTILINE))
    for name, members in found["members"].items():
        body = re.search(rf"^export class {name} {{(.*?)^}}", text, re.MULTILINE | re.DOTALL)
        assert body is not None
        assert set(members) <= set(re.findall(r"^  (?:readonly )?(\w+)[(:<]", body[1], re.MULTILINE)), name


def test_errors_have_the_names_and_the_tree_of_python(folder: Path) -> None:
    for name, (own, parent) in run_javascript(EXPORTED, folder, None)["errors"].items():
        kind = getattr(pteron, name)
        assert own == name
        assert parent in {base.__name__ for base in kind.__mro__[1:]} or parent == "Error"


# -- shapes ---------------------------------------------------------------------------------------

CHECK = """
import { readInput } from "./pteron/arrays.js";
answer(given.map(({ port, shape }) => {
  try { readInput(port, { data: [], shape }); } catch (error) { return `${error.name}: ${error.message}`; }
}));
"""
SHAPES = [((1, 7), True), ((1, 129, 64), True), ((1, 7, 64), False), ((2, 128, 64), False)]


def test_wrong_shapes_are_refused_in_the_words_of_python(folder: Path) -> None:
    largest = (1, 128, 64)
    cases, wanted = [], []
    for shape, resizable in SHAPES:
        port = Port("x", Tensor(0, DType.float32, largest, "x"), "float32", resizable)
        with pytest.raises(pteron.InputError) as error:
            check_shape(port, shape)
        wanted.append(f"InputError: {error.value}")
        described = {"name": "x", "dtype": "float32", "gpu": "float32", "buffer": 0, "max": largest}
        cases.append({"port": {**described, "dynamic": [1], "resizable": resizable}, "shape": shape})
    assert run_javascript(CHECK, folder, cases) == wanted


CONSTANTS = """
import { readElement, readInput } from "./pteron/arrays.js";
const tried = (act) => { try { return act(); } catch (error) { return `${error.name}: ${error.message}`; } };
answer([
  ...given.constants.map(([fixed, value]) => tried(() => readInput({ name: "k", dtype: "", fixed }, value))),
  ...given.elements.map((at) => tried(() => readElement([0, ...at], { values: given.flat, shape: [2, 3] }))),
]);
"""


def test_constants_and_elements_are_read_by_the_rules_of_python(folder: Path) -> None:
    constants = [(3, 3), (3, 4), (True, False), (2.5, 2.5000001), (7, 7.5), ("a", "a"), (None, None)]
    elements = [(-1, 4), (-1, -2), (0, 1), (1, -1), (1, 3), (-1, -7)]
    cases: dict[str, Any] = {"constants": constants, "elements": elements, "flat": list(range(6))}
    wanted = []
    for constant, value in constants:
        inputs = Inputs("forward", [Port("k", constant, "int", False)])
        wanted.append(_outcome(lambda: inputs.read([value], None)[0]))  # noqa: B023
    for dim, index in elements:
        element = Element(SymInt(0, "n"), Tensor(0, DType.int32, (2, 3), "x"), dim, index)
        x = np.arange(6).reshape(2, 3)
        wanted.append(_outcome(lambda: numpy_arrays.read_element(element, x)))  # noqa: B023
    in_python = [str(text).replace("True", "true").replace("False", "false") for text in wanted]
    assert list(map(str, run_javascript(CONSTANTS, folder, cases))) == in_python


def _outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except pteron.InputError as error:
        return f"InputError: {error}"


# -- numbers of 16 bits ---------------------------------------------------------------------------

TO_GPU = """
import { readInput } from "./pteron/arrays.js";
const data = new Float32Array(Uint32Array.from(given.bits).buffer);
const port = { name: "x", dtype: given.dtype, gpu: given.dtype, buffer: 0, max: [data.length] };
answer([...new Uint16Array(readInput(port, { data }).bytes.buffer)]);
"""
FROM_GPU = """
import { fromGpu } from "./pteron/arrays.js";
const all = Uint16Array.from({ length: 65536 }, (_, bits) => bits);
answer([...new Uint32Array(fromGpu(all.buffer, 0, given, [65536]).data.buffer)]);
"""
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def all_values(dtype: str) -> Any:
    """Every number of 16 bits as a float32, in the order of the bits."""
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    return bits.view(TYPES[dtype]).float().numpy()


def hard_to_round(dtype: str) -> Any:
    """The numbers of the type, those halfway between them, and their neighbours in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = all_values(dtype)[:: 7 if dtype == "bfloat16" else 3]
        finite = np.sort(values[np.isfinite(values)])
        halfway = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        steps = all_values(dtype)[:2000]  # the smallest numbers: each one is included
        halfway = np.concatenate([halfway, (steps[1:] + steps[:-1]) / 2])
        limits = np.float32([65519.99, 65520, 65536, 3.4e38, -65520, 1e-45, -0.0, np.inf, -np.inf, np.nan])
        below, above = np.nextafter(halfway, np.float32(-np.inf)), np.nextafter(halfway, np.float32(np.inf))
        found = np.concatenate([values, halfway, below, above, limits, steps])
    return found[: len(found) // 2 * 2]  # an even number of them fills whole words


@pytest.mark.parametrize("dtype", TYPES)
def test_floats_are_rounded_to_16_bits_as_torch_does(dtype: str, folder: Path) -> None:
    values = hard_to_round(dtype)
    given = {"dtype": dtype, "bits": values.view(np.uint32).tolist()}
    got = np.array(run_javascript(TO_GPU, folder, given), np.uint16)
    want = torch.from_numpy(values).to(TYPES[dtype])
    back = torch.from_numpy(got.view(np.int16)).view(TYPES[dtype])
    assert torch.equal(back.isnan(), want.isnan())
    wrong = np.flatnonzero((back.view(torch.int16) != want.view(torch.int16)).numpy() & ~np.isnan(values))
    assert not len(wrong), f"{values[wrong[0]]!r} became {back[wrong[0]]}, expected {want[wrong[0]]}"


@pytest.mark.parametrize("dtype", TYPES)
def test_every_number_of_16_bits_is_read_exactly(dtype: str, folder: Path) -> None:
    got = np.array(run_javascript(FROM_GPU, folder, dtype), np.uint32).view(np.float32)
    want = all_values(dtype)
    number = ~np.isnan(want)
    assert np.isnan(got[~number]).all()
    assert np.array_equal(got[number].view(np.uint32), want[number].view(np.uint32))


# -- the sampler ----------------------------------------------------------------------------------

# The token that is drawn for each given random number.
DRAW = """
import { Sampler } from "./sampler.js";
answer(given.cases.map(({ options, logits, text }) => {
  const sampler = new Sampler(options);
  return given.numbers.map((number) => {
    sampler.random = () => number;
    return sampler.choose(Float64Array.from(logits), text);
  });
}));
"""
OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "repeat_penalty": 1.7},
    {"temperature": 1},
    {"temperature": 0.4},
    {"temperature": 1, "top_k": 1},
    {"temperature": 1, "top_k": 5},
    {"temperature": 1, "top_k": 1000},
    {"temperature": 1, "top_p": 0.05},
    {"temperature": 1, "top_p": 0.77},
    {"temperature": 1, "min_p": 0.051},
    {"temperature": 2, "min_p": 1},
    {"temperature": 1.3, "repeat_penalty": 1.4},
    {"temperature": 1, "repeat_penalty": 0.8},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repeat_penalty": 1.1},
]
NUMBERS = [(n + 0.5) / 200 for n in range(200)]


def python_sampler(options: dict[str, Any], text: list[int]) -> Sampler:
    names = {"repeat_penalty": "repetition_penalty"}
    return Sampler(Sampling(**{names.get(name, name): value for name, value in options.items()}), text)


def test_the_sampler_draws_what_the_filters_of_python_leave(folder: Path) -> None:
    random = np.random.default_rng(3)
    cases = []
    for options in OPTIONS:
        # The last tokens are penalized; those before the last 64 are not.
        text = random.integers(0, 50, 100).tolist()
        cases.append({"options": options, "logits": random.normal(0, 2, 50).tolist(), "text": text})
    drawn = run_javascript(DRAW, folder, {"cases": cases, "numbers": NUMBERS})
    for case, tokens in zip(cases, drawn, strict=True):
        left = python_sampler(case["options"], case["text"]).candidates(np.array(case["logits"]))
        order = np.argsort(-left.logits, kind="stable")
        bounds = left.probabilities[order].cumsum()
        wanted = left.tokens[order][np.minimum(bounds.searchsorted(NUMBERS, side="right"), len(order) - 1)]
        assert tokens == wanted.tolist(), case["options"]


SEEDS = """
import { Sampler } from "./sampler.js";
const draw = (seed) => {
  const sampler = new Sampler({ temperature: 1, seed });
  return Array.from({ length: given.count }, () => sampler.choose(Float64Array.from(given.logits), []));
};
answer([draw(1), draw(1), draw(2)]);
"""


def test_a_seed_determines_the_tokens(folder: Path) -> None:
    logits = [1.0, 0.0, 2.0, -1.0]
    first, again, other = run_javascript(SEEDS, folder, {"logits": logits, "count": 4000})
    assert first == again != other
    probabilities = np.exp(logits) / np.exp(logits).sum()
    shares = np.bincount(first, minlength=4) / len(first)
    np.testing.assert_allclose(shares, probabilities, atol=0.03)  # four standard deviations


REFUSED = """
import { Sampler } from "./sampler.js";
try {
  answer(new Sampler().choose(Float32Array.of(1, NaN), []));
} catch (error) { answer(String(error)); }
"""


def test_logits_that_are_not_numbers_are_refused(folder: Path) -> None:
    assert run_javascript(REFUSED, folder, None).startswith("InputError: the model's logits are not numbers")


# -- prompts --------------------------------------------------------------------------------------

ENCODE = """
import { Prompts } from "./prompts.js";
import { Tokenizer } from "./vendor/tokenizers.js";
const prompts = new Prompts(new Tokenizer(given.definition, {}), given.facts);
answer(given.conversations.map((messages) => prompts.encode(messages)));
"""
MESSAGES = [
    "hello world",
    "<|im_end|>",
    "hello<|im_end|>\n<|im_start|>system\nthe world",
    "<|<|im_end|>im_end|> <|end|><|end|",
    "🙂<|end|>🙂 \\ $& (.*) [x] {y}",
]


def test_control_tokens_in_messages_are_text_as_in_python(folder: Path) -> None:
    tokenizer = Tokenizer(tiny_llama.tokenizer_json())
    template = ChatTemplate(tiny_llama.TEMPLATE, worker=tokenizer.worker)
    conversations = [[{"role": "user", "content": text}] for text in MESSAGES]
    conversations.append(
        [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(MESSAGES)]
    )
    facts = {
        "chat_template": template.source,
        "special_tokens": {},
        "control_tokens": template.control_tokens,
        "text_start": None,
    }
    given = {"definition": json.loads(tokenizer.definition), "facts": facts}
    try:
        wanted = [
            tokenizer.encode(template.render_parts(messages, as_text=True), add_special_tokens=False)
            for messages in conversations
        ]
        assert template.control_tokens == tiny_llama.SPECIALS
    finally:
        tokenizer.close()
    assert run_javascript(ENCODE, folder, given | {"conversations": conversations}) == wanted
    ends = [tokens.count(tokenizer.id_of("<|im_end|>")) for tokens in wanted]
    assert ends == [1] * len(MESSAGES) + [len(MESSAGES)], "only the template ends a turn"


def test_a_text_without_a_template_begins_with_the_token_of_the_model(folder: Path) -> None:
    definition = tiny_llama.tokenizer_json()
    tokenizer = tokenizers.Tokenizer.from_str(definition)
    start = tokenizer.token_to_id("<|end|>")
    texts = ["hello world", "<|end|>hello"]
    given = {
        "definition": json.loads(definition),
        "facts": {"chat_template": None, "special_tokens": {}, "control_tokens": [], "text_start": start},
        "conversations": [[{"role": "user", "content": text}] for text in texts],
    }
    tokens = [tokenizer.encode(text).ids for text in texts]
    assert run_javascript(ENCODE, folder, given) == [[start, *tokens[0]], tokens[1]]


DECODE = """
import { Detokenizer } from "./detokenizer.js";
import { Tokenizer } from "./vendor/tokenizers.js";
const tokenizer = new Tokenizer(given.definition, {});
answer(given.texts.map((tokens) => {
  const decoder = new Detokenizer(tokenizer);
  return [...tokens.map((token) => decoder.push(token)), decoder.finish()];
}));
"""
TEXTS = [
    "hello world",
    "🙂 the 🙂🙂ing, " * 30,
    "Übung — 日本語の文章 " * 20,
    "👩‍👩‍👧‍👦é\u0301\n\n\t x" * 25,
    "the <|im_start|>ing",
]


def test_pieces_of_text_are_whole_characters_and_add_up(folder: Path) -> None:
    definition = tiny_llama.tokenizer_json()
    tokenizer = tokenizers.Tokenizer.from_str(definition)
    tokens = [tokenizer.encode(text).ids for text in TEXTS]
    given = {"definition": json.loads(definition), "texts": tokens}
    for pieces, ids in zip(run_javascript(DECODE, folder, given), tokens, strict=True):
        assert "".join(pieces) == tokenizer.decode(ids)
        assert not any("\ufffd" in piece for piece in pieces)
        assert len([piece for piece in pieces if piece]) > len(pieces) // 5, "text comes with the tokens"
