"""Every case of the table: exported once, loaded once, and run on poisoned memory at many live shapes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pteron
from pteron.api.method import Method
from pteron.compiler.ir.values import Tensor
from pteron.engine.devices.opening import Device
from pteron.pte import vulkan
from pteron.pte.file import ProgramFile
from tests.conftest import Recorded
from tests.dynamic_shape.recording import Recording, make_inputs, make_model, run_reference
from tests.dynamic_shape.table import BY_NAME, CASES, DYNAMIC, Case, Dim
from tests.support.calls import Call, check_calls
from tests.support.compare import EXACT, assert_outputs
from tests.support.memory import poison
from tests.support.signature import assert_formulas


class Loaded(NamedTuple):
    case: Case
    recording: Recording
    method: Method


@pytest.fixture(scope="module", params=CASES, ids=str)
def loaded(request: pytest.FixtureRequest, device: Device, recorded: Recorded) -> Iterator[Loaded]:
    """A case's program. It is loaded once for all tests of this file that have it."""
    recording = recorded(request.param.name)
    with pteron.load(recording.program, device=device) as program:
        yield Loaded(request.param, recording, program.method())


def test_results_equal_torch_at_every_live_shape(loaded: Loaded) -> None:
    check_calls(loaded.method, loaded.recording.calls, loaded.recording.tolerance)


def test_the_signature_gives_torchs_sizes(loaded: Loaded) -> None:
    inputs, outputs = loaded.method.inputs, loaded.method.outputs
    for call in loaded.recording.calls:
        assert_formulas(inputs, call.inputs, outputs, call.outputs)


def test_a_wrong_result_is_detected(device: Device, recorded: Recorded) -> None:
    recording = recorded("residual")
    (last_of_a_small_call,) = recording.calls[2].outputs
    np.ravel(last_of_a_small_call)[-1] += 0.01
    with (
        pteron.load(recording.program, device=device) as program,
        pytest.raises(AssertionError, match="call 2, output 0: 1 of "),
    ):
        check_calls(program.method(), recording.calls, recording.tolerance)


# -- any sequence of live shapes ------------------------------------------------------------------

bounded = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def positions(longest: int, capacity: int) -> st.SearchStrategy[tuple[int, int]]:
    """A length, and a position at which this length still fits."""
    return st.integers(1, longest).flatmap(lambda s: st.tuples(st.just(s), st.integers(0, capacity - s)))


def parts(longest: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(1, longest).flatmap(lambda s: st.tuples(st.just(s), st.integers(1, s)))


# Models whose sizes are not simply their dynamic dimensions.
SPECIAL = {
    "CachedAttention": positions(64, 64),
    "RopeHf": positions(16, 32),
    "SizeAsInput": parts(32),
}


def live_sizes(case: Case) -> st.SearchStrategy[Any]:
    """All sizes that a case allows, in the order of the model's arguments."""
    if case.model in SPECIAL:
        return SPECIAL[case.model]
    dims = [d for spec in case.dynamic or () if isinstance(spec, dict) for d in spec.values()]
    assert dims and all(isinstance(d, Dim) for d in dims)
    return st.tuples(*(st.integers(d.low, d.high) for d in dict.fromkeys(dims)))


@pytest.mark.parametrize("loaded", DYNAMIC, ids=str, indirect=True)
def test_any_sequence_of_live_shapes(loaded: Loaded) -> None:
    import torch

    case, _, method = loaded
    model = make_model(case)

    @bounded
    @given(st.lists(live_sizes(case), min_size=1, max_size=6), st.integers(0, 2**31))
    def replayed(sequence: list[Any], seed: int) -> None:
        torch.manual_seed(seed)
        reference = copy.deepcopy(model)
        method.reset()

        def call(sizes: Any) -> Call:
            inputs = make_inputs(reference, sizes)
            return Call(inputs, run_reference(reference, inputs), f"of {case} at {sizes}")

        check_calls(method, map(call, sequence), case.tolerance)

    replayed()


@pytest.mark.parametrize("name", ["deep_residual", "plain_attention", "cat", "gated_mlp_q4"])
def test_earlier_calls_do_not_change_a_result(name: str, device: Device, recorded: Recorded) -> None:
    """After calls at any shapes, every bit of a result equals that of a newly loaded program."""
    import torch

    case = BY_NAME[name]
    model = make_model(case)
    with pteron.load(recorded(case.name).program, device=device) as program:
        method = program.method()

        @settings(bounded, max_examples=5)
        @given(st.lists(live_sizes(case), min_size=2, max_size=5))
        def replayed(sequence: list[Any]) -> None:
            torch.manual_seed(len(sequence))
            for sizes in sequence:
                inputs = make_inputs(model, sizes)
                poison(method)
                last = method.execute(inputs)
            with pteron.load(recorded(case.name).program, device=device) as fresh:
                assert_outputs(last, fresh.method().execute(inputs), EXACT)

        replayed()


def test_a_call_at_the_same_shape_plans_nothing(device: Device, recorded: Recorded) -> None:
    """The same is true for a call at an earlier shape, and for a step in which only the position changes."""
    case = BY_NAME["cached_attention"]
    model = make_model(case)
    with pteron.load(recorded(case.name).program, device=device) as program:
        method = program.method()
        for sizes in ((5, 0), (1, 5)):
            method.execute(make_inputs(model, sizes))
        before = method._live.visits
        for sizes in ((1, 6), (1, 7), (5, 0), (1, 5), (1, 63)):
            method.execute(make_inputs(model, sizes))
        assert method._live.visits == before


# -- memory ---------------------------------------------------------------------------------------

ITEMSIZE = {
    vulkan.VkDataType.BOOL: 1,
    vulkan.VkDataType.UINT8: 1,
    vulkan.VkDataType.INT8: 1,
    vulkan.VkDataType.FLOAT16: 2,
    vulkan.VkDataType.INT32: 4,
    vulkan.VkDataType.FLOAT32: 4,
}


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


def test_no_more_memory_than_executorch_plans(loaded: Loaded) -> None:
    assert 0 < loaded.method.memory.activations <= planned_by_executorch(loaded.recording.program)


def test_values_alive_at_once_have_separate_buffers(loaded: Loaded) -> None:
    method = loaded.method
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
