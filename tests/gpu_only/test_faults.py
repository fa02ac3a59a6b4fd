"""Processes, pickling, lost devices, and memory that runs out."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import weakref
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import pteron
from pteron.errors import OutOfMemory
from tests.support import DATA
from tests.support.faults import Limited, lose

RMS, ATTENTION = DATA / "dyn_rms.pte", DATA / "sdpa_dyn.pte"


def inputs_at(method, size, position=0):
    generator = np.random.default_rng(size)
    given = []
    for info in method.inputs:
        shape = info.shape_at(size)
        is_integer = np.dtype(info.dtype).kind == "i"
        given.append(np.full(shape, position, info.dtype) if is_integer else generator.standard_normal(shape))
    return [np.asarray(x, info.dtype) for x, info in zip(given, method.inputs, strict=True)]


# -- pickling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", "bytes"])
def test_a_pickled_program_is_loaded_again_from_its_source(kind):
    source = RMS if kind == "path" else RMS.read_bytes()
    with pteron.load(source, fuse=()) as program:
        wanted = program(*inputs_at(program.method(), 5))
        data = pickle.dumps(program)
        assert (len(data) < 2000) == (kind == "path")
    with pickle.loads(data) as again:
        np.testing.assert_array_equal(again(*inputs_at(again.method(), 5)), wanted)


def test_a_method_pickles_with_its_program():
    with pteron.load(RMS) as program:
        wanted = program(*inputs_at(program.method(), 5))
        again = pickle.loads(pickle.dumps(program.method()))
    assert again.name == "forward"
    np.testing.assert_array_equal(again(*inputs_at(again, 5)), wanted)
    again.program.close()


def test_objects_on_the_gpu_cannot_be_pickled(device):
    with pteron.load(RMS, device=device) as program:
        method = program.method()
        kept = method(*inputs_at(method, 3), keep_on_gpu=True)
        with pytest.raises(TypeError, match=r"\.numpy\(\)"):
            pickle.dumps(kept)
        with pytest.raises(TypeError, match="make a new one"):
            pickle.dumps(method.new_state())
    with (
        RMS.open("rb") as file,
        pteron.load(file, device=device) as program,
        pytest.raises(TypeError, match="load it from a path"),
    ):
        pickle.dumps(program)


def run_in_worker(program, seed):
    return program(*inputs_at(program.method(), seed))


def test_spawned_workers_reload_a_program():
    with pteron.load(RMS) as program:
        wanted = [run_in_worker(program, seed) for seed in (3, 4)]
        # Unlike `multiprocessing.Pool`, it raises an error if a worker dies. The pool would wait for ever.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            got = list(pool.map(run_in_worker, [program, program], [3, 4]))
    for one, expected in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, expected)


def fork_worker(seed):
    program = fork_worker.program
    return program(*inputs_at(program.method(), seed))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_pool_of_forked_workers_is_refused_at_once(device):
    with pteron.load(RMS, device=device) as program:
        program(*inputs_at(program.method(), 3))
        fork_worker.program = program
        with (
            multiprocessing.get_context("fork").Pool(1) as pool,
            pytest.raises(pteron.DeviceError, match="spawn"),
        ):
            pool.apply_async(fork_worker, (3,)).get(timeout=60)


def load_in_worker(seed):
    with pteron.load(RMS) as program:
        return program(*inputs_at(program.method(), seed))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_worker_that_loads_a_program_is_refused_at_once(device):
    """Also if the parent has closed its device. A call would wait for ever for the driver's threads."""
    pteron.open_device(device.adapter).close()
    with (
        multiprocessing.get_context("fork").Pool(1) as pool,
        pytest.raises(pteron.DeviceError, match="opened a GPU before it forked"),
    ):
        pool.apply_async(load_in_worker, (3,)).get(timeout=60)


FORK_LATER = """
import os, sys
import numpy as np
import pteron
program = pteron.load(sys.argv[1])
program(np.array([1, 2]))
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
del program
os._exit(0)
"""

# wgpu-py's device, in a cycle of references that Pteron knows nothing about.
FORK_WITH_GARBAGE = """
import gc, os, sys
import pteron
gc.disable()
garbage = [pteron.load(sys.argv[1]).device._device]
garbage.append(garbage)
del garbage
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
gc.collect()
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("text", [FORK_LATER, FORK_WITH_GARBAGE], ids=["program", "garbage"])
def test_a_forked_child_can_drop(text):
    """As workers of multiprocessing may at any time. Like them it ends by os._exit: Mesa fails in exit."""
    command = [sys.executable, "-c", text, str(DATA / "emb_dyn.pte")]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


FORK_FIRST = """
import os, sys
import numpy as np
import pteron
child = os.fork()
with pteron.load(sys.argv[1]) as program:
    assert np.isfinite(program(np.array([1, 2]))).all()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_may_fork_before_it_opens_a_gpu():
    command = [sys.executable, "-c", FORK_FIRST, str(DATA / "emb_dyn.pte")]
    assert subprocess.run(command, timeout=120).returncode == 0


# -- lost devices -----------------------------------------------------------------------------------


def test_after_a_lost_device_reload_restores_the_same_objects():
    with pteron.load(ATTENTION) as program:
        method = program.method()
        first, second = inputs_at(method, 4), inputs_at(method, 1, position=4)
        state = method.new_state()
        method(*first, state=state)
        wanted = method(*second, state=state)
        lose(program.device)
        for _ in range(2):
            with pytest.raises(pteron.DeviceLost, match="lost"):
                method(*first, state=state)
        program.reload()
        assert program.method() is method
        with pytest.raises(pteron.InputError, match="lost with its device"):
            method(*first, state=state)
        state = method.new_state()
        method(*first, state=state)
        for one, expected in zip(method(*second, state=state), wanted, strict=True):
            np.testing.assert_array_equal(one, expected)


def test_methods_that_were_not_loaded_yet_survive_a_reload():
    with pteron.load(RMS) as program:
        lose(program.device)
        program.reload()
        assert program(*inputs_at(program.method(), 3)).shape[-2] == 3


# -- memory -----------------------------------------------------------------------------------------


def test_a_load_that_runs_out_of_memory_frees_its_buffers(device, monkeypatch):
    limited = Limited(device, monkeypatch)
    with pteron.load(ATTENTION, device=device, methods=()) as program:
        gc.collect()
        before = device.allocated_nbytes
        for count in range(1000):
            limited.left = count
            try:
                method = program.method()
                break
            except OutOfMemory as error:
                assert "cannot allocate" in str(error)
            gc.collect()
            assert device.allocated_nbytes == before, f"after {count} buffers"
        assert count > 3
        limited.left = 3
        held = device.allocated_nbytes
        with pytest.raises(OutOfMemory, match="cannot allocate"):
            pteron.load(ATTENTION, device=device)
        gc.collect()
        assert device.allocated_nbytes == held
        limited.left = None
        method(*inputs_at(method, 3))


def test_a_failed_allocation_reports_its_size_and_the_memory_in_use(device):
    held = []
    with pytest.raises(OutOfMemory, match=r"(?s)cannot allocate .* bytes.*in use|binds at most"):
        for _ in range(100_000):
            held.append(device.storage(device.limits["max-storage-buffer-binding-size"] + 16, "too much"))


def test_a_closed_program_is_freed_without_a_collection(device):
    gc.collect()
    gc.disable()
    try:
        program = pteron.load(ATTENTION, device=device)
        method = program.method()
        method(*inputs_at(method, 3))
        program.close()
        watched = [weakref.ref(program), weakref.ref(method._executor)]
        del program, method
        assert [ref() for ref in watched] == [None, None]
    finally:
        gc.enable()


# -- inputs -----------------------------------------------------------------------------------------


def test_rows_of_different_lengths_are_an_input_error(device):
    with pteron.load(RMS, device=device) as program, pytest.raises(pteron.InputError, match="input0"):
        program([[1.0, 2.0], [3.0]])
