"""Indices into a part of a table that is too large for one binding (passes/large_tables.py)."""

from __future__ import annotations

from pteron.compiler.ir.rule import Dispatch, LiveTensor, check, op, quads, rows_of, threads


@op("pteron.part_index", rows=rows_of("indices"))
def part_index(indices: LiveTensor, first: int, rows: int, total: int, out: LiveTensor) -> Dispatch:
    """Rows of a table of `total` rows as rows of a part. Those before and after it become its ends."""
    check(
        first >= 0 and 0 < rows <= total - first,
        f"rows {first} to {first + rows} are no part of {total} rows",
    )
    indices.require_contents(0, total - 1, f"an index into an embedding table of {total} rows")
    out.resize(indices.shape)
    count = quads(out.numel)
    params = {"quads": count, "first": first, "last": rows - 1}
    return Dispatch("part_index", {"indices": indices, "y": out}, params, threads(count))
