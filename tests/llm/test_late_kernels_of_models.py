"""`pteron.llm.load(wait=False)`: the first answers are the same as later ones."""

from __future__ import annotations

import threading

import numpy as np

import pteron.llm
from pteron.engine.background_compiler import BackgroundCompiler

SECONDS = 20  # more than the compilation of a kernel takes
TOKENS = [5, 9, 2, 7, 11, 3, 8, 6, 4, 10]


def test_a_conversation_goes_on_while_kernels_are_compiled(llm, model_folder, device, monkeypatch):
    turn, done = threading.Semaphore(0), threading.Semaphore(0)
    compile_route = BackgroundCompiler._compile

    def in_turn(self, key):
        assert turn.acquire(timeout=SECONDS)
        compile_route(self, key)
        done.release()

    monkeypatch.setattr(BackgroundCompiler, "_compile", in_turn)
    expected_state = llm.decoder.new_state()
    with pteron.llm.load(model_folder / "model.pte", device=device, wait=False) as late:
        routes = len(late.program.method()._executor._late_sites)
        assert routes and not late.program.ready
        state = late.decoder.new_state()
        position = 0
        for number in range(routes):
            rows = TOKENS[: 1 + number % 3]
            expected = llm.decoder.logits(rows, position, expected_state)
            np.testing.assert_allclose(late.decoder.logits(rows, position, state), expected, 1e-3, 1e-4)
            position += len(rows)
            turn.release()  # between two calls, the kernels of one route run once without work
            assert done.acquire(timeout=SECONDS)
        late.program.wait_ready(SECONDS)
        before = device.compilations
        expected = llm.decoder.logits(TOKENS, position, expected_state)
        np.testing.assert_allclose(late.decoder.logits(TOKENS, position, state), expected, 1e-3, 1e-4)
        assert device.compilations == before
