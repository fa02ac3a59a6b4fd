"""What the server tells about itself: /metrics for Prometheus, and one line in the log for each request."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pteron.errors import InputError
from pteron.llm import LanguageModel
from pteron.llm.batch import Batch
from pteron.server.request_log import NAME, JsonFormatter
from tests.server.running import client_of, ignoring_the_end, running, wait_until

ASK = {"prompt": "hello", "max_tokens": 3, "temperature": 0, "seed": 1}


def metrics(url: str) -> dict[str, float]:
    """The samples by name and labels, without the model's."""
    answer = httpx.get(f"{url}/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            assert sample.labels.pop("model") == "tiny"
            found[" ".join([sample.name.removeprefix("pteron_"), *sample.labels.values()])] = sample.value
    return found


def test_metrics_count_requests_tokens_and_steps(llm: LanguageModel) -> None:
    llm.sessions.close()
    with running(llm, name="tiny", parallel=2) as url:
        before = metrics(url)
        assert (before["requests_active"], before["requests_waiting"], before["kv_used_bytes"]) == (0, 0, 0)
        assert before["kv_limit_bytes"] == 2 * llm.decoder.kv_nbytes > 0
        want = llm.generate("hello", max_new_tokens=3)
        for _ in range(2):
            httpx.post(f"{url}/v1/completions", json=ASK, timeout=60)
        after = metrics(url)
    length = want.stats.prompt_tokens
    assert after[f"requests_total {want.finish_reason}"] == 2
    assert after["prompt_tokens_total"] == 2 * length
    assert after["cached_tokens_total"] == 2 * length
    assert after["generated_tokens_total"] == 2 * len(want.tokens)
    assert after["time_to_first_token_seconds_count"] == 2
    assert after["step_seconds_count"] == after["step_rows_count"]
    assert after["step_rows_sum"] == 2 * (len(want.tokens) - 1)  # the prompt is known: its logits, too


def test_active_and_refused_requests_are_counted(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, step = threading.Event(), Batch.step
    monkeypatch.setattr(Batch, "step", lambda batch: go_on.wait(60) and step(batch))
    with running(llm, name="tiny", parallel=1, queue=1) as url, ThreadPoolExecutor() as threads:
        held = [threads.submit(httpx.post, f"{url}/v1/completions", json=ASK, timeout=60) for _ in range(2)]
        wait_until(lambda: metrics(url)["requests_active"] == metrics(url)["requests_waiting"] == 1)
        assert metrics(url)["kv_used_bytes"] == llm.decoder.kv_nbytes
        refused = httpx.post(f"{url}/v1/completions", json=ASK)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert metrics(url)["requests_total refused"] == 1
        go_on.set()
        assert [each.result().status_code for each in held] == [200, 200]
        assert metrics(url)["requests_active"] == metrics(url)["kv_used_bytes"] == 0


def test_kv_memory_limits_the_answers(llm: LanguageModel) -> None:
    kv_nbytes = llm.decoder.kv_nbytes
    with running(llm, name="tiny", parallel=9, kv_memory=3 * kv_nbytes + 1) as url:
        assert metrics(url)["kv_limit_bytes"] == 3 * kv_nbytes
    with pytest.raises(InputError, match=f"one answer takes {kv_nbytes:,}: allow more"):
        running(llm, kv_memory=kv_nbytes - 1).__enter__()


@contextmanager
def logged(llm: LanguageModel, formatter: logging.Formatter) -> Iterator[tuple[str, list[str]]]:
    """A server, and the lines that it logs for requests."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(formatter.format(record))  # type: ignore[method-assign]
    with running(llm, name="tiny", log_level="info") as url:
        logging.getLogger(NAME).addHandler(handler)
        try:
            yield url, lines
        finally:
            logging.getLogger(NAME).removeHandler(handler)


def test_requests_whose_clients_leave_are_logged_as_cancelled(
    llm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Batch.step

    def slowly(batch: Batch) -> Any:
        time.sleep(0.02)
        return step(batch)

    monkeypatch.setattr(Batch, "step", slowly)
    body = {"prompt": ignoring_the_end(llm), "max_tokens": 90, "temperature": 0}
    with logged(llm, logging.Formatter()) as (url, lines):
        with httpx.stream("POST", f"{url}/v1/completions", json={**body, "stream": True}) as answer:
            next(answer.iter_lines())
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/completions", json=body, timeout=0.3)
        wait_until(lambda: len(lines) == 2)
    streamed, whole = lines
    assert streamed.startswith("POST /v1/completions 200 ") and streamed.endswith(", cancelled")
    assert "tiny: 1 tokens in the prompt" in streamed
    assert whole.startswith("POST /v1/completions 499 ") and whole.endswith(", cancelled")


def test_each_request_is_one_line_of_json(llm: LanguageModel) -> None:
    with logged(llm, JsonFormatter()) as (url, lines):
        client = client_of(url, default_headers={"X-Request-Id": "mine-1"})
        answer = client.completions.with_raw_response.create(model="tiny", **ASK)  # type: ignore[arg-type]
        assert answer.headers["x-request-id"] == "mine-1"
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="other", prompt="hello")
        odd = httpx.get(f"{url}/no%0Apath", headers={"X-Request-Id": "x" * 65})
        wait_until(lambda: len(lines) == 3)
    made, missing, nowhere = (json.loads(line) for line in lines)
    usage = answer.parse().usage
    assert usage is not None
    assert made.pop("seconds") >= made.pop("time_to_first_token") > 0
    assert made.pop("time").endswith("+00:00") and made.pop("cached_tokens") <= usage.prompt_tokens
    assert made == {
        "level": "info",
        "message": "request",
        "request_id": "mine-1",
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "model": "tiny",
        "prompt_tokens": usage.prompt_tokens,
        "generated_tokens": usage.completion_tokens,
        "finish_reasons": [answer.parse().choices[0].finish_reason],
    }
    assert (missing["status"], "prompt_tokens" in missing) == (404, False)
    assert nowhere["path"] == "/no%0Apath"
    assert nowhere["request_id"] == odd.headers["x-request-id"] != "x" * 65
