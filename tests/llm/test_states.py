"""KV caches of a language model under faults: interrupts, memory that runs out, a lost device, pickling."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import pteron
import pteron.llm
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Tensor
from pteron.engine.state import everything, first_positions
from pteron.errors import InputError, OutOfMemory, PteronError
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


@pytest.mark.parametrize("refused", [([7] * 4, 10**6), ([10**6], len(PROMPT))], ids=["position", "token"])
def test_an_interrupt_at_any_line_of_a_refused_step_loses_no_cache(llm, refused):
    decoder = llm.decoder
    state = decoder.new_state()
    decoder.logits(PROMPT, 0, state)
    wanted = decoder.logits([7], len(PROMPT), state)
    for _ in each_line(lambda: decoder.logits(*refused, state), InputError, every=3):
        np.testing.assert_array_equal(decoder.logits([7], len(PROMPT), state), wanted)


def test_an_interrupt_at_any_line_of_an_answer_loses_no_session(llm):
    """A session that nobody uses must not count as busy: its KV cache could never be used again."""
    wanted = answer(llm, llm.session())
    for _ in each_line(lambda: llm.generate(PROMPT, max_new_tokens=1, temperature=0), every=7):
        assert not llm.sessions._busy
    assert llm.generate(PROMPT, max_new_tokens=6, temperature=0).tokens == wanted


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


def test_a_state_is_read_written_and_copied(llm):
    decoder = llm.decoder
    filled, other, third = (decoder.new_state() for _ in range(3))
    decoder.logits(PROMPT, 0, filled)
    wanted = decoder.logits([7], len(PROMPT), filled)
    part = decoder.positions(len(PROMPT))
    contents = filled.read(part)
    assert [len(data) for data in contents] == filled.sizes(part)
    assert contents == [data[: len(some)] for data, some in zip(filled.read(), contents, strict=True)]
    poison = [b"\xff" * size for size in other.sizes()]  # NaN
    other.write(poison)
    third.write(poison)
    other.write(contents, part)
    third.copy_from(filled, part)
    for state in (other, third):
        np.testing.assert_array_equal(decoder.logits([7], len(PROMPT), state), wanted)
    with pytest.raises(InputError, match="sizes"):
        other.write(contents)
    other.close()
    with pytest.raises(PteronError, match="the state is closed"):
        third.copy_from(other)


def test_which_bytes_hold_the_first_positions():
    def spans(shape, dtype=DType.float32, count=3, length=8):
        return first_positions(count, length)(Tensor(0, dtype, shape, "cache"))

    assert spans((1, 8, 2, 4)) == [(0, 3 * 32)]
    assert spans((1, 2, 8, 4)) == [(0, 3 * 16), (8 * 16, 3 * 16)]
    assert spans((2, 4, 8), DType.float16) == [(0, 128)]  # a row of 2 bytes is not a whole word
    assert spans((1, 8, 8, 4)) == everything(Tensor(0, DType.float32, (1, 8, 8, 4), "cache"))
    assert spans((1, 6, 4)) == everything(Tensor(0, DType.float32, (1, 6, 4), "cache"))
    assert spans((1, 8, 2, 4), count=0) == []
