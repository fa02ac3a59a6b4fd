"""A call node by node, on the device that only records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.engine.devices.recording import RecordingDevice, Submit, Write
from pteron.errors import InputError, PteronError
from tests.support import DATA


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


@pytest.fixture(params=["dyn_rms.pte", "sdpa_dyn.pte", "emb_dyn.pte", "embedder_one_text.pte"])
def method(request: pytest.FixtureRequest, device: RecordingDevice) -> Iterator[pteron.Method]:
    with pteron.load(DATA / request.param, device=device) as program:
        yield program.method(program.method_names[0])


def inputs_of(method: pteron.Method, size: int) -> list[Any]:
    return [np.ones(info.shape_at(size), info.array_dtype) for info in method.inputs]


def test_steps_are_the_commands_of_a_call(method: pteron.Method, device: RecordingDevice) -> None:
    given = inputs_of(method, 5)
    method.execute(given)
    submitted = device.events[-1]
    assert isinstance(submitted, Submit)
    with method.prepare(*given) as call:
        steps = call.steps()
    assert [step.node for step in steps] == list(method.graph.nodes)
    found = [dispatch for step in steps for dispatch in step.dispatches]
    assert len(found) == len(submitted.commands)
    for dispatch, command in zip(found, submitted.commands, strict=True):
        assert (dispatch.text, dispatch.grid) == (command.pipeline.source, command.grid)
        assert dispatch.kernel == command.pipeline.label and f"fn {dispatch.entry}(" in dispatch.text
        bound = [(binding.buffer, binding.offset, binding.nbytes) for binding in dispatch.bindings]
        assert bound == list(command.group.buffers)
        assert [binding.kind for binding in dispatch.bindings] == list(command.pipeline.kinds)
        assert dispatch.command == command


def test_parameters_are_those_that_the_device_got(method: pteron.Method, device: RecordingDevice) -> None:
    with method.prepare(*inputs_of(method, 3)) as call:
        steps = call.steps()
    got: dict[int, bytearray] = {}
    for event in device.events:
        if isinstance(event, Write) and event.buffer.usage == "uniform":
            data = got.setdefault(event.buffer.id, bytearray(event.buffer.size))
            data[event.offset : event.offset + len(event.data)] = event.data
    for step in steps:
        for dispatch in step.dispatches:
            for binding in dispatch.bindings:
                if binding.role == "parameters":
                    data = got[binding.buffer.id]  # type: ignore[attr-defined]
                    assert binding.contents == dispatch.params
                    assert data[binding.offset : binding.offset + binding.nbytes] == dispatch.params
                elif binding.role == "integer":
                    assert binding.contents is not None
                else:
                    assert binding.contents is None and binding.role in ("constant", "activation", "scratch")


def test_the_kernels_of_a_method_include_those_of_each_call(method: pteron.Method) -> None:
    known = {(k.node, k.op, k.route, k.kernel, k.text) for k in method.kernels}
    for size in (1, 5):
        with method.prepare(*inputs_of(method, size)) as call:
            for step in call.steps():
                for d in step.dispatches:
                    assert (step.node.index, step.node.name, step.route, d.kernel, d.text) in known


def test_every_step_is_submitted_alone(method: pteron.Method, device: RecordingDevice) -> None:
    with method.prepare(*inputs_of(method, 5)) as call:
        call.poison()
        device.events.clear()
        steps = [step for step in call.steps() if step.dispatches]
        for step in steps:
            step.run()
    ran = [event.commands for event in device.events if isinstance(event, Submit)]
    assert ran == [tuple(step.commands) for step in steps]


def test_a_call_runs_once(method: pteron.Method) -> None:
    given = inputs_of(method, 5)
    with method.prepare(*given) as call:
        call.submit().result()
        with pytest.raises(PteronError, match="the call has run: prepare another"):
            call.submit()
        with pytest.raises(PteronError, match="the call has run: prepare another"):
            call.steps()[0].run()
    with method.prepare(*given) as call:
        steps = call.steps()
        steps[0].run()
        with pytest.raises(PteronError, match="runs step by step: prepare another"):
            call.submit()
        with pytest.raises(PteronError, match="runs step by step: prepare another"):
            call.poison()
    with pytest.raises(PteronError, match="the call is over: prepare another"):
        steps[0].run()


def test_a_call_that_is_abandoned_leaves_no_trace(method: pteron.Method, device: RecordingDevice) -> None:
    def commands(size: int) -> Any:
        method.execute(inputs_of(method, size))
        submitted = device.events[-1]
        assert isinstance(submitted, Submit)
        return submitted.commands

    wanted = {size: commands(size) for size in (1, 5)}
    with pytest.raises(ZeroDivisionError), method.prepare(*inputs_of(method, 5)) as call:
        call.steps()[0].run()
        raise ZeroDivisionError
    assert {size: commands(size) for size in (1, 5)} == wanted
    assert device.lock.acquire(blocking=False)
    device.lock.release()


def test_a_refused_call_is_not_prepared(method: pteron.Method) -> None:
    method.execute(inputs_of(method, 5))
    shapes = method.live_shapes
    with pytest.raises(InputError), method.prepare(*inputs_of(method, 5), 1):
        raise AssertionError("the block must not run")
    assert method.live_shapes == shapes
