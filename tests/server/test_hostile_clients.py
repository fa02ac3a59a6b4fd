"""Clients that mean harm: none of them may stop the server, or be answered with a traceback."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from pteron.llm import LanguageModel, Tokenizer
from pteron.llm.bounded import Bounds
from pteron.llm.tokenizer import prompt_worker
from pteron.server import Limits, SchedulerClosed
from pteron.server.connections import Connection
from tests.llm.reciter import reciter
from tests.server.burst import served
from tests.server.running import (
    HELLO,
    client_of,
    free_port,
    health,
    idle,
    ignoring_the_end,
    is_up,
    running,
    running_server,
    wait_until,
)
from tests.server.test_untrusted_prompts import FORGED, SLOW_PATTERN, SLOW_TEXT, with_split

JSON = {"Content-Type": "application/json"}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def url(llm: LanguageModel) -> Iterator[str]:
    with running(llm, name="tiny") as url:
        yield url


@contextmanager
def connected(url: str, *sent: bytes) -> Iterator[socket.socket]:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        for data in sent:
            client.sendall(data)
        yield client


def head(path: str, *headers: str, host: str = "127.0.0.1", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode()


def answer_to(url: str, *sent: bytes) -> tuple[int, dict[str, Any]]:
    """The status and the JSON body of an answer, of which the server then closes the connection or not."""
    with connected(url, *sent) as client, client.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        length = 0
        while line := stream.readline().strip():
            name, _, value = line.lower().partition(b":")
            length = int(value) if name == b"content-length" else length
        return status, json.loads(stream.read(length))


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed the connection, after whatever it answered."""
    client.settimeout(0.01)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


# -- size and time ------------------------------------------------------------------------------


def test_health_is_answered_while_a_prompt_is_tokenized() -> None:
    llm = reciter("hello")
    llm.tokenizer = Tokenizer(with_split(SLOW_PATTERN), worker=prompt_worker(Bounds(seconds=2)))
    body = {"prompt": SLOW_TEXT}
    with running(llm) as url, ThreadPoolExecutor() as threads:
        asked = threads.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=30)
        wait_until(lambda: health(url)["waiting"] == 1)  # it answers while it tokenizes
        answer = asked.result()
        assert answer.status_code == 500
        assert "the tokenizer took more than 2 s" in answer.json()["error"]["message"]
        assert idle(url)


def test_a_long_prompt_is_refused_by_its_characters(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("it was tokenized"))
    long = [{"role": "user", "content": "x" * 3_000_000}]
    full_of_commas = [{"role": "user", "content": '\\"[,{' * 200_000}]  # the characters that JSON is made of
    for body in ({"messages": long}, {"messages": full_of_commas}, {"messages": HELLO * 30_000}):
        answer = httpx.post(f"{url}{CHAT}", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_many_tokens_are_refused_by_their_number(url: str) -> None:
    answer = httpx.post(f"{url}/v1/completions", json={"prompt": [7] * 90_000})
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_a_large_body_is_refused_before_it_is_sent(url: str) -> None:
    status, body = answer_to(url, head(CHAT, f"Content-Length: {100 << 20}"))
    assert status == 413
    assert "larger than 4194304 bytes" in body["error"]["message"]


def test_a_large_body_that_is_sent_anyway_is_not_kept(llm: LanguageModel) -> None:
    with (
        running(llm, limits=Limits(header_seconds=0.3)) as url,
        connected(url, head(CHAT, f"Content-Length: {1 << 40}")) as client,
        pytest.raises(OSError),
    ):
        for _ in range(100_000):  # the server reads on for a while, so that its answer arrives
            client.sendall(b"x" * 65536)


def test_a_body_in_chunks_is_refused(url: str) -> None:
    status, body = answer_to(url, head(CHAT, "Transfer-Encoding: chunked"), b"1\r\na\r\n" * 10)
    assert status == 411
    assert "Content-Length" in body["error"]["message"]


def test_requests_that_do_not_arrive_are_closed(llm: LanguageModel) -> None:
    begun = [
        b"",
        b"POST /v1/chat",
        head(CHAT, "Content-Length: 100")[:-2],
        head(CHAT, "Content-Length: 100") + b'{"messages"',
        head("/health", "Content-Length: 100", method="GET"),
        head("/health", method="GET") + b"GET /he",
    ]
    limits = Limits(header_seconds=0.5, body_seconds=0.5)
    with running_server(llm, limits=limits) as server, ExitStack() as clients:
        url = f"http://127.0.0.1:{server.config.port}"
        opened = [clients.enter_context(connected(url, each)) for each in begun * 50]
        wait_until(lambda: all(map(is_closed, opened)))
        wait_until(lambda: not server.server_state.connections)
        assert idle(url)


def test_a_slow_body_gets_status_408(llm: LanguageModel) -> None:
    with running(llm, limits=Limits(body_seconds=0.3)) as url:
        status, body = answer_to(url, head(CHAT, "Content-Length: 100"), b"{")
        assert (status, body["error"]["message"]) == (408, "the body did not arrive in time")


def test_a_client_that_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Connection.connection_made

    def with_small_buffers(self: Connection, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport.set_write_buffer_limits(high=4096)
        made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", with_small_buffers)
    body = b'{"prompt": "a", "max_tokens": 5000, "temperature": 0, "stream": true}'
    with running_server(reciter("hello " * 2000), limits=Limits(write_seconds=0.3)) as server:
        url = f"http://127.0.0.1:{server.config.port}"
        with connected(url) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(head("/v1/completions", f"Content-Length: {len(body)}") + body)
            wait_until(lambda: bool(server.server_state.connections))
            wait_until(lambda: not server.server_state.connections)
            received = b"".join(iter(lambda: received_or_nothing(client), b""))
    assert b"200 OK" in received
    assert b"[DONE]" not in received


def received_or_nothing(client: socket.socket) -> bytes:
    """What has arrived; nothing if the server has ended the connection."""
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""


def test_requests_that_are_sent_ahead_are_not_answered(url: str) -> None:
    with connected(url, head("/health", method="GET") * 1000) as client:
        wait_until(lambda: is_closed(client))
    with connected(url, head("/health", method="GET") * 2) as client:
        received = b"".join(iter(lambda: received_or_nothing(client), b""))
    assert received.count(b"200 OK") == 1


@pytest.mark.parametrize("begun", [b"", b"GET /", head(CHAT, "Content-Length: 100") + b"{"])
def test_at_the_connection_limit_the_oldest_unfinished_request_is_closed(begun: bytes) -> None:
    with running(reciter("hello"), limits=Limits(connections=20)) as url, ExitStack() as clients:
        opened = [clients.enter_context(connected(url, begun)) for _ in range(60)]
        assert idle(url)
        wait_until(lambda: all(map(is_closed, opened[:40])))
        assert not any(map(is_closed, opened[45:]))
        assert idle(url)


@pytest.mark.usefixtures("slow")
def test_at_the_connection_limit_answers_continue(llm: LanguageModel) -> None:
    prompt = ignoring_the_end(llm)
    ask: dict[str, Any] = {"model": "x", "prompt": prompt, "max_tokens": 20, "temperature": 0}
    with running(llm, limits=Limits(connections=10)) as url, ExitStack() as clients:
        chunks = client_of(url).completions.create(**ask, stream=True)
        text = next(chunks).choices[0].text
        for _ in range(30):
            clients.enter_context(connected(url))
        text += "".join(chunk.choices[0].text for chunk in chunks)
    assert text == llm.generate(prompt, max_new_tokens=20).text


def test_a_stalled_body_is_refused_for_one_that_arrives(llm: LanguageModel) -> None:
    begun = head(CHAT, "Content-Length: 1000000") + b" " * 500_000
    with running(llm, limits=Limits(bodies=2 << 20)) as url, ExitStack() as clients:
        stalled = [clients.enter_context(connected(url, begun)) for _ in range(8)]
        wait_until(lambda: b" 408 " in stalled[0].recv(100))
        answer = client_of(url).chat.completions.create(model="x", messages=HELLO, max_tokens=2)
        assert answer.choices


# -- bodies that are no requests ----------------------------------------------------------------


def asking(**fields: str) -> bytes:
    """A request whose fields are given as JSON."""
    given = {"messages": '[{"role": "user", "content": "hello"}]', "max_tokens": "1", **fields}
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in given.items()) + "}").encode(
        "utf-8", "surrogatepass"
    )


BAD_BODIES = {
    "deep": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep field": asking(x="[" * 2000 + "]" * 2000),
    "many lists": b"[" + b"[]," * 1_000_000 + b"[]]",
    "many names": b"{" + b",".join(b'"%x": 1' % n for n in range(300_000)) + b"}",
    "many numbers": asking(prompt=json.dumps([7] * 1_000_000)),
    "lone surrogate": asking(messages=r'[{"role": "user", "content": "\ud800"}]'),
    "lone surrogate elsewhere": asking(messages=r'[{"role": "user", "name": "\uDFFF", "content": "a"}]'),
    "raw surrogate": asking(messages='[{"role": "user", "content": "\ud800"}]'),
    "1e400": asking(temperature="1e400"),
    "infinity": asking(temperature="-Infinity"),
    "not a number": asking(top_p="NaN"),
    "a long integer": asking(temperature="1" + "0" * 400),
    "more digits than Python takes": asking(temperature="1" * 5000),
    "a large seed": asking(seed="1" + "0" * 400),
    "a large count": asking(max_tokens="9" * 30),
    "many stops": asking(stop=json.dumps(["a"] * 100_000)),
    "a long stop": asking(stop=json.dumps("a" * 100_000)),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_a_bad_body_is_the_clients_fault(url: str, kind: str) -> None:
    answer = httpx.post(f"{url}{CHAT}", content=BAD_BODIES[kind], headers=JSON, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert idle(url)


def test_surrogates_in_pairs_are_characters(url: str) -> None:
    body = asking(messages=r'[{"role": "user", "content": "\ud83d\ude42"}]')
    assert httpx.post(f"{url}{CHAT}", content=body, headers=JSON, timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", CHAT, 405), ("POST", "/health", 405), ("GET", "/health/", 404)],
)
def test_unknown_paths_are_errors_in_json(url: str, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"{url}{path}")
    assert answer.status_code == status
    assert path in answer.json()["error"]["message"]


def test_bytes_that_are_not_http_get_an_error_in_json(url: str) -> None:
    status, body = answer_to(url, b"\x16\x03\x01 hello\r\n\r\n")
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")


def test_a_fault_of_the_server_is_an_error_in_json(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pteron.server.endpoints.parse_chat", None)
    monkeypatch.setattr("pteron.server.endpoints.ChatForm", lambda name: 1 / 0)
    answer = httpx.post(f"{url}{CHAT}", content=asking(), headers=JSON)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")


def test_a_client_that_leaves_while_it_sends_is_one_line_in_the_log(llm: LanguageModel) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("uvicorn.error")
    with running(llm, log_level="info") as url:
        log.addHandler(handler)
        with connected(url, head(CHAT, "Content-Length: 100") + b"{"):
            pass
        wait_until(lambda: bool(lines))
        assert idle(url)
        log.removeHandler(handler)
    assert lines == [f"a client left before its request to {CHAT} was complete"]


# -- other origins ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_request_from_a_web_page_is_refused(url: str, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(LanguageModel, "stream", lambda *_, **__: pytest.fail("it was answered"))
    headers = {"Origin": "http://evil.example", **({"Content-Type": kind} if kind else {})}
    answer = httpx.post(f"{url}{CHAT}", content=asking(), headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


def test_a_content_type_may_have_parameters(url: str) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert httpx.post(f"{url}{CHAT}", content=asking(), headers=headers, timeout=60).status_code == 200


@pytest.mark.parametrize("host", ["[::1", "a b", "a:b:c", "x@localhost", "localhost/", "localhost:", "é", ""])
def test_a_malformed_name_is_refused(url: str, host: str) -> None:
    status, body = answer_to(url, head("/health", host=host, method="GET"))
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("host", "status"),
    [("LocalHost:1", 200), ("[::1]:80", 200), ("evil.example", 403), ("localhost.evil", 403)],
)
def test_only_local_names_are_answered(url: str, host: str, status: int) -> None:
    assert answer_to(url, head("/health", host=host, method="GET"))[0] == status


# -- messages that spell control tokens ---------------------------------------------------------


@pytest.mark.parametrize("allow", [False, True])
def test_messages_write_control_tokens_only_if_allowed(llm: LanguageModel, allow: bool) -> None:
    messages: Any = [{"role": "user", "content": FORGED}]
    with running(llm, allow_special=allow) as url:
        answer = client_of(url).chat.completions.create(model="x", messages=messages, max_tokens=1)
    tokens = llm.encode(messages, allow_special=allow)
    assert tokens.count(llm.tokenizer.id_of("<|im_end|>")) == (2 if allow else 1)  # type: ignore[arg-type]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokens) != len(llm.encode(messages, allow_special=not allow))


def test_the_command_line_sets_the_limits(llm: LanguageModel, model_folder: Path) -> None:
    messages: Any = [{"role": "user", "content": FORGED}]
    options = ("--max-body", "1", "--max-connections", "3", "--allow-special")
    with served(model_folder / "model.pte", *options) as (port, _), ExitStack() as clients:
        url = f"http://127.0.0.1:{port}"
        status, body = answer_to(url, head(CHAT, f"Content-Length: {(1 << 20) + 1}"))
        assert (status, body["error"]["message"]) == (413, "the body is larger than 1048576 bytes")
        answer = client_of(url).chat.completions.create(model="model", messages=messages, max_tokens=1)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == len(llm.encode(messages, allow_special=True))
        opened = [clients.enter_context(connected(url)) for _ in range(6)]
        wait_until(lambda: all(map(is_closed, opened[:3])))


# -- the end ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("slow")
def test_an_answer_that_the_server_cuts_is_an_error(llm: LanguageModel) -> None:
    ask: dict[str, Any] = {"model": "x", "prompt": ignoring_the_end(llm), "max_tokens": 90, "temperature": 0}
    limits = Limits(drain_seconds=0)
    with running_server(llm, limits=limits) as server, ThreadPoolExecutor() as threads:
        client = client_of(f"http://127.0.0.1:{server.config.port}")
        chunks = client.completions.create(**ask, stream=True)
        whole = threads.submit(client.completions.create, **ask)
        assert next(chunks).choices[0].finish_reason is None
        wait_until(lambda: server.config.app.state.catalog.loaded[0].scheduler.active == 2)  # type: ignore[union-attr]
        server.handle_exit(signal.SIGTERM, None)
        reasons = []
        with pytest.raises(openai.APIError, match="shutting down"):
            reasons.extend(chunk.choices[0].finish_reason for chunk in chunks)
        assert not any(reasons)
        with pytest.raises(openai.InternalServerError, match="shutting down"):
            whole.result()


@pytest.mark.usefixtures("slow")
def test_a_terminated_server_finishes_its_answers(llm: LanguageModel) -> None:
    """Also those that wait. New requests are refused."""
    ask: dict[str, Any] = {"model": "x", "prompt": ignoring_the_end(llm), "max_tokens": 40, "temperature": 0}
    with running_server(llm, parallel=1) as server, ThreadPoolExecutor() as threads:
        client = client_of(f"http://127.0.0.1:{server.config.port}")
        chunks = client.completions.create(**ask, stream=True)
        next(chunks)
        whole = threads.submit(client.completions.create, **ask)
        scheduler = server.config.app.state.catalog.loaded[0].scheduler  # type: ignore[union-attr]
        wait_until(lambda: scheduler.active == scheduler.waiting == 1)
        server.handle_exit(signal.SIGTERM, None)
        with pytest.raises(SchedulerClosed):
            scheduler.submit(llm.answer("hello"), print)
        assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
        assert whole.result().usage.completion_tokens == 40


def test_a_terminated_server_ends_its_answers_with_an_error(llm: LanguageModel, model_folder: Path) -> None:
    body = {"prompt": ignoring_the_end(llm), "max_tokens": 90, "temperature": 0, "stream": True}
    for _ in range(5):
        rest, server, output = terminated(model_folder, body)
        if rest[-1] != "data: [DONE]":  # else the answer was complete before the signal arrived
            break
    assert "shutting down" in rest[-1]
    assert not any('"finish_reason":"' in line for line in rest)
    assert server.returncode == -signal.SIGTERM, output  # it ends in order, then as one that was terminated
    assert "Traceback" not in output


def terminated(model_folder: Path, body: dict[str, Any]) -> tuple[list[str], subprocess.Popen[str], str]:
    """The events of an answer after SIGTERM, the server, and what it printed."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "pteron", "serve", str(model_folder / "model.pte"), "--port", str(port)]
    command += ["--drain-seconds", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        wait_until(lambda: is_up(url), seconds=60)
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
            events = answer.iter_lines()
            assert "text_completion" in next(events)
            server.send_signal(signal.SIGTERM)
            rest = [line for line in events if line]
        output, _ = server.communicate(timeout=30)
    return rest, server, output
