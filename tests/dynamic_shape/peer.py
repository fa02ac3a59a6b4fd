"""The dynamic-shape programs of ExecuTorch's own WebGPU backend, which its wheel carries.

Its exporters write `NAME.pte`, and for each size raw float32 files `NAME.S<size>.<what>.bin` (ids are
int64). The table says what those files are, and in which order the backend's tests replay them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import numpy as np

from tests.support.compare import MATMUL, QUANTISED, RMS, SDPA
from tests.support.export import remember_rope_patterns

S = -1  # the live size: the length of a file tells it
Files: TypeAlias = dict[str, tuple[int, ...]]  # what -> shape
Order: TypeAlias = tuple[int | str, ...]  # sizes, or the names of calls that are no size

ROUNDED_CACHE = 1e-2  # the backend's expectation rounds keys and values to float16
LARGE_SDPA = 3e-3
CHAIN = 1e-2


@dataclass(frozen=True)
class Peer:
    name: str
    group: str  # which exporter writes it
    order: Order
    inputs: Files
    outputs: Files
    tolerance: float

    def __str__(self) -> str:
        return self.name

    @property
    def slow(self) -> bool:
        """Whether exporting its group takes long, or running it does."""
        return self.group in SLOW_GROUPS

    def call(self, folder: Path, label: int | str) -> tuple[list[Any], list[Any]]:
        """The inputs and the expected outputs of one call."""
        stem = f"{self.name}.S{label}" if isinstance(label, int) else f"{self.name}.{label}"

        def read(files: Files) -> dict[str, Any]:
            return {what: _read(folder / f"{stem}.{what}.bin", shape) for what, shape in files.items()}

        inputs = read(self.inputs)
        return [*inputs.values()], [*_updated_caches(inputs), *read(self.outputs).values()]


def _read(path: Path, shape: tuple[int, ...]) -> Any:
    return np.fromfile(path, "<i8" if path.name.endswith(".idx.bin") else "<f4").reshape(shape)


def _updated_caches(inputs: dict[str, Any]) -> list[Any]:
    """Caches that are inputs are also the first outputs, with the new rows at position 0."""
    updated = []
    for new, cache in (("k", "kc"), ("v", "vc")):
        if cache in inputs:
            updated.append(inputs[cache].copy())
            updated[-1][:, : inputs[new].shape[1]] = inputs[new]
    return updated


# -- the exporters ------------------------------------------------------------------------------

# Groups with an exporter of their own. All else is the group "rest".
_EXPORTERS = {
    "conv1d": "export_dynamic_conv1d_cases",
    "expand": "export_dynamic_expand_copy_rejection_case",
    "fp32": "export_dynamic_fp32_linear_cases",
    "embedding": "export_dynamic_embedding_cases",
    "rope": "_export_dynamic_rope",
    "select": "_export_dynamic_select",
    "sdpa": "_export_dynamic_sdpa",
    "sdpa_wide": "_export_dynamic_sdpa_wide",
    "combined": "_export_combined_routes",
    "bk64": "_export_dynamic_bk64_linear_cases",
    "k16": "_export_dynamic_k16_sdpa_cases",
    "routes": "_export_dynamic_qkv_routes",
    "swiglu": "_export_dynamic_swiglu",
    "gelu": "export_dynamic_gelu_boundary_cases",
}
SLOW_GROUPS = ("bk64", "k16", "routes", "swiglu", "gelu")


def export_group(group: str) -> Callable[[Path], None]:
    """A function that writes the programs and files of a group to a folder, with the wheel's exporter."""

    def write(folder: Path) -> None:
        import executorch.backends.webgpu.test.ops.dynamic_shape.test_dynamic_shape_export as wheel

        remember_rope_patterns()
        with redirect_stdout(StringIO()):
            if group in _EXPORTERS:
                getattr(wheel, _EXPORTERS[group])(str(folder))
                return
            with mock.patch.multiple(wheel, **dict.fromkeys(_EXPORTERS.values(), lambda _: None)):
                wheel.export_dynamic_shape_cases(str(folder))

    return write


# -- the table ----------------------------------------------------------------------------------

ROWS: Files = {"input": (1, 1, S, 64)}
GOLDEN_ROWS: Files = {"golden": (1, 1, S, 64)}


def _rows(name: str, *order: int) -> Peer:
    return Peer(name, "rest", order, ROWS, GOLDEN_ROWS, RMS)


def _linear(name: str, k: int, n: int, tolerance: float, *order: int) -> Peer:
    group = "fp32" if "fp32" in name else "rest"
    return Peer(name, group, order, {"input": (S, k)}, {"golden": (S, n)}, tolerance)


def _attention(
    name: str, order: Order, heads: int, shared: int, width: int, tolerance: float, **more: Any
) -> Peer:
    inputs: Files = {"q": (1, S, heads, width), "k": (1, S, shared, width), "v": (1, S, shared, width)}
    inputs |= more.pop("extra", {})
    return Peer(
        name, more.pop("group", "rest"), order, inputs, {"golden": (1, S, heads, width)}, tolerance, **more
    )


def _caches(capacity: int, heads: int, width: int) -> Files:
    return dict.fromkeys(("kc", "vc"), (1, capacity, heads, width))


def _k16(name: str, order: Order, heads: int, shared: int, width: int, tolerance: float) -> Peer:
    extra: Files = {"control": (1, S)}
    return _attention(name, order, heads, shared, width, tolerance, extra=extra, group="k16")


def _bk64(suffix: str, order: Order, k: int = 2048, n: int = 2048) -> Peer:
    return Peer(
        f"dyn_linear_bk64{suffix}",
        "bk64",
        order,
        {"input": (S, k)},
        {"golden": (1, S, n)},
        QUANTISED,
    )


def _qkv(suffix: str, order: Order, widths: tuple[int, int, int] = (2048, 512, 512)) -> Peer:
    inputs: Files = {"input": (S, 2048)}
    if suffix == "_different_input":
        inputs["v_input"] = (S, 2048)
    outputs: Files = {what: (1, S, n) for what, n in zip("qkv", widths, strict=True)}
    return Peer(f"dyn_qkv_bk64{suffix}", "bk64", order, inputs, outputs, QUANTISED)


def _swiglu(suffix: str, outputs: int = 1, order: Order = (128,), width: int = 64) -> Peer:
    inputs: Files = {"input": (S, 64)}
    if suffix == "_different_inputs":
        inputs["up_input"] = (S, 64)
    names = ["golden"] if outputs == 1 else [f"golden{i}" for i in range(outputs)]
    return Peer(f"dyn_swiglu{suffix}", "swiglu", order, inputs, dict.fromkeys(names, (S, width)), CHAIN)


REPLAY_SDPA = (64, 1, 16, 1, 64)
BK64_SIZES = (512, 511, 508, 128, 127, 1, 508, 512)

PEERS = (
    _rows("dyn_rms", 128, 1, 64, 8, 128, 1, 8, 64, 128),
    _rows("dyn_rms_chain", 128, 16, 1, 128),
    _rows("dyn_residual", 128, 32, 1),
    _rows("dyn_rmsmul", 128, 32, 1),
    _rows("dyn_sigmoid", 128, 32, 1, 128),
    _rows("static_rms", 8),
    Peer("dyn_select", "select", (128, 32, 1, 128), {"input": (2, 1, S, 64)}, {"golden": (1, S, 64)}, RMS),
    Peer("dyn_conv1d", "conv1d", (16, 9, 5, 16), {"input": (1, 3, S)}, {"golden": (1, 4, S)}, MATMUL),
    *(
        _linear(f"dyn_linear_fp32_{route}_{bias}", k, 32, MATMUL, 128, 32, 1, 128)
        for route, k in (("vec4", 64), ("tiled", 63))
        for bias in ("bias", "no_bias")
    ),
    _linear("dyn_linear", 64, 128, QUANTISED, 128, 32, 1, 128),
    _linear("dyn_linear_shmem", 72, 2048, QUANTISED, 128, 32, 1, 128),
    _linear("dyn_linear_tiled", 72, 128, QUANTISED, 128, 1, 32, 1, 128),
    _linear("static_linear_m1", 64, 128, QUANTISED, 1),
    _linear("static_linear_m32", 64, 128, QUANTISED, 32),
    _bk64("", BK64_SIZES),
    _bk64("_gate", (512, 508, 128), n=8192),
    _bk64("_down", (512, 508, 128), k=8192),
    _bk64("_group32", (128,)),
    _bk64("_bias", (128,)),
    _bk64("_kv_shape", (128,), n=512),
    _qkv("", (512, 511, 508, 128, 127, 16, 2, 1, 508, 512)),
    _qkv("_group32", (128,)),
    _qkv("_bias", (128,)),
    _qkv("_wrong_width", (128,), (2048, 2048, 512)),
    _qkv("_different_input", (128,)),
    Peer(
        "qkv_routes",
        "routes",
        (16, 1, 16),
        {"input": (S, 64)},
        {"q": (S, 2048), "k": (S, 512), "v": (S, 512)},
        CHAIN,
    ),
    _attention("sdpa_dyn", REPLAY_SDPA, 8, 2, 16, SDPA, group="sdpa", extra=_caches(64, 2, 16)),
    _attention("sdpa_wide", (16, 1, 16), 8, 2, 132, SDPA, group="sdpa_wide", extra=_caches(16, 2, 132)),
    _attention("static_sdpa_s1", (1,), 8, 2, 16, SDPA, extra=_caches(64, 2, 16)),
    _attention("static_sdpa_s16", (16,), 8, 2, 16, SDPA, extra=_caches(64, 2, 16)),
    Peer(
        "combined_routes",
        "combined",
        REPLAY_SDPA,
        {"x": (S, 64), "q": (1, S, 8, 16), "k": (1, S, 2, 16), "v": (1, S, 2, 16), **_caches(64, 2, 16)},
        {"golden": (1, S, 8, 16)},
        CHAIN,
    ),
    _k16("sdpa_k16_llama", ("prime", 512, 1, 508, 128, 127, 16, 1, 512), 32, 8, 64, LARGE_SDPA),
    _k16("sdpa_k16_qwen3", ("prime", 128, 1, 17, 1, 128), 16, 8, 128, ROUNDED_CACHE),
    _k16("sdpa_k16_qwen3", ("initial",), 16, 8, 128, ROUNDED_CACHE),
    _k16("sdpa_k16_qwen3_near_scale", ("prime", 128, 1, 128), 16, 8, 128, ROUNDED_CACHE),
    _k16("sdpa_k16_wrong_geometry", ("prime", 128, 1, 128), 14, 2, 64, LARGE_SDPA),
    _k16("sdpa_k16_wrong_d", ("prime", 128, 1, 128), 32, 8, 128, LARGE_SDPA),
    _k16("sdpa_k16_wrong_scale", ("prime", 128, 1, 128), 32, 8, 64, LARGE_SDPA),
    *(
        Peer(name, "embedding", (16, 8, 1, 16), {"idx": (S,)}, {"golden": (S, 64)}, QUANTISED)
        for name in ("emb_dyn", "emb_dyn_linear", "emb_dyn_nonlinear")
    ),
    Peer(
        "rope_dyn",
        "rope",
        (16, 8, 1, 16),
        {"xq": (1, S, 8, 64), "xk": (1, S, 2, 64), "fc": (S, 32), "fs": (S, 32)},
        {"gq": (1, S, 8, 64), "gk": (1, S, 2, 64)},
        RMS,
    ),
    _swiglu("", order=(512, 128, 1, 512), width=8192),
    *(
        _swiglu(f"_{what}")
        for what in (
            "inner_reversed",
            "outer_reversed",
            "extra_gate_consumer",
            "extra_sigmoid_consumer",
            "extra_silu_consumer",
            "different_inputs",
            "interleaved_q4",
        )
    ),
    *(_swiglu(f"_{what}_graph_output", outputs=2) for what in ("gate", "sigmoid", "silu")),
    _swiglu("_graph_outputs", outputs=4),
    Peer(
        "dyn_swiglu_qkv_overlap",
        "swiglu",
        (128,),
        {"input": (S, 2048)},
        {"golden0": (S, 2048), "golden1": (S, 512)},
        CHAIN,
    ),
)
