"""The features that a device reports equal those of its adapter, measured without Pteron's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

from pteron.compiler.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, WIDE
from pteron.engine.devices.opening import Device, open_device

INVOCATIONS = 64

# Every invocation counts the lanes that add with it.
COUNT = """
@group(0) @binding(0) var<storage, read_write> lanes: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) { lanes[i] = subgroupAdd(1u); }
"""


def smallest_subgroup(handle: Any) -> int:
    """The smallest number of lanes in a subgroup, over all invocations."""
    device = handle.request_device_sync(required_features=["subgroup"])
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    buffer = device.create_buffer(size=4 * INVOCATIONS, usage=usage)
    module = device.create_shader_module(code=COUNT)
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": "main"}
    )
    entries = [{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_pipeline(pipeline)
    run.set_bind_group(0, group)
    run.dispatch_workgroups(1)
    run.end()
    device.queue.submit([encoder.finish()])
    return int(np.frombuffer(device.queue.read_buffer(buffer), np.uint32).min())


@pytest.mark.usefixtures("real")
def test_a_device_offers_what_its_adapter_does(device: Device) -> None:
    handle = device.adapter.handle
    expected = {SOFTWARE if handle.info["adapter_type"] == "CPU" else GPU}
    if "subgroup" in handle.features and smallest_subgroup(handle) >= 8:
        expected.add(SUBGROUP)
    expected |= {HALF, WIDE} & set(handle.features)
    fresh = open_device(device.adapter)  # `--take-for` has changed what the shared one says
    try:
        assert fresh.route_features == expected
    finally:
        fresh.close()
