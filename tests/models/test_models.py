"""Whole models against torch, delegated and not, at several live shapes on one loaded program."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pteron
from pteron.devices import Device
from tests.models.zoo import MODELS, Model
from tests.support.export import export
from tests.support.replay import poison

CASES = [
    pytest.param(model, partitioner, id=f"{name}-{'delegated' if partitioner else 'alone'}")
    for name, model in MODELS.items()
    for partitioner in (True, False)
]


@pytest.mark.parametrize(("model", "partitioner"), CASES)
def test_model_equals_torch_at_every_live_shape(model: Model, partitioner: bool, device: Device) -> None:
    torch.manual_seed(0)
    module = model.make().eval()
    program = export(module, model.inputs(model.largest), model.dynamic_shapes, partitioner=partitioner)
    with pteron.load(program, device=device) as loaded:
        method = loaded.method()
        compilations, allocations = device.compilations, device.allocations
        # Once in the order given, and once back: a shape must not depend on what came before it.
        for size in (*model.sizes, *reversed(model.sizes)):
            inputs = model.inputs(size)
            with torch.no_grad():
                wanted = module(*inputs)
            poison(method)
            got = method.execute(inputs)
            for have, want in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                assert have.shape == tuple(want.shape)
                np.testing.assert_allclose(
                    have, want.numpy(), rtol=1e-4, atol=1e-4, err_msg=f"at size {size}"
                )
        assert (device.compilations, device.allocations) == (compilations, allocations)
