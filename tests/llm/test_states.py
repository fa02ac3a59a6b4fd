"""KV states of a language model under faults: interrupts, memory that runs out, a lost device, pickling."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import pteron
import pteron.llm
from pteron.errors import OutOfMemory
from tests.support.faults import Limited, each_line, lock_is_free, lose

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def answer(llm, session):
    return session.generate(PROMPT, max_new_tokens=6, temperature=0).tokens


def test_an_interrupt_at_any_line_of_a_step_loses_no_cache(llm):
    """After the interrupt the same step gives the same logits, with the same cache behind it."""
    decoder = llm.decoder
    state, undisturbed = decoder.new_state(), decoder.new_state()
    decoder.logits(PROMPT, 0, undisturbed)
    wanted = decoder.logits([7], len(PROMPT), undisturbed)
    decoder.logits(PROMPT, 0, state)
    count = 0
    for _ in each_line(lambda: decoder.logits([7], len(PROMPT), state)):
        np.testing.assert_array_equal(decoder.logits([7], len(PROMPT), state), wanted)
        count += 1
    assert count > 100
    assert lock_is_free(llm.program.device)


def test_a_state_that_does_not_fit_frees_what_it_took(llm, monkeypatch):
    device, method = llm.program.device, llm.decoder.method
    method.new_state()  # the one that was made at load
    wanted = answer(llm, llm.session())
    limited = Limited(device, monkeypatch)
    before = device.allocated_nbytes
    for count in range(100):
        limited.left = count
        try:
            method.new_state().close()
            break
        except OutOfMemory:
            assert device.allocated_nbytes == before
    assert 0 < count < 100
    limited.left = None
    assert answer(llm, llm.session()) == wanted


def test_a_lost_device_is_reloaded_and_sessions_go_on(model_folder):
    with pteron.llm.load(model_folder / "model.pte") as llm:
        session = llm.session()
        wanted = answer(llm, session)
        lose(llm.program.device)
        with pytest.raises(pteron.DeviceLost):
            answer(llm, session)
        llm.reload()
        assert answer(llm, session) == wanted
        assert llm.generate(PROMPT, max_new_tokens=6, temperature=0).tokens == wanted


def test_a_model_pickles_as_its_file(model_folder):
    with pteron.llm.load(model_folder / "model.pte", context_length=32) as llm:
        wanted = answer(llm, llm.session())
        with pytest.raises(TypeError, match="make a new one from the model"):
            pickle.dumps(llm.session())
        data = pickle.dumps(llm)
    with pickle.loads(data) as again:
        assert again.context_length == 32
        assert answer(again, again.session()) == wanted


def test_a_closed_model_is_freed_without_a_collection(model_folder):
    gc.collect()
    gc.disable()
    try:
        llm = pteron.llm.load(model_folder / "model.pte")
        answer(llm, llm.session())
        llm.generate(PROMPT, max_new_tokens=2)
        llm.close()
        watched = [weakref.ref(llm), weakref.ref(llm.program)]
        del llm
        assert [ref() for ref in watched] == [None, None]
    finally:
        gc.enable()
