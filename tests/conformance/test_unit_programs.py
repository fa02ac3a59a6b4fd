"""Every program that the backend's unit tests export, compared with its torch module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pteron import PteronError
from pteron.engine.devices.opening import Device

Record = Callable[[str, object], None]

TOLERANCE = 1e-3  # absolute or relative: the default of the catalogue of operators

# The number of different programs that each test module exports.
PROGRAMS = {
    "index.test_index": 4,
    "test_add": 10,
    "test_avg_pool2d": 7,
    "test_bitwise": 9,
    "test_bmm": 4,
    "test_cat": 4,
    "test_compare": 17,
    "test_conv1d_dw": 4,
    "test_conv1d_pw": 12,
    "test_conv2d": 2,
    "test_conv_with_clamp": 5,
    "test_dim_order": 3,
    "test_dispatch_order": 11,
    "test_div": 3,
    "test_embedding": 2,
    "test_embedding_q4gsw": 2,
    "test_et_vk_sdpa": 5,
    "test_expand_copy": 3,
    "test_fill": 4,
    "test_flip": 4,
    "test_fused_ce": 3,
    "test_gather": 3,
    "test_gelu": 2,
    "test_grid_priors": 3,
    "test_grid_sampler_2d": 3,
    "test_group_norm": 3,
    "test_index_select": 5,
    "test_layer_norm": 2,
    "test_linear": 4,
    "test_linear_dW": 3,
    "test_linear_fp32": 2,
    "test_linear_q8ta_q8csw": 1,
    "test_linear_qcs4w": 1,
    "test_log_softmax": 2,
    "test_logical_and": 6,
    "test_logical_not": 4,
    "test_logical_or": 12,
    "test_matmul": 4,
    "test_mul": 5,
    "test_permute": 4,
    "test_pixel_shuffle": 4,
    "test_prepack": 3,
    "test_q8ta_add": 1,
    "test_q8ta_conv2d": 1,
    "test_q8ta_conv2d_dw": 1,
    "test_q8ta_conv2d_pw": 1,
    "test_q8ta_conv2d_transposed": 1,
    "test_q8ta_linear": 1,
    "test_q8ta_pixel_shuffle": 1,
    "test_q8ta_relu": 1,
    "test_quant": 2,
    "test_quantized_linear": 23,
    "test_quantized_linear_backward": 5,
    "test_repeat": 5,
    "test_rms_norm": 20,
    "test_rope": 2,
    "test_rope_hf": 4,
    "test_rope_interleaved": 4,
    "test_sdpa": 61,
    "test_select": 4,
    "test_sigmoid": 2,
    "test_slice": 4,
    "test_softmax": 3,
    "test_squeeze": 3,
    "test_sub": 5,
    "test_unsqueeze": 3,
    "test_update_cache": 28,
    "test_view_copy": 3,
    "test_where": 3,
}
EVERY_RUN = {"test_dim_order", "test_fill", "test_gather", "test_prepack", "test_rope_hf"}
MODULES = [
    pytest.param(name, marks=[] if name in EVERY_RUN else [pytest.mark.conformance]) for name in PROGRAMS
]


@pytest.mark.parametrize("name", MODULES)
def test_programs_of(name: str, device: Device, tmp_path: Path, record_property: Record) -> None:
    from tests.conformance.replays import calls_of
    from tests.conformance.unit_programs import compare_with_module, lowered_by

    programs = lowered_by(name, tmp_path)
    record_property("cases", len(programs))
    problems = []
    for number, program in enumerate(programs):
        try:
            found = compare_with_module(program, calls_of(program), device, TOLERANCE)
        except PteronError as error:
            found = [str(error)]
        problems += [f"{type(program.module).__name__} (program {number}): {problem}" for problem in found]
    assert not problems, "\n".join(problems)
    assert len(programs) == PROGRAMS[name]


def test_the_steps_of_adamw(device: Device, record_property: Record) -> None:
    """torch cannot export the operator that the wheel declares, so the test runs the rule alone."""
    from executorch.backends.webgpu.test.ops import test_adamw as wheel

    from tests.support.calls import Call, check_calls
    from tests.support.rules import OneNode

    record_property("cases", len(wheel.CONFIGS))
    for config in wheel.CONFIGS:
        *state, gradient, bias1, bias2 = wheel._inputs(config)
        rates = [wheel.LR, wheel.BETA1, wheel.BETA2, wheel.EPS, config.weight_decay, bias1, bias2]
        expected = wheel._fp64_golden(*state, gradient, config.weight_decay, bias1, bias2)
        node = OneNode(device, "et_vk.adamw_step.default", [*state, gradient, *rates], state, True)
        wanted = [x.float() for x in (*expected, *expected)]  # results, and in place
        check_calls(node.method, [Call([*state, gradient], wanted, config.name)], TOLERANCE)
        node.close()
