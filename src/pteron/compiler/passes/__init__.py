"""Passes that replace nodes of a graph, mostly several by one. Each pass can be switched off.

A pass looks for a pattern of nodes, not for a model. The replacement gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pteron.compiler import ops  # noqa: F401  first: extensions of operators import passes
from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.ir.extensions import DEVICE_PASSES
from pteron.compiler.ir.values import Graph
from pteron.compiler.passes import (
    add_rms_norm,
    attention_layouts,
    attention_pattern,
    batch_norms,
    chains,
    clamped_convolutions,
    dequantized_weights,
    epilogues,
    fused_products,
    fused_qkv,
    large_tables,
    large_weights,
    linear_weights,
    merged_linears,
    packed_convolutions,
    repeated,
    rotary_cache,
    split_heads,
    unused_norm_outputs,
    winograd,
)

PASSES: Mapping[str, Callable[[Graph], Graph]] = {
    "attention_pattern": attention_pattern.fuse,
    "linear_weights": linear_weights.fuse,
    "dequantized_weights": dequantized_weights.fuse,
    "merged_linears": merged_linears.fuse,
    "large_weights": large_weights.fuse,
    "large_tables": large_tables.fuse,
    "batch_norms": batch_norms.fuse,
    "clamped_convolutions": clamped_convolutions.fuse,
    "packed_convolutions": packed_convolutions.fuse,
    "unused_norm_outputs": unused_norm_outputs.fuse,
    "add_rms_norm": add_rms_norm.fuse,
    "rotary_cache": rotary_cache.fuse,
    "chains": chains.fuse,
}
DEVICE_PASSES["repeated"] = repeated.fuse, (GPU,)
DEVICE_PASSES["gpu_epilogues"] = epilogues.fuse_with_sums, (GPU,)
DEVICE_PASSES["split_heads"] = split_heads.fuse, (GPU,)
DEVICE_PASSES["attention_layouts"] = attention_layouts.fuse, (GPU,)
DEVICE_PASSES["winograd"] = winograd.fuse, (GPU,)
DEVICE_PASSES["fused_products"] = fused_products.fuse, (GPU,)
DEVICE_PASSES["fused_qkv"] = fused_qkv.fuse, (GPU,)


def fuse(graph: Graph, passes: Iterable[str] | None = None) -> Graph:
    """The graph after the named passes, in the order of `PASSES`. None: all passes."""
    wanted = [*PASSES, *DEVICE_PASSES] if passes is None else list(passes)
    unknown = [name for name in wanted if name not in PASSES and name not in DEVICE_PASSES]
    if unknown:
        known = ", ".join((*PASSES, *DEVICE_PASSES))
        raise ValueError(f"there is no fusion pass {unknown[0]!r}; the passes are {known}")
    for name, run in PASSES.items():
        if name in wanted:
            graph = run(graph)
    return graph


def fuse_for(features: Collection[str], graph: Graph, passes: Iterable[str] | None = None) -> Graph:
    """The graph, changed by the named passes that a device with these features needs. None: all of them."""
    wanted = DEVICE_PASSES if passes is None else list(passes)
    for name, (run, needs) in DEVICE_PASSES.items():
        if name in wanted and all(need in features for need in needs):
            graph = run(graph)
    return graph


__all__ = ["DEVICE_PASSES", "PASSES", "fuse", "fuse_for"]
