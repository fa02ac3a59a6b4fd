"""Linear attention with the gated delta rule: a matrix for each head is the memory of the text."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.rule import (
    Dispatch,
    LiveArguments,
    LiveTensor,
    Work,
    check,
    describe,
    op,
    threads,
)
from pteron.compiler.ops.matmul import all_float32


def _work(call: LiveArguments) -> Work:
    """Each token decays, reads, changes and reads again the matrix of its head."""
    return Work(8 * call["key"].numel * call["value"].shape[-1])


@op("gated_delta_rule.default", work=_work)
def gated_delta_rule(
    query: LiveTensor,
    key: LiveTensor,
    value: LiveTensor,
    decay: LiveTensor,
    beta: LiveTensor,
    state: LiveTensor,
    outs: Sequence[LiveTensor],
) -> Dispatch:
    """For each token: S = decay S; S += k (beta (v - S^T k))^T; the result is S^T q. Returns S, too.

    Queries are [B, Hq, T, K], keys [B, H, T, K], values [B, H, T, V], S is [B, H, K, V]. Hq / H query heads
    share an S. decay is [B, H, T], or [B, H, T, K].
    """
    tensors = (query, key, value, decay, beta, state, *outs)
    check(all_float32(*tensors), "all tensors must be float32")
    check(query.rank == key.rank == value.rank == state.rank == 4, "query, key, value and state need 4 sizes")
    batch, heads, length, depth = key.shape
    width = value.shape[-1]
    wanted = {
        "value": (value, (batch, heads, length, width)),
        "beta": (beta, (batch, heads, length)),
        "state": (state, (batch, heads, depth, width)),
    }
    for name, (tensor, shape) in wanted.items():
        check(tensor.shape == shape, f"{name} has shape {describe(tensor.shape)}, expected {describe(shape)}")
    per_channel = decay.rank == 4
    check(
        decay.shape == (key.shape if per_channel else key.shape[:-1]),
        f"decay has shape {describe(decay.shape)}, but keys have {describe(key.shape)}",
    )
    groups = query.shape[1] // max(heads, 1)
    check(
        query.shape == (batch, groups * heads, length, depth),
        f"query {describe(query.shape)} does not fit keys {describe(key.shape)}",
    )
    out, after = outs
    out.resize((*query.shape[:-1], width))
    after.resize(state.shape)
    columns = batch * heads * width
    params = {"columns": columns, "length": length, "depth": depth, "width": width, "groups": groups}
    bindings = dict(
        zip(("query", "key", "value", "decay", "beta", "state", "y", "after"), tensors, strict=True)
    )
    return Dispatch("delta_rule", bindings, params, threads(columns), {"PER_CHANNEL": per_channel})


@op("channelwise_gated_delta_rule.default", work=_work)
def channelwise_gated_delta_rule(
    query: LiveTensor,
    key: LiveTensor,
    value: LiveTensor,
    decay: LiveTensor,
    beta: LiveTensor,
    state: LiveTensor,
    outs: Sequence[LiveTensor],
) -> Dispatch:
    return gated_delta_rule(query, key, value, decay, beta, state, outs)  # type: ignore[no-any-return]
