"""The declarative catalogue: suites of cases, each with inputs, expected outputs and tolerances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron.engine.devices.opening import Device
from tests.support.calls import Call, problems_of
from tests.support.compare import UNDEFINED
from tests.support.export import remember_rope_patterns

_STORED = {"float32": "<f4", "int32": "<i4", "int64": "<i8", "int8": "<i1", "bool": "?"}

# In the catalogue's order, as text: an import of the catalogue needs torch and takes seconds.
SUITES = """
    to_copy_bool_to_float to_copy_bool_input_to_float add rms_norm mul minimum eq lt le gt ge
    logical_and bitwise_and bitwise_not logical_or bitwise_or pow floor_divide amax amin flip repeat
    conv1d_pw conv1d_dw conv1d apply_rotary_emb_interleaved grid_sampler_2d pixel_shuffle avg_pool2d
    native_group_norm index_select conv_with_clamp grid_priors view_copy to_copy select sigmoid squeeze
    unsqueeze slice permute cat expand_copy gelu layer_norm linear_fp32 conv2d et_vk_sdpa embedding
    addmm constant_pad_nd upsample_nearest2d leaky_relu upsample_bilinear2d batch_norm
    split_with_sizes_copy max_pool2d relu sub abs exp sqrt rsqrt sin cos tanh round neg hardswish clamp
    hardtanh pow_scalar quantize_per_tensor q8ta_add q8ta_relu q8ta_pixel_shuffle linear_qcs4w
    linear_q8ta_q8csw linear_dq8ca_q4gsw q8ta_linear q8ta_conv2d_pw q8ta_conv2d_dw q8ta_conv2d
    q8ta_conv2d_transposed dequantize_per_tensor argmax argmin
""".split()  # noqa: SIM905  a list of so many names is easier to read like this


def cases_of(suite: str) -> list[Any]:
    """The cases of a suite, without those that the catalogue marks as heavy."""
    return [case for case in registry()[suite].cases if not case.heavy]


def registry() -> dict[str, Any]:
    from executorch.backends.webgpu.test.op_tests import cases  # noqa: F401  registers the suites
    from executorch.backends.webgpu.test.op_tests.test_suite import op_test_registry

    return dict(op_test_registry)


def check_cases(suite: str, cases: list[Any], device: Device, folder: Path) -> list[str]:
    """Export each case with the wheel, run it, and list the differences from the expected outputs."""
    from executorch.backends.webgpu.test.op_tests import generate_op_tests as wheel

    remember_rope_patterns()
    return [
        f"{suite}/{case.name}: {problem}"
        for case in cases
        for problem in _problems(
            wheel.generate_case(suite, wheel.op_test_registry[suite], case, str(folder)), device, folder
        )
    ]


def _problems(entries: list[dict[str, Any]], device: Device, folder: Path) -> Iterator[str]:
    """The problems of one case. It has an entry per output; all entries have the same program and inputs."""
    first = entries[0]
    inputs = [_read(folder, file) for file in first["inputs"]]
    golden = {entry["golden"]["output_index"]: entry["golden"] for entry in entries}
    try:
        with pteron.load(folder / first["pte"], device=device) as program:
            method = program.method()
            wanted = [_wanted(folder, golden.get(n), info.dtype) for n, info in enumerate(method.outputs)]
            yield from problems_of(method, [Call(inputs, wanted)], first["rtol"], first["atol"])
    except pteron.PteronError as error:
        yield str(error)


def _wanted(folder: Path, golden: dict[str, Any] | None, dtype: str) -> Any:
    """The expected output. UNDEFINED if the catalogue has none."""
    if golden is None:
        return UNDEFINED
    values = _read(folder, golden)
    # The catalogue writes integers of either width as int64.
    return values.astype(dtype) if golden["dtype"] == "int64" and dtype == "int32" else values


def _read(folder: Path, file: dict[str, Any]) -> Any:
    return np.fromfile(folder / file["path"], _STORED[file["dtype"]]).reshape(file["shape"])
