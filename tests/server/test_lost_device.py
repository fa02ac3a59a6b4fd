"""A GPU that goes away under the server: 503 meanwhile, and right answers afterwards."""

from __future__ import annotations

import threading
from pathlib import Path

import openai
import pytest

import pteron.llm
from tests.server.running import HELLO, client_of, running, wait_until
from tests.support.faults import lose


def ask(client: openai.OpenAI) -> str:
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8, temperature=0)
    return answer.choices[0].message.content or ""


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_server_opens_a_lost_gpu_again_by_itself(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, parallel: int
) -> None:
    with pteron.llm.load(model_folder / "model.pte", parallel=parallel) as llm:
        reload, may_reload, reloaded = llm.reload, threading.Event(), threading.Event()

        def reload_later() -> None:
            may_reload.wait(60)
            reload()
            reloaded.set()

        monkeypatch.setattr(llm, "reload", reload_later)
        with running(llm, name="tiny") as url:
            client = client_of(url).with_options(max_retries=0)
            wanted = ask(client)
            lose(llm.program.device)
            for _ in range(2):  # the answer during which it was lost, and one that comes before it is back
                with pytest.raises(openai.InternalServerError) as refused:
                    ask(client)
                assert refused.value.status_code == 503
                assert "GPU" in str(refused.value)
            may_reload.set()
            assert reloaded.wait(60)
            wait_until(lambda: ask_or_none(client) is not None)
            assert ask(client) == wanted


def ask_or_none(client: openai.OpenAI) -> str | None:
    try:
        return ask(client)
    except openai.InternalServerError:
        return None
