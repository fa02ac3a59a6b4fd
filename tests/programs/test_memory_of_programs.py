"""Memory: never more than ExecuTorch plans for the same file, never shared by two values at once,
and mutable state apart from all of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.api.method import Method
from pteron.compiler.ir.values import Tensor
from pteron.engine.arrays import GpuArray
from pteron.engine.devices.opening import Device
from pteron.pte import vulkan
from pteron.pte.file import ProgramFile
from tests.conftest import Once
from tests.dynamic_shape.recording import Recording, record
from tests.dynamic_shape.table import CASES, Case
from tests.support.calls import check_calls
from tests.support.compare import assert_outputs
from tests.support.memory import poison

Open = Callable[[str], Recording]

ITEMSIZE = {
    vulkan.VkDataType.BOOL: 1,
    vulkan.VkDataType.UINT8: 1,
    vulkan.VkDataType.INT8: 1,
    vulkan.VkDataType.FLOAT16: 2,
    vulkan.VkDataType.INT32: 4,
    vulkan.VkDataType.FLOAT32: 4,
}


@pytest.fixture(scope="session")
def recorded(once: Once) -> Open:
    by_name = {case.name: case for case in CASES}
    return lambda name: Recording(once(f"cases/{name}", lambda folder: record(by_name[name], folder)))


# -- how much -----------------------------------------------------------------------------------


def planned_by_executorch(path: Path) -> int:
    """Bytes of the arenas in the program's plan, and of the objects that its delegates share."""
    with ProgramFile.open(path) as file:
        plan = file.plan("forward")
        delegates = [vulkan.read_delegate(file.delegate_blob(d)).graph for d in plan.delegates]
        return sum(plan.non_const_buffer_sizes) + sum(map(memory_of_delegate, delegates))


def memory_of_delegate(graph: vulkan.VkGraph) -> int:
    prepacked = {call.args[-1] for call in graph.chain if call.name == "et_vk.prepack.default"}
    alone, shared = 0, dict[int, int]()
    for index, value in enumerate(graph.values):
        tensor = value.value
        if not isinstance(tensor, vulkan.VkTensor) or tensor.constant_id >= 0 or index in prepacked:
            continue
        nbytes = int(np.prod(tensor.dims, dtype=np.int64)) * ITEMSIZE[tensor.datatype]
        if tensor.mem_obj_id < 0:
            alone += nbytes
        else:
            shared[tensor.mem_obj_id] = max(shared.get(tensor.mem_obj_id, 0), nbytes)
    return alone + sum(shared.values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_more_memory_than_executorch_plans(case: Case, device: Device, recorded: Open) -> None:
    path = recorded(case.name).program
    with pteron.load(path, device=device) as program:
        used = program.method().memory.activations
    assert 0 < used <= planned_by_executorch(path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_alive_at_once_have_separate_buffers(case: Case, device: Device, recorded: Open) -> None:
    with pteron.load(recorded(case.name).program, device=device) as program:
        method = program.method()
        executor = method._executor
        scratch = [key for key in executor.memory.placement if isinstance(key, tuple)]
        for moment, storages in enumerate(buffers_in_use(method)):
            temporary = [key for key in scratch if key[0] == moment]
            for one, other in combinations([*storages, *temporary], 2):
                assert executor.memory.placement[one] != executor.memory.placement[other], (
                    f"values {one} and {other} share a buffer, but both are needed at node {moment}"
                )
        for tensor in method.graph.tensors():
            place = executor.memory.placement.get(executor.layout.storage[tensor.id])
            assert place is None or executor.memory.buffers[place] >= tensor.max_nbytes


def buffers_in_use(method: Method) -> list[set[int]]:
    """For each node, the storages whose contents are still needed, found from the last node to the first."""
    graph, executor = method.graph, method._executor

    def storages(values: object) -> set[int]:
        found = {executor.layout.storage[v.id] for v in values if isinstance(v, Tensor)}  # type: ignore[attr-defined]
        return {s for s in found if s in executor.memory.placement}

    wanted = storages(port.value for port in graph.outputs)
    inputs = storages(port.value for port in graph.inputs)
    in_use: list[set[int]] = []
    for node in reversed(graph.nodes):
        touched = storages((*node.reads, *node.writes))
        in_use.append(wanted | touched)
        produced = storages(node.writes) - storages(node.reads) - storages(node.mutates) - inputs
        earlier = graph.nodes[: node.index]
        first = {s for s in produced if not any(s in storages(n.writes) for n in earlier)}
        wanted = (wanted | touched) - first
    return in_use[::-1]


def test_freed_when_the_program_is_closed(device: Device, recorded: Open) -> None:
    before = device.allocated_nbytes
    program = pteron.load(recorded("cached_attention").program, device=device)
    loaded = device.allocated_nbytes
    memory = program.method().memory
    assert device.allocated_nbytes == loaded
    assert loaded - before >= memory.weights + memory.activations + memory.state > 0
    program.close()
    assert device.allocated_nbytes == before


# -- state --------------------------------------------------------------------------------------


def test_states_on_one_method_are_independent(device: Device, recorded: Open) -> None:
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


def test_a_single_conversation_has_a_single_state(device: Device, recorded: Open) -> None:
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
def test_reset_restores_the_contents_in_the_file(name: str, device: Device, recorded: Open) -> None:
    recording = recorded(name)
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        for _ in range(2):
            check_calls(method, recording.calls, recording.tolerance)
            method.reset()


# -- outputs that stay --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["residual", "deep_residual"])
def test_outputs_kept_on_the_gpu_can_be_inputs(name: str, device: Device, recorded: Open) -> None:
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


def test_several_outputs_can_be_kept(device: Device, recorded: Open) -> None:
    recording = recorded("rope")
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        for one, other in pairwise(recording.calls):
            kept = method.execute(one.inputs, keep_on_gpu=True)
            method.execute(other.inputs)  # must not write over what the caller kept
            assert_outputs([k.numpy() for k in kept], one.outputs, recording.tolerance)


# -- threads ------------------------------------------------------------------------------------


def test_calls_from_several_threads(device: Device, recorded: Open) -> None:
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


def test_conversations_in_several_threads(device: Device, recorded: Open) -> None:
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
