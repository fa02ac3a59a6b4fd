"""Any sequence of live shapes, on poisoned memory: results equal torch's, and nothing is allocated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pteron
from pteron.engine.devices.opening import Device
from tests.conftest import Once
from tests.dynamic_shape.recording import PROGRAM, make_inputs, make_model, record, run_reference
from tests.dynamic_shape.table import CASES, Case, Dim
from tests.support.calls import Call, check_calls
from tests.support.compare import EXACT, assert_outputs
from tests.support.memory import poison

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


# One case for each distinct program; a static one has only one shape to be called at.
DYNAMIC = list({(c.model, str(c.dynamic), str(c.options)): c for c in CASES if c.dynamic}.values())

Folder = Callable[[Case], Path]


@pytest.fixture(scope="session")
def folder(once: Once) -> Folder:
    return lambda case: once(f"cases/{case.name}", lambda folder: record(case, folder))


@pytest.mark.parametrize("case", DYNAMIC, ids=str)
def test_any_sequence_of_live_shapes(case: Case, device: Device, folder: Folder) -> None:
    import torch

    model = make_model(case)
    with pteron.load(folder(case) / PROGRAM, device=device) as program:
        method = program.method()

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
def test_earlier_calls_do_not_change_a_result(name: str, device: Device, folder: Folder) -> None:
    """After calls at any shapes, every bit of a result equals that of a newly loaded program."""
    import torch

    case = next(c for c in CASES if c.name == name)
    model = make_model(case)
    with pteron.load(folder(case) / PROGRAM, device=device) as program:
        method = program.method()

        @settings(bounded, max_examples=5)
        @given(st.lists(live_sizes(case), min_size=2, max_size=5))
        def replayed(sequence: list[Any]) -> None:
            torch.manual_seed(len(sequence))
            for sizes in sequence:
                inputs = make_inputs(model, sizes)
                poison(method)
                last = method.execute(inputs)
            with pteron.load(folder(case) / PROGRAM, device=device) as fresh:
                assert_outputs(last, fresh.method().execute(inputs), EXACT)

        replayed()


def test_a_call_at_the_same_shape_plans_nothing(device: Device, folder: Folder) -> None:
    """The same is true for a call at an earlier shape, and for a step in which only the position changes."""
    case = next(c for c in CASES if c.name == "cached_attention")
    model = make_model(case)
    with pteron.load(folder(case) / PROGRAM, device=device) as program:
        method = program.method()
        for sizes in ((5, 0), (1, 5)):
            method.execute(make_inputs(model, sizes))
        before = method._live.visits
        for sizes in ((1, 6), (1, 7), (5, 0), (1, 5), (1, 63)):
            method.execute(make_inputs(model, sizes))
        assert method._live.visits == before
