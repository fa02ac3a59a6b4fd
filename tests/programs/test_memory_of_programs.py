"""What belongs to a program: memory that is freed with it, states, kept outputs, and calls from threads."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

import pteron
from pteron.engine.arrays import GpuArray
from pteron.engine.devices.opening import Device
from tests.conftest import Recorded
from tests.support.calls import check_calls
from tests.support.compare import assert_outputs
from tests.support.memory import poison


def test_freed_when_the_program_is_closed(device: Device, recorded: Recorded) -> None:
    gc.collect()  # the device may still have buffers of earlier tests
    before = device.allocated_nbytes
    program = pteron.load(recorded("cached_attention").program, device=device)
    loaded = device.allocated_nbytes
    memory = program.method().memory
    assert device.allocated_nbytes == loaded
    assert loaded - before >= memory.weights + memory.activations + memory.state > 0
    program.close()
    assert device.allocated_nbytes == before


# -- state --------------------------------------------------------------------------------------


def test_states_on_one_method_are_independent(device: Device, recorded: Recorded) -> None:
    """Three conversations on one copy of the weights. Each is one call behind the previous one."""
    recording = recorded("cached_attention")
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        weights, states = method.memory.weights, [method.new_state() for _ in range(3)]
        for step in range(len(recording.calls) + 2):
            for late, state in enumerate(states):
                if 0 <= step - late < len(recording.calls):
                    call = recording.calls[step - late]
                    poison(method)
                    outputs = method.execute(call.inputs, state=state)
                    what = f"state {late}, step {step}"
                    assert_outputs(outputs, call.outputs, recording.tolerance, what=what)
        assert method.memory.weights == weights
        for state in states:
            state.close()


def test_a_single_conversation_has_a_single_state(device: Device, recorded: Recorded) -> None:
    """The default state or one from `new_state`, but not both: a KV cache is large."""
    with pteron.load(recorded("cached_attention").program, device=device) as program:
        method = program.method()
        loaded = device.allocated_nbytes
        first = method.new_state()
        assert device.allocated_nbytes == loaded
        second = method.new_state()
        assert device.allocated_nbytes == loaded + method.memory.state
        assert first.buffers != second.buffers
        first.close()
        second.close()


@pytest.mark.parametrize("name", ["cached_attention", "running_sum", "running_sum_aliased"])
def test_reset_restores_the_contents_in_the_file(name: str, device: Device, recorded: Recorded) -> None:
    recording = recorded(name)
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        for _ in range(2):
            check_calls(method, recording.calls, recording.tolerance)
            method.reset()


# -- outputs that stay --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["residual", "deep_residual"])
def test_outputs_kept_on_the_gpu_can_be_inputs(name: str, device: Device, recorded: Recorded) -> None:
    recording = recorded(name)
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        for call in recording.calls:
            poison(method)
            kept = method(*call.inputs, keep_on_gpu=True)
            assert isinstance(kept, GpuArray)
            host = method(*call.inputs)
            poison(method)
            np.testing.assert_array_equal(method(kept), method(host))
            np.testing.assert_array_equal(kept.numpy(), host)  # feeding it to a call did not touch it


def test_several_outputs_can_be_kept(device: Device, recorded: Recorded) -> None:
    recording = recorded("rope")
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        for one, other in pairwise(recording.calls):
            kept = method.execute(one.inputs, keep_on_gpu=True)
            method.execute(other.inputs)  # must not write over what the caller kept
            assert_outputs([k.numpy() for k in kept], one.outputs, recording.tolerance)


# -- threads ------------------------------------------------------------------------------------


def test_calls_from_several_threads(device: Device, recorded: Recorded) -> None:
    """Each thread calls with other shapes, and gets its own results."""
    recording = recorded("deep_residual")
    with pteron.load(recording.program, device=device) as program, ThreadPoolExecutor(4) as threads:
        method = program.method()

        def ask(start: int) -> None:
            for step in range(10):
                call = recording.calls[(start + step) % len(recording.calls)]
                outputs = method.execute(call.inputs)
                assert_outputs(outputs, call.outputs, recording.tolerance, what=f"thread {start}")

        for answered in [threads.submit(ask, start) for start in range(4)]:
            answered.result()


def test_conversations_in_several_threads(device: Device, recorded: Recorded) -> None:
    recording = recorded("cached_attention")
    with pteron.load(recording.program, device=device) as program, ThreadPoolExecutor(4) as threads:
        method = program.method()

        def converse(_: int) -> None:
            state = method.new_state()
            for number, call in enumerate(recording.calls):
                outputs = method.execute(call.inputs, state=state)
                assert_outputs(outputs, call.outputs, recording.tolerance, what=f"call {number}")
            state.close()

        list(threads.map(converse, range(8)))
