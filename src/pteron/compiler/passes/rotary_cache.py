"""Fuse a rotary embedding and the attention with a KV cache that follows it into one node.

Without the pass, one kernel (see `ops/rotary_attention.py`) is four. The attention kernels do not change.
"""

from __future__ import annotations

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

ROTARY = (
    "et_vk.apply_rotary_emb.default",
    "et_vk.apply_rotary_emb_hf.default",
    "pteron.segmented_rotary_emb_hf",
)
# Operators of attention, and the operator that also rotates.
SDPA = {
    "sdpa_with_kv_cache.default": "pteron.rotary_sdpa_with_kv_cache",
    "pteron.sdpa_with_kv_cache.default": "pteron.rotary_sdpa_with_kv_cache",
    "pteron.segmented_sdpa_with_kv_cache": "pteron.segmented_rotary_sdpa",
    "pteron.segmented_windowed_sdpa": "pteron.segmented_rotary_sdpa",
}


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for sdpa in graph.nodes:
        rotary = _rotary_before(sdpa, uses)
        if rotary is None:
            continue
        q, k, cos, sin, *row, (turned, _) = rotary.args
        _, _, v, key_cache, value_cache, start_pos, _, *how, out = sdpa.args
        how = [*how, None, None][:6]  # ExecuTorch's operator has no window and no soft-cap
        caches = (key_cache, value_cache, start_pos)
        args = (q, k, v, cos, sin, row[0] if row else None, *caches, *how)
        replacements[sdpa.index] = Replacement(SDPA[sdpa.name], (*args, (turned, out)), (rotary, sdpa))
    return rebuild(graph, replacements)


def _rotary_before(sdpa: Node, uses: Uses) -> Node | None:
    """The rotary embedding that computes the queries and keys of a node. None if the two cannot be fused."""
    if sdpa.name not in SDPA or sdpa.when is not None:
        return None
    turned_q, turned_k, _, key_cache, value_cache, *_ = sdpa.args
    rotary = uses.writer.get(turned_q.id)
    if rotary is None or rotary.name not in ROTARY or rotary.when is not None:
        return None
    results = [t for t in rotary.writes if isinstance(t, Tensor)]
    still = all(uses.is_settled(t) for t in (*rotary.reads, *results) if isinstance(t, Tensor))
    fits = (
        results == [turned_q, turned_k]
        and len(rotary.args[2].max_shape) == 2  # the table has no batch dimension
        and all(uses.readers[t.id] == [sdpa] and not uses.is_output(t) for t in results)
        # Keys are rounded once, to the cache's dtype. Without fusion they are rounded to their own dtype too.
        and turned_k.dtype in (DType.float32, key_cache.dtype)
        and key_cache is not value_cache
        and key_cache.max_shape == value_cache.max_shape
        and turned_k.max_shape[-1] % 4 == 0  # so that no two tokens share a word of a cache
    )
    return rotary if still and fits else None
