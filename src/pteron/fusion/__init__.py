"""Passes that replace nodes of a graph, mostly several by one. Each pass can be switched off.

A pass looks for a pattern of nodes, not for a model. The replacement gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pteron.fusion import (
    activation_endings,
    add_rms_norm,
    batch_norms,
    chains,
    clamped_convolutions,
    dequantized_weights,
    interleaved_weights,
    large_weights,
    linear_weights,
    packed_convolutions,
    rotary_cache,
    sibling_linears,
    spelled_attention,
    unread_statistics,
)
from pteron.ir.dispatch import SOFTWARE, SUBGROUP
from pteron.ir.values import Graph

PASSES: Mapping[str, Callable[[Graph], Graph]] = {
    "spelled_attention": spelled_attention.fuse,
    "linear_weights": linear_weights.fuse,
    "dequantized_weights": dequantized_weights.fuse,
    "sibling_linears": sibling_linears.fuse,
    "large_weights": large_weights.fuse,
    "batch_norms": batch_norms.fuse,
    "clamped_convolutions": clamped_convolutions.fuse,
    "packed_convolutions": packed_convolutions.fuse,
    "unread_statistics": unread_statistics.fuse,
    "add_rms_norm": add_rms_norm.fuse,
    "rotary_cache": rotary_cache.fuse,
    "chains": chains.fuse,
}


# The passes for one kind of device, and the features that they need.
DEVICE_PASSES: Mapping[str, tuple[Callable[[Graph], Graph], Collection[str]]] = {
    "activation_endings": (activation_endings.fuse, (SOFTWARE, SUBGROUP)),
    "interleaved_weights": (interleaved_weights.fuse, (SOFTWARE, SUBGROUP)),
}


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
