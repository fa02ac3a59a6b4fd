"""`submit`: several calls may be in flight, and each returns its own outputs."""

import asyncio
import gc
import os
import shutil
from itertools import pairwise

import numpy as np
import pytest

import pteron
from pteron.engine import record_ahead
from tests.support import DATA


@pytest.fixture(scope="module")
def method(device):
    with pteron.load(DATA / "dyn_rms.pte", device=device) as program:
        yield program.method()


def inputs_at(method, size):
    generator = np.random.default_rng(size)
    return [generator.standard_normal(info.shape_at(size)).astype(info.dtype) for info in method.inputs]


def test_two_calls_under_way_at_different_shapes(method):
    sizes = (128, 3, 77, 1)
    wanted = {size: method(*inputs_at(method, size)) for size in sizes}
    for first in sizes:
        for second in sizes:
            one, other = method.submit(*inputs_at(method, first)), method.submit(*inputs_at(method, second))
            assert not one.done and not other.done
            np.testing.assert_array_equal(other.result()[0], wanted[second])
            np.testing.assert_array_equal(one.result()[0], wanted[first])


def test_a_third_call_reads_the_oldest_result_first(method, device):
    sizes = (9, 8, 7, 6, 5)
    wanted = [method(*inputs_at(method, size)) for size in sizes]
    both = [method.submit(*inputs_at(method, size)) for size in sizes[:2]]  # makes the second buffer
    before = device.allocations
    pending = [method.submit(*inputs_at(method, size)) for size in sizes]
    assert [p.done for p in pending] == [True, True, True, False, False]
    for one, expected in zip(pending, wanted, strict=True):
        np.testing.assert_array_equal(one.result()[0], expected)
    assert device.allocations == before, "two staging buffers serve any number of calls"
    assert all(one.done for one in both)


@pytest.fixture
def counted(device, monkeypatch):
    """Every call is worth recording. The names of the device's functions that were called."""
    monkeypatch.setattr(record_ahead, "WORTH_RECORDING", 1)
    names = []

    def note(name):
        function = getattr(device, name)
        monkeypatch.setattr(device, name, lambda *given: names.append(name) or function(*given))

    for name in ("submit", "record", "submit_recorded"):
        note(name)
    return names


def test_repeated_calls_are_recorded_ahead_and_new_shapes_are_not(method, counted):
    for size in (128, 128, 128, 3, 128, 3, 3, 128, 128):
        given = inputs_at(method, size)
        given[0] = given[0] + len(counted)  # new data in the same buffers
        x = given[0].astype(np.float64)
        plain = x / np.sqrt((x * x).mean(-1, keepdims=True))
        counted.append(size)
        found = method(*given)
        assert np.allclose(found / plain, (found / plain)[..., :1, :], rtol=1e-3)  # all rows have one weight
    assert counted == [
        *(128, "submit"),
        *(128, "submit", "record"),
        *(128, "submit_recorded", "record"),
        *(3, "submit"),
        *(128, "submit"),
        *(3, "submit"),
        *(3, "submit", "record"),
        *(128, "submit"),
        *(128, "submit", "record"),
    ]


def test_two_results_under_way_of_calls_that_were_recorded_ahead(method, counted):
    given = [inputs_at(method, 50) for _ in range(6)]
    for number, inputs in enumerate(given):
        inputs[0] = inputs[0] * (number + 1) + number
    wanted = [method(*inputs) for inputs in given]
    for (one, other), expected in zip(pairwise(given), pairwise(wanted), strict=True):
        found = [method.submit(*one), method.submit(*other)]
        for pending, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(pending.result()[0], want)
    assert "submit_recorded" in counted


def test_what_was_recorded_for_a_closed_state_is_dropped(device, counted):
    with pteron.load(DATA / "sdpa_dyn.pte", device=device) as program:
        method = program.method()
        given = inputs_at(method, 2)
        states = [method.new_state() for _ in range(2)]
        for state in states:
            for _ in range(3):
                method(*given, state=state)
        assert counted.count("submit_recorded") == 2
        for state in states:
            state.close()
        wanted = method(*given)
        for found, expected in zip(method(*given), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_dropped_result_does_not_block_later_calls(method, device):
    given = inputs_at(method, 4)
    method.submit(*given)
    gc.collect()
    before = device.allocations
    for _ in range(5):
        method.submit(*given)
    assert device.allocations == before


def test_awaiting_does_not_block_the_event_loop(method):
    sizes = (128, 3)
    wanted = [method(*inputs_at(method, size)) for size in sizes]

    async def both():
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        heart = asyncio.create_task(beat())
        got = await asyncio.gather(*(as_coroutine(method.submit(*inputs_at(method, s))) for s in sizes))
        heart.cancel()
        return got, beats

    async def as_coroutine(pending):
        return await pending

    got, beats = asyncio.run(both())
    for outputs, expected in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(outputs[0], expected)
    assert beats > 1


def test_a_timeout_raises_and_the_result_comes_later(method):
    given = inputs_at(method, 128)
    wanted = method(*given)
    timeouts = []
    for _ in range(20):  # a fast GPU may have finished some of them
        _before = [method(*given, keep_on_gpu=True) for _ in range(20)]
        pending = method.submit(*given)
        try:
            pending.result(timeout=0)
        except TimeoutError as error:
            assert isinstance(error, pteron.DeviceTimeout) and isinstance(error, pteron.DeviceError)
            timeouts.append(str(error))
        np.testing.assert_array_equal(pending.result()[0], wanted)
    assert timeouts
    assert all("timeout=" in message for message in timeouts)
    np.testing.assert_array_equal(method(*given), wanted)


def test_a_result_of_a_closed_program_says_so(device):
    with pteron.load(DATA / "dyn_rms.pte", device=device) as program:
        method = program.method()
        pending = method.submit(*inputs_at(method, 3))
    with pytest.raises(pteron.PteronError, match="closed before this result was read"):
        pending.result()


def test_a_closed_state_is_refused(device):
    with pteron.load(DATA / "sdpa_dyn.pte", device=device) as program:
        method = program.method()
        state = method.new_state()
        state.close()
        with pytest.raises(pteron.PteronError, match="new_state"):
            method(*inputs_at(method, 3), state=state)


def test_after_loading_nothing_reads_the_file(device, tmp_path):
    """If a mapped file is truncated, the next read of it kills the process."""
    path = tmp_path / "model.pte"
    shutil.copy(DATA / "sdpa_dyn.pte", path)
    with pteron.load(path, device=device) as program:
        method = program.method()
        given = inputs_at(method, 4)
        for place, info in enumerate(method.inputs):
            if np.dtype(info.dtype).kind == "i":
                given[place][...] = 0
        wanted = method(*given)
        os.truncate(path, 0)
        state = method.new_state()
        state.reset()
        for one, expected in zip(method(*given, state=state), wanted, strict=True):
            np.testing.assert_array_equal(one, expected)


def test_a_file_that_shrinks_before_loading_is_an_error(device, tmp_path):
    path = tmp_path / "model.pte"
    shutil.copy(DATA / "dyn_rms.pte", path)
    with pteron.load(path, device=device, methods=()) as program:
        os.truncate(path, 100)
        with pytest.raises(pteron.FormatError, match=r"cut to 100 bytes after it was opened"):
            program.method()


@pytest.mark.parametrize("let_go", ["dropped", "closed"])
def test_calls_use_the_memory_of_arrays_that_are_gone(method, device, let_go):
    """So a loop that keeps its outputs on the GPU allocates nothing, also at changing shapes."""
    sizes = (16, 128, 13, 100, 16, 1)
    given = {size: inputs_at(method, size) for size in sizes}
    wanted = {size: method(*inputs) for size, inputs in given.items()}
    allocations = []
    for _ in range(3):
        made, earlier = 0, None
        for size in sizes:
            before = device.allocations
            kept = method(*given[size], keep_on_gpu=True)
            made += device.allocations - before
            if earlier is not None:  # it still has its contents
                np.testing.assert_array_equal(earlier[1].numpy(), wanted[earlier[0]])
                if let_go == "closed":
                    earlier[1].close()
            earlier = size, kept
        allocations.append(made)
        del kept, earlier
    assert allocations[1:] == [0, 0]


def test_a_closed_array_is_refused(method):
    kept = method(*inputs_at(method, 5), keep_on_gpu=True)
    kept.close()
    kept.close()
    with pytest.raises(pteron.PteronError, match="the GpuArray is closed"):
        kept.numpy()
    with pytest.raises(pteron.PteronError, match="the GpuArray is closed"):
        method(kept)


def test_few_buffers_of_dropped_arrays_are_kept(method, device):
    given = inputs_at(method, 128)
    gc.collect()
    before = device.allocated_nbytes
    kept = [method(*given, keep_on_gpu=True) for _ in range(40)]
    most = device.allocated_nbytes - before
    del kept
    gc.collect()
    assert device.allocated_nbytes - before < most / 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_refused_at_once(method):
    given = inputs_at(method, 3)
    wanted = method(*given)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            method(*given)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.waitpid(child, 0)
    assert said.startswith("DeviceError") and "spawn" in said
    np.testing.assert_array_equal(method(*given), wanted)
