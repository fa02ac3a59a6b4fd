"""A call node by node, on a real device: it computes what a call computes."""

import numpy as np
import pytest

import pteron
from pteron.compiler.ir.values import Tensor
from pteron.tools.verify.samples import random_inputs
from tests.support import DATA


def check_steps(method, given):
    expected = method.execute(given)
    with method.prepare(*given) as call:
        call.poison()
        for step in call.steps():
            step.run()
        found = [call.read(port.value) for port in method.graph.outputs if isinstance(port.value, Tensor)]
    for results in (found, method.execute(given)):
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["dyn_rms.pte", "sdpa_dyn.pte", "emb_dyn.pte"])
def test_steps_compute_what_a_call_computes(device, name):
    with pteron.load(DATA / name, device=device) as program:
        for size in (5, 3):
            check_steps(program.method(), random_inputs(program.method(), size, 0))


def test_inputs_on_the_gpu_are_there_before_the_first_step(device):
    with pteron.load(DATA / "dyn_rms.pte", device=device) as program:
        method = program.method()
        kept = method.execute(random_inputs(method, 5, 0), keep_on_gpu=True)
        check_steps(method, [kept[0], *random_inputs(method, 5, 1)[1:]])
