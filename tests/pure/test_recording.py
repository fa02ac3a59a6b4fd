"""The recording device: the resources of a load and the commands of a call, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pteron
from pteron.compiler.ir.dispatch import GPU, SOFTWARE, SUBGROUP
from pteron.engine.devices.recording import RecordingDevice, Submit, Write
from tests.support import DATA


def recorded(name: str, features: frozenset[str] = frozenset({GPU})) -> tuple[RecordingDevice, Any]:
    device = RecordingDevice(features)
    return device, pteron.load(DATA / name, device=device).method()


def call(method: Any, size: int) -> Any:
    return method(*[np.ones(info.shape_at(size), info.dtype) for info in method.inputs])


@pytest.mark.parametrize("name", ["dyn_rms.pte", "dyn_conv1d.pte", "emb_dyn.pte"])
@pytest.mark.parametrize("features", [frozenset({GPU}), frozenset({SOFTWARE, SUBGROUP})], ids=sorted)
def test_a_call_is_one_write_of_parameters_the_uploads_and_one_submit(
    name: str, features: frozenset[str]
) -> None:
    device, method = recorded(name, features)
    made = device.allocations, device.compilations, len(device.groups)
    for size in (5, 5, 3, 5):
        device.events.clear()
        call(method, size)
        *writes, submit = device.events
        assert isinstance(submit, Submit) and all(isinstance(event, Write) for event in writes)
        usages = [event.buffer.usage for event in writes if isinstance(event, Write)]
        assert usages.count("uniform") <= 1 and usages.count("storage") == len(method.inputs)
    assert (device.allocations, device.compilations, len(device.groups)) == made


def test_a_call_at_the_same_shape_writes_no_parameters() -> None:
    device, method = recorded("dyn_rms.pte")
    call(method, 5)
    device.events.clear()
    call(method, 5)
    assert [e.buffer.usage for e in device.events if isinstance(e, Write)] == ["storage"] * len(method.inputs)


def test_grids_and_parameters_follow_the_live_shape() -> None:
    device, method = recorded("dyn_rms.pte")
    seen = {}
    for size in (128, 1, 64):
        device.events.clear()
        assert call(method, size).shape == method.outputs[0].shape_at(size)
        submit = device.events[-1]
        assert isinstance(submit, Submit)
        seen[size] = [(command.pipeline.id, command.grid) for command in submit.commands]
    assert seen[1] != seen[128]


def test_every_command_uses_handles_of_the_device() -> None:
    device, method = recorded("dyn_conv1d.pte")
    call(method, 4)
    submit = device.events[-1]
    assert isinstance(submit, Submit) and submit.commands
    for command in submit.commands:
        assert device.pipelines[command.pipeline.source] is command.pipeline
        assert command.group.pipeline is command.pipeline
        assert len(command.group.buffers) == len(command.pipeline.kinds)
        for buffer, offset, nbytes in command.group.buffers:
            assert device.buffers[buffer.id] is buffer and offset + nbytes <= buffer.size


def test_constants_of_different_sizes_at_the_same_bytes_have_separate_buffers() -> None:
    """A small and a large tensor may begin at the same byte of a file."""
    from pteron.compiler.ir.dtypes import DType
    from pteron.compiler.ir.values import Constant, Graph
    from pteron.engine.arrays.numpy_arrays import convert_constant
    from pteron.engine.weight_store import WeightStore
    from pteron.pte.bytesource import ByteSource

    region = ByteSource(np.arange(64, dtype=np.float32).tobytes()).region()
    graph = Graph("constants")
    small = graph.tensor(DType.float32, (4,), "small", Constant(region, "float32"))
    large = graph.tensor(DType.float32, (64,), "large", Constant(region, "float32"))
    same = graph.tensor(DType.float32, (8, 8), "same", Constant(region, "float32"))
    device = RecordingDevice()
    weights = WeightStore(device, convert_constant)
    assert weights.buffer(small).size == 16 and weights.buffer(large).size == 256
    assert weights.buffer(large) is weights.buffer(same), "a view of the same bytes is uploaded once"
    assert [len(event.data) for event in device.events if isinstance(event, Write)] == [16, 256]
