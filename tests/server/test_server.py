"""The server as the official client meets it, over a real socket."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from pteron.errors import InputError
from pteron.llm import LanguageModel, Sampler
from pteron.server import QueueFull, Scheduler, SchedulerClosed
from tests.llm.reciter import reciter
from tests.llm.tiny_llama import CONTEXT
from tests.server.running import (
    HELLO,
    client_of,
    free_port,
    health,
    idle,
    ignoring_the_end,
    is_up,
    running,
    wait_until,
)
from tests.support.cli import pteron_cli


@pytest.fixture(scope="module")
def url(llm: LanguageModel) -> Iterator[str]:
    with running(llm, name="tiny", parallel=2, queue=64) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return client_of(url)


# -- answers ------------------------------------------------------------------------------------


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "pteron"
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        client.models.retrieve("other")


def test_chat(client: openai.OpenAI, llm: LanguageModel) -> None:
    want = llm.generate(HELLO, max_new_tokens=10)
    got = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=10, temperature=0)
    assert got.choices[0].message.content == want.text
    assert got.choices[0].message.role == "assistant"
    assert got.choices[0].finish_reason == want.finish_reason
    assert got.model == "tiny"
    assert got.usage is not None
    assert got.usage.prompt_tokens == want.stats.prompt_tokens
    assert got.usage.completion_tokens == want.stats.generated_tokens
    assert got.usage.total_tokens == want.stats.prompt_tokens + want.stats.generated_tokens


def test_chat_in_a_stream(client: openai.OpenAI, llm: LanguageModel) -> None:
    want = llm.generate(HELLO, max_new_tokens=10)
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            max_completion_tokens=10,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *body, last = chunks
    assert body[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in body) == want.text
    assert [c.choices[0].finish_reason for c in body if c.choices[0].finish_reason] == [want.finish_reason]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == want.stats.generated_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_streams_are_server_sent_events(url: str) -> None:
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 3, "temperature": 0, "stream": True}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    assert all(
        json.loads(event.removeprefix("data: "))["object"] == "chat.completion.chunk" for event in events
    )


def test_completions_echo_and_stop(client: openai.OpenAI, llm: LanguageModel) -> None:
    free = llm.generate("hello", max_new_tokens=16, eos_token_id=[]).text
    stop = free[4:6]
    got = client.completions.create(model="tiny", prompt="hello", temperature=0, echo=True, stop=[stop])
    assert got.choices[0].text == "hello" + free[: free.index(stop)]
    assert got.choices[0].finish_reason == "stop"


def test_completions_in_a_stream_and_from_tokens(client: openai.OpenAI, llm: LanguageModel) -> None:
    want = llm.generate("hello", max_new_tokens=5, eos_token_id=[]).text
    tokens = llm.encode("hello")
    chunks = client.completions.create(model="tiny", prompt=tokens, temperature=0, max_tokens=5, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == want


def test_characters_survive_the_stream() -> None:
    text = "naïve 🙂 日本"
    with running(reciter(text)) as url:
        chunks = client_of(url).completions.create(
            model="x", prompt="a", temperature=0, max_tokens=99, stream=True
        )
        assert "".join(chunk.choices[0].text for chunk in chunks) == text


def test_seeds_reproduce(client: openai.OpenAI) -> None:
    def text(seed: int) -> str | None:
        answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=20, seed=seed)
        return answer.choices[0].message.content

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_a_conversation_runs_only_its_new_tokens(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "a question that nobody has asked"}]
    first = client.chat.completions.create(model="tiny", messages=messages, max_tokens=3, temperature=0)
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "more"},
    ]
    second = client.chat.completions.create(model="tiny", messages=messages, max_tokens=3, temperature=0)
    assert first.usage and second.usage and second.usage.prompt_tokens_details
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= first.usage.prompt_tokens - 1


def test_parts_of_text_are_joined(client: openai.OpenAI, llm: LanguageModel) -> None:
    parts: Any = [
        {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}
    ]
    got = client.chat.completions.create(model="tiny", messages=parts, max_tokens=5, temperature=0)
    assert got.choices[0].message.content == llm.generate(HELLO, max_new_tokens=5).text


def test_several_answers_to_one_prompt(client: openai.OpenAI, llm: LanguageModel) -> None:
    options: Any = {"max_tokens": 6, "temperature": 1.0, "seed": 3}
    want = [llm.session().generate(HELLO, max_new_tokens=6, temperature=1.0, seed=seed) for seed in (3, 4, 5)]
    got = client.chat.completions.create(model="tiny", messages=HELLO, n=3, **options)
    assert [choice.index for choice in got.choices] == [0, 1, 2]
    assert [choice.message.content for choice in got.choices] == [answer.text for answer in want]
    assert [choice.finish_reason for choice in got.choices] == [answer.finish_reason for answer in want]
    assert got.usage is not None
    assert got.usage.completion_tokens == sum(len(answer.tokens) for answer in want)
    assert got.usage.prompt_tokens == want[0].stats.prompt_tokens

    texts, reasons = ["", "", ""], {}
    for chunk in client.chat.completions.create(model="tiny", messages=HELLO, n=3, stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert texts == [answer.text for answer in want]
    assert reasons == {i: answer.finish_reason for i, answer in enumerate(want)}


def test_more_answers_than_places_are_refused(llm: LanguageModel) -> None:
    with running(llm, parallel=1, queue=2) as url:
        client = client_of(url)
        with pytest.raises(openai.BadRequestError, match=r"asks for 4 answers, .* at most 3 at a time"):
            client.completions.create(model="x", prompt="hello", n=4)
        wait_until(lambda: idle(url))
        assert len(client.completions.create(model="x", prompt="hello", n=3).choices) == 3


def test_log_probabilities(client: openai.OpenAI, llm: LanguageModel) -> None:
    want = llm.generate(HELLO, max_new_tokens=4, eos_token_id=[], logprobs=True, top_logprobs=2).logprobs
    asked: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 4, "temperature": 0}
    got = client.chat.completions.create(logprobs=True, top_logprobs=2, **asked).choices[0]
    assert got.logprobs is not None and got.logprobs.content is not None
    assert "".join(item.token for item in got.logprobs.content) == got.message.content
    for item, known in zip(got.logprobs.content, want, strict=False):
        assert (item.token, item.logprob) == (known.text, pytest.approx(known.logprob))
        assert item.bytes == list(known.text.encode())
        assert [top.token for top in item.top_logprobs] == [top.text for top in known.top]
    streamed = [
        item
        for chunk in client.chat.completions.create(logprobs=True, top_logprobs=2, stream=True, **asked)
        for choice in chunk.choices
        if choice.logprobs
        for item in choice.logprobs.content or []
    ]
    assert streamed == got.logprobs.content
    text = client.completions.create(model="tiny", prompt="hello", max_tokens=4, temperature=0, logprobs=2)
    found = text.choices[0].logprobs
    assert found is not None and found.tokens is not None and found.top_logprobs is not None
    assert "".join(found.tokens) == text.choices[0].text
    assert [len(top) for top in found.top_logprobs] == [2] * len(found.tokens)


def test_penalties_and_biases(client: openai.OpenAI, llm: LanguageModel) -> None:
    token = llm.encode("Q")[0]
    extra: Any = {"repeat_penalty": 1.2, "repeat_last_n": 30, "dry_multiplier": 9.0, "dry_penalty_last_n": 40}
    got = client.completions.create(
        model="tiny",
        prompt="hello",
        max_tokens=12,
        temperature=0,
        presence_penalty=2,
        frequency_penalty=1,
        logit_bias={str(token): 60},
        extra_body=extra,
    )
    want = llm.generate(
        "hello",
        max_new_tokens=12,
        presence_penalty=2,
        frequency_penalty=1,
        logit_bias={token: 60.0},
        repetition_penalty=1.2,
        penalty_last_n=30,
        dry_multiplier=9.0,
        dry_last_n=40,
    )
    assert got.choices[0].text == want.text
    assert want.text.startswith("QQ") and want.text != "Q" * 12


def test_a_full_context_shifts_only_if_the_server_is_told(llm: LanguageModel) -> None:
    talk: Any = [{"role": role, "content": "x" * 20} for role in ("user", "assistant") * 2] + HELLO
    with running(llm, context_policy="shift") as url:
        got = client_of(url).chat.completions.create(model="x", messages=talk, max_tokens=3, temperature=0)
    stream = llm.stream(talk, max_new_tokens=3, context_policy="shift")
    assert got.choices[0].message.content == "".join(piece.text for piece in stream)
    assert got.usage is not None and got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.model_extra == {"context_shifts": 1}


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"presence_penalty": "much"}, "presence_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"1": "x"}}, "1"),
        ({"logit_bias": {"999999": 1}}, None),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"temperature": "warm"}, "temperature"),
        ({"messages": []}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            None,
        ),
    ],
)
def test_unsupported_options_are_refused(
    client: openai.OpenAI, options: dict[str, Any], param: str | None
) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, **options}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**asked)
    assert caught.value.type == "invalid_request_error"
    assert param is None or caught.value.param == param


def test_values_out_of_range_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="top_p is 2") as caught:
        client.chat.completions.create(model="tiny", messages=HELLO, top_p=2)
    assert caught.value.param == "top_p"


def test_a_prompt_beyond_the_context_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=f"has {CONTEXT}") as caught:
        client.completions.create(model="tiny", prompt="x" * 500)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff"])
def test_invalid_bodies_are_refused(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{url}/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_keys_and_names_are_checked(llm: LanguageModel) -> None:
    with running(llm, api_key="secret", hosts=("127.0.0.1",)) as url:
        with pytest.raises(openai.AuthenticationError):
            client_of(url).models.list()
        assert openai.OpenAI(base_url=f"{url}/v1", api_key="secret").models.list()
        headers = {"Host": "evil.example", "Authorization": "Bearer secret"}
        assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 403


def test_other_model_names_are_refused(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-5'; this server has: tiny") as caught:
        client.chat.completions.create(model="gpt-5", messages=HELLO)
    assert caught.value.code == "model_not_found"
    answer = httpx.post(f"{url}/v1/completions", json={"model": 5, "prompt": "a"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    assert httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_web_pages_of_allowed_origins_may_use_the_server(llm: LanguageModel, url: str) -> None:
    def asked(url: str, origin: str) -> httpx.Response:
        wish = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        return httpx.options(f"{url}/v1/chat/completions", headers={"Origin": origin, **wish})

    mine = "https://app.example"
    assert "access-control-allow-origin" not in asked(url, mine).headers
    with running(llm, cors=(mine,), api_key="secret") as open_url:
        allowed = asked(open_url, mine)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, mine)
        assert "access-control-allow-origin" not in asked(open_url, "https://evil.example").headers
        refused = httpx.get(f"{open_url}/v1/models", headers={"Origin": mine})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, mine)
    with pytest.raises(InputError, match="expected an origin such as"):
        running(llm, cors=("https://app.example/",)).__enter__()


# -- many at once -------------------------------------------------------------------------------


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_answer(llm: LanguageModel, stream: bool) -> None:
    prompt = ignoring_the_end(llm)
    with running(llm, parallel=1) as url:
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 90, "stream": stream}
        begin = time.monotonic()
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}/v1/completions", json=body, timeout=httpx.Timeout(10, read=0.04 if stream else 0.5)
            )
        wait_until(lambda: idle(url))
        assert time.monotonic() - begin < 2  # all 90 tokens take 4.5 seconds
        answer = client_of(url).completions.create(model="x", prompt=prompt, max_tokens=3, temperature=0)
        assert answer.choices[0].text == llm.generate(prompt, max_new_tokens=3).text


@pytest.mark.usefixtures("slow")
def test_a_full_queue_gives_status_429(llm: LanguageModel) -> None:
    with running(llm, parallel=1, queue=1) as url:
        client = client_of(url)
        ask = {"model": "x", "prompt": ignoring_the_end(llm), "max_tokens": 20, "temperature": 0}
        first = client.completions.create(**ask, stream=True)  # type: ignore[call-overload]
        with ThreadPoolExecutor() as threads:
            second = threads.submit(lambda: client.completions.create(**ask))  # type: ignore[call-overload]
            wait_until(lambda: health(url)["waiting"] == 1)
            with pytest.raises(openai.RateLimitError) as caught:
                client.completions.create(**ask)  # type: ignore[call-overload]
            assert caught.value.response.headers["retry-after"] == "1"
            text = "".join(chunk.choices[0].text for chunk in first)
            assert second.result().choices[0].text == text
        assert client.completions.create(**ask).choices[0].text == text  # type: ignore[call-overload]


def test_an_answer_that_fails_is_an_error_and_the_next_is_right(
    llm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(llm) as url:
        client = client_of(url)
        with monkeypatch.context() as broken:
            broken.setattr(Sampler, "choose_from", lambda sampler, seen: 1 / 0)
            with pytest.raises(openai.InternalServerError, match="division by zero"):
                client.completions.create(model="x", prompt="hello")
            with pytest.raises(openai.APIError, match="division by zero"):
                list(client.completions.create(model="x", prompt="hello", stream=True))
        want = llm.generate("hello", max_new_tokens=4).text
        answer = client.completions.create(model="x", prompt="hello", temperature=0, max_tokens=4)
        assert answer.choices[0].text == want


# -- the scheduler ------------------------------------------------------------------------------


def test_answers_take_turns(llm: LanguageModel) -> None:
    scheduler = Scheduler.of(llm, parallel=2, queue=0)
    order: list[str] = []
    done = threading.Semaphore(0)

    def deliver(name: str) -> Callable[[Any], None]:
        def took(piece: Any) -> None:
            order.append(name)
            if piece.finish_reason:
                done.release()

        return took

    go_on = threading.Event()

    def hold(done: int, total: int) -> None:
        go_on.wait(30)

    for name in "ab":
        answer = llm.answer(f"{name} hello", max_new_tokens=10, eos_token_id=[], on_prefill=hold)
        scheduler.submit(answer, deliver(name))
    with pytest.raises(QueueFull):
        scheduler.submit(llm.answer("hello"), deliver("c"))
    go_on.set()
    assert done.acquire(timeout=30) and done.acquire(timeout=30)
    scheduler.close()
    assert sorted(order) == ["a"] * 10 + ["b"] * 10
    assert "ababab" in "".join(order)


def test_a_stopped_scheduler_ends_all_waiting_requests(llm: LanguageModel) -> None:
    scheduler = Scheduler.of(llm, parallel=1, queue=1)
    inside, go_on = threading.Event(), threading.Event()
    made: list[Any] = []
    refused: list[Any] = []

    def hold(done: int, total: int) -> None:
        inside.set()
        go_on.wait(30)

    scheduler.submit(llm.answer("x" * 40, on_prefill=hold), made.append)
    assert inside.wait(30)
    scheduler.submit(llm.answer("hello"), refused.append)
    scheduler.stop()
    go_on.set()
    scheduler.close()
    assert [type(error) for error in made] == [SchedulerClosed]
    assert [type(error) for error in refused] == [SchedulerClosed]
    with pytest.raises(SchedulerClosed):
        scheduler.submit(llm.answer("hello"), made.append)


def test_a_busy_port_is_noticed_before_a_model_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        for more in ((), ("--idle-seconds", 9)):
            done = pteron_cli("serve", tmp_path / "no model.pte", "--port", port, *more, code=1)
            assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in done.stderr


def test_an_interrupted_server_ends_at_once_without_a_traceback(model_folder: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "pteron", "serve", str(model_folder / "model.pte"), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        wait_until(lambda: is_up(f"http://127.0.0.1:{port}"), seconds=60)
        server.send_signal(signal.SIGINT)
        output, _ = server.communicate(timeout=30)
    assert server.returncode == 0, output
    assert "Traceback" not in output


def test_a_cancelled_request_leaves_the_queue(llm: LanguageModel) -> None:
    scheduler = Scheduler.of(llm, parallel=1, queue=1)
    inside, go_on = threading.Event(), threading.Event()

    def hold(done: int, total: int) -> None:
        inside.set()
        go_on.wait(30)

    finished: list[Any] = []
    scheduler.submit(llm.answer("hello", max_new_tokens=1, on_prefill=hold), finished.append)
    assert inside.wait(30)
    waiting = scheduler.submit(llm.answer("hello", max_new_tokens=1), finished.append)
    scheduler.cancel(waiting)
    scheduler.submit(llm.answer("hello", max_new_tokens=1), finished.append)
    go_on.set()
    wait_until(lambda: len(finished) == 2)
    scheduler.close()


def test_the_command_line_serves_several_models(model_folder: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    model, bare = str(model_folder / "model.pte"), str(model_folder / "bare" / "model.pte")
    command = [sys.executable, "-m", "pteron", "serve", model, bare, "--port", str(port)]
    options = ["-a", "whole", "-a", "bare", "--memory", "4096", "--idle-seconds", "600"]
    refused = subprocess.run(command, capture_output=True)
    assert "two models have the name 'model'" in refused.stderr.decode()
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: is_up(url) or process.poll() is not None, 60)
        assert [card.id for card in client_of(url).models.list()] == ["whole", "bare"]
        got = client_of(url).completions.create(model="bare", prompt="hello", max_tokens=3, temperature=0)
        assert got.usage and got.usage.completion_tokens == 3
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
