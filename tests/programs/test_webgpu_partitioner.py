"""ExecuTorch's own `WebGPUPartitioner`: its files are run like those of the `VulkanPartitioner`."""

from __future__ import annotations

import torch
from executorch.backends.webgpu.partitioner import WebGPUPartitioner
from torch import nn

from pteron.engine.devices.opening import Device
from pteron.pte.file import ProgramFile
from tests.support.calls import Call, check_file
from tests.support.export import lower, remember_rope_patterns


def test_a_file_runs_at_every_size(device: Device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 4)).eval()
    n = torch.export.Dim("n", min=1, max=6)
    exported = torch.export.export(model, (torch.randn(6, 8),), dynamic_shapes=({0: n},))
    remember_rope_patterns()
    data = lower(exported, WebGPUPartitioner())
    with ProgramFile.open(data) as file:
        assert {delegate.id for delegate in file.plan("forward").delegates} == {"VulkanBackend"}
    inputs = [torch.randn(count, 8) for count in (6, 1, 4, 2)]
    check_file(device, data, [Call([x], [model(x).detach()]) for x in inputs], rtol=1e-4, atol=1e-5)
