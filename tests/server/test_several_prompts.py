"""Several prompts in one request of /v1/completions, as langchain and tools for evaluations send them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_openai import OpenAI

from pteron.llm import LanguageModel
from tests.server.running import client_of, running

PROMPTS = ["hello", "the cat", "a"]


@pytest.fixture(scope="module")
def url(llm: LanguageModel) -> Iterator[str]:
    with running(llm, name="tiny", parallel=2, queue=6) as url:
        yield url


def test_each_prompt_gets_its_answers_in_order(url: str, llm: LanguageModel) -> None:
    options: Any = {"temperature": 1.0, "seed": 3}
    made = [llm.choices(prompt, 2, max_new_tokens=4, **options) for prompt in PROMPTS]
    wants = [prompt + answer.text for prompt, some in zip(PROMPTS, made, strict=True) for answer in some]
    asked: Any = {"model": "tiny", "prompt": PROMPTS, "n": 2, "max_tokens": 4, "echo": True, **options}
    create = client_of(url).completions.create
    got = create(**asked)
    assert [choice.index for choice in got.choices] == list(range(6))
    assert [choice.text for choice in got.choices] == wants
    assert got.usage.prompt_tokens == sum(len(llm.encode(prompt)) for prompt in PROMPTS)
    assert got.usage.completion_tokens == sum(a.stats.generated_tokens for some in made for a in some)
    texts = [""] * 6
    for chunk in create(stream=True, stream_options={"include_usage": True}, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == wants
    assert chunk.usage == got.usage.model_copy(
        update={"prompt_tokens_details": chunk.usage.prompt_tokens_details}
    )


def test_langchain_sends_several(url: str, llm: LanguageModel) -> None:
    model = OpenAI(
        base_url=f"{url}/v1", api_key="none", model="tiny", temperature=0, max_tokens=4, max_retries=0
    )  # type: ignore[arg-type]
    made = model.generate(PROMPTS).generations
    wants = [llm.generate(prompt, max_new_tokens=4, temperature=0).text for prompt in PROMPTS]
    assert [answers[0].text for answers in made] == wants


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": []}, "prompt must be a text, a list of tokens, or a list of these"),
        ({"prompt": ["a", ""]}, "none of them may be empty"),
        ({"prompt": ["a", 5]}, "prompt must be a text"),
        ({"prompt": [["a"]]}, "prompt must be a text"),
        ({"prompt": ["a"] * 65}, "prompt has 65 entries: expected at most 64"),
        ({"prompt": ["a"] * 5, "n": 2}, "asks for 10 answers, but this server takes at most 8 at a time"),
        ({"prompt": ["a", [1]], "echo": True}, "echo needs a prompt that is text"),
    ],
)
def test_wrong_prompts(url: str, body: Any, message: str) -> None:
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
