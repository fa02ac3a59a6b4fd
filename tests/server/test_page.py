"""The chat page at `/`, in a real browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

from pteron.llm import LanguageModel
from pteron.llm.batch import Batch
from pteron.server import ModelFile
from tests.llm.tool_models import PLAIN, scripted
from tests.server.running import idle, running, wait_until
from tests.support.browser import opened

pytestmark = pytest.mark.browser

ANSWER = "It is **warm**.\n\n- sun\n- no rain\n\n```python\nprint(1 < 2)\n```\n"


def saying(text: str) -> LanguageModel:
    """A model that answers the first question `hello` with a text."""
    model = scripted(PLAIN, False)
    script: Any = model.decoder
    script.script = [*model.tokenizer.encode(text), *script.eos_ids]
    script.prompt_length = len(model.encode([{"role": "user", "content": "hello"}]))
    return model


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(saying(ANSWER), name="tiny") as url:
        yield url


def ask(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def wait_for_answer(page: Any) -> Any:
    page.locator('.message.assistant:last-child[aria-busy="false"]').wait_for()
    return page.locator(".message.assistant").last


# -- the conversation -------------------------------------------------------------------------------


def test_an_answer(browser: Any, url: str) -> None:
    with opened(browser, url) as page:
        page.get_by_role("heading", name="How can I help?").wait_for()
        assert page.locator("#model-name").inner_text() == "tiny"
        ask(page, "hello")
        answer = wait_for_answer(page)
        assert answer.locator("strong").inner_text() == "warm"
        assert answer.locator("li").all_inner_texts() == ["sun", "no rain"]
        assert answer.locator("pre").inner_text() == "print(1 < 2)"
        assert re.search(r"\d+ tokens · [\d.]+ tokens/s", answer.locator(".facts").inner_text())
        assert page.locator("#status").inner_text() == "The answer is complete"
        assert page.get_by_role("heading", name="How can I help?").is_hidden()

        page.get_by_role("button", name="Regenerate").click()
        wait_for_answer(page)
        assert page.locator(".message").count() == 2

        page.reload()
        assert page.locator(".message").count() == 2  # kept for this tab
        page.get_by_role("button", name="New chat").click()
        assert page.locator(".message").count() == 0


def test_a_new_chat_deletes_nothing(browser: Any, url: str) -> None:
    with opened(browser, url) as page:
        back = page.get_by_role("button", name="Back to the last chat", exact=True)
        assert back.is_hidden()
        for text in ("one", "two"):
            ask(page, text)
            wait_for_answer(page)
            page.get_by_role("button", name="New chat").click()
        page.get_by_role("button", name="New chat").click()  # an empty chat is not kept
        page.reload()
        page.get_by_role("button", name="Undo: back to the last chat").click()
        assert page.locator(".message.user").inner_text().endswith("two")
        for text in ("one", "two", "one"):  # nothing is lost by going back either
            back.click()
            assert page.locator(".message").count() == 2
            assert page.locator(".message.user").inner_text().endswith(text)


def test_keys(browser: Any, url: str) -> None:
    with opened(browser, url) as page:
        page.keyboard.type("one")  # the field has the focus
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        assert page.locator("#prompt").input_value() == "one\ntwo"
        page.keyboard.press("Enter")
        wait_for_answer(page)
        assert page.locator(".message.user").inner_text().endswith("one\ntwo")
        page.keyboard.press("Alt+n")
        assert page.locator(".message").count() == 0
        page.keyboard.press("Alt+z")
        assert page.locator(".message").count() == 2
        page.keyboard.press("Alt+s")
        page.get_by_role("dialog", name="Settings").wait_for()
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0


def test_stop(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Batch.step

    def slowly(batch: Batch) -> Any:
        time.sleep(0.02)
        return step(batch)

    monkeypatch.setattr(Batch, "step", slowly)
    with running(saying("word " * 1500)) as url, opened(browser, url) as page:
        for stop in (lambda: page.keyboard.press("Escape"), page.get_by_role("button", name="Stop").click):
            ask(page, "hello")
            page.locator(".message.assistant .text", has_text="word word").wait_for()
            stop()
            assert "stopped" in wait_for_answer(page).locator(".facts").inner_text()
            wait_until(lambda: idle(url))
            page.get_by_role("button", name="New chat").click()


def test_settings_are_sent(browser: Any, url: str) -> None:
    with opened(browser, url) as page:
        bodies: list[Any] = []
        page.on("request", lambda request: request.method == "POST" and bodies.append(request.post_data_json))
        page.get_by_role("button", name="Settings", exact=True).click()
        page.get_by_label("System prompt").fill("be brief")
        page.get_by_label("Most tokens").fill("7")
        page.get_by_label("Seed").fill("3")
        page.get_by_label("Temperature").fill("0.5")
        page.get_by_role("button", name="Close the settings").click()
        ask(page, "hello")
        wait_for_answer(page)
        page.get_by_role("button", name="Settings", exact=True).click()
        page.get_by_role("button", name="Restore the defaults").click()
        assert page.get_by_label("Seed").input_value() == ""
    [body] = bodies
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert (body["max_tokens"], body["seed"], body["temperature"]) == (7, 3, 0.5)
    assert (body["top_p"], body["top_k"], body["stream"]) == (0.95, 40, True)


def test_the_choice_of_a_model(browser: Any) -> None:
    model = saying(ANSWER)
    files = [ModelFile(name, lambda: nullcontext(model)) for name in ("one", "two")]
    with running(files) as url, opened(browser, url) as page:
        page.get_by_label("Model", exact=True).select_option("two")
        page.reload()
        page.locator("#model option").first.wait_for(state="attached")
        assert page.get_by_label("Model", exact=True).input_value() == "two"
        with page.expect_request("**/v1/chat/completions") as sent:
            ask(page, "hello")
        assert sent.value.post_data_json["model"] == "two"
        wait_for_answer(page)


def test_the_key(browser: Any) -> None:
    with running(saying(ANSWER), name="tiny", api_key="secret") as url, opened(browser, url) as page:
        dialog = page.get_by_role("dialog", name="Settings")
        dialog.get_by_text("The server needs an API key.").wait_for()
        page.get_by_label("API key").fill("secret")
        page.get_by_role("button", name="Close the settings").click()
        page.locator("#model-name", has_text="tiny").wait_for()
        ask(page, "hello")
        assert wait_for_answer(page).locator("strong").inner_text() == "warm"


def test_a_refused_request(browser: Any, url: str) -> None:
    with opened(browser, url) as page:
        ask(page, "x" * 200_000)
        answer = wait_for_answer(page)
        assert "more tokens than the model's context" in answer.inner_text()
        page.get_by_role("button", name="Try again").wait_for()
        page.get_by_role("button", name="New chat").click()
        ask(page, "hello")
        assert wait_for_answer(page).locator("strong").count() == 1


# -- how it looks -------------------------------------------------------------------------------------


def test_dark_and_light(browser: Any, url: str) -> None:
    def background(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(re.findall(r"\d+", colour)[0])

    for scheme, is_dark in (("dark", True), ("light", False)):
        with opened(browser, url, color_scheme=scheme) as page:
            assert (background(page) < 128) == is_dark
            page.get_by_role("button", name="Switch between dark and light").click()
            assert (background(page) < 128) != is_dark
            page.reload()
            assert (background(page) < 128) != is_dark


def test_a_narrow_screen(browser: Any, url: str) -> None:
    with opened(browser, url, viewport={"width": 340, "height": 640}) as page:
        ask(page, "x" * 300)
        wait_for_answer(page)
        page.get_by_role("button", name="Settings", exact=True).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 340
        assert page.evaluate("document.getElementById('scroller').scrollWidth") <= 340


def test_everything_has_a_name(browser: Any, url: str) -> None:
    unnamed = """() => [...document.querySelectorAll("button, input, select, textarea")]
        .filter(e => !(e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    with opened(browser, url) as page:
        assert page.evaluate(unnamed) == []


# -- safety ---------------------------------------------------------------------------------------------


def test_the_page_is_complete_and_closed(url: str) -> None:
    page = httpx.get(url)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    used = set(re.findall(r'(?:src|href)="([^"#][^"]*)"', page.text))
    assert used == {"icon.svg", "chat.css", "main.js"}
    imported = {"chat.js", "markdown.js", "theme.js"}
    for path in used | imported:
        file = httpx.get(f"{url}/{path}")
        assert file.status_code == 200
        assert file.headers["content-security-policy"] == policy
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", file.text)
        assert "innerHTML" not in file.text
        assert set(re.findall(r'from "\./([^"]*)"', file.text)) <= imported


RENDERED = [
    ("a *b* **c** `d` ~~e~~", "<p>a <em>b</em> <strong>c</strong> <code>d</code> <del>e</del></p>"),
    ("snake_case_name 2*3*4 \\*x\\*", "<p>snake_case_name 2<em>3</em>4 *x*</p>"),
    ("# One\n## Two #", "<h1>One</h1><h2>Two</h2>"),
    ("- a\n  - b\n- c", "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>"),
    ("1. a\n\n2. b", "<ol><li>a</li><li>b</li></ol>"),
    ("3. a", '<ol start="3"><li>a</li></ol>'),
    ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"),
    ("a\n---\nb", "<p>a</p><hr><p>b</p>"),
    (
        "|a|b|\n|-|:-:|\n|1|`x\\|y`|",
        '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
        "<tbody><tr><td>1</td><td><code>x|y</code></td></tr></tbody></table></div>",
    ),
    (
        "[x](https://a.example/b_(c)) https://d.example.",
        '<p><a href="https://a.example/b_(c)" target="_blank" rel="noopener noreferrer">x</a> '
        '<a href="https://d.example" target="_blank" rel="noopener noreferrer">https://d.example</a>.</p>',
    ),
    ("<b onclick=x>hi</b>", "<p>&lt;b onclick=x&gt;hi&lt;/b&gt;</p>"),
    ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
    ("[x](/v1/models)", "<p>[x](/v1/models)</p>"),
    ('[x](https://a"onclick="b)', None),
    ("![x](https://a.example/i.png)", None),
]
RENDER = """async text => {
    const { markdown } = await import("/markdown.js");
    const d = document.createElement("div");
    d.append(...markdown(text));
    return d.innerHTML;
}"""


def test_markdown(browser: Any, url: str) -> None:
    with opened(browser, url) as page:
        for text, want in RENDERED:
            got = page.evaluate(RENDER, text)
            assert want is None or got == want
            assert not re.search(r"<(img|script|iframe|b)\b|<[^>]* on\w+=", got)
        for hostile in ("*", "**a", "[", "`", "> ", "- ", "  - a\n", "|", "_a ", "~~", "](", "#", "<think>"):
            page.evaluate(RENDER, hostile * 2000)  # it ends


def test_a_thought_is_folded(browser: Any) -> None:
    with running(saying("<think>is it?</think>Yes.")) as url, opened(browser, url) as page:
        ask(page, "hello")
        answer = wait_for_answer(page)
        assert answer.locator("summary").inner_text() == "Thoughts"
        assert answer.locator(".text > p").inner_text() == "Yes."
        assert "is it?" in json.dumps(answer.locator("details").text_content())
