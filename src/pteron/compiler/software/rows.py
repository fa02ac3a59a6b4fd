"""Row-wise operators such as norms and softmax: eight lanes compute a row."""

from __future__ import annotations

from pteron.compiler.ir.dispatch import SOFTWARE, SUBGROUP, Route
from pteron.compiler.ir.extensions import extra_routes
from pteron.compiler.ops.rows import GroupedRows

FEW_ROWS = 4  # with fewer rows than this, one invocation per row would leave most of eight lanes idle


@extra_routes(GroupedRows)
def row_routes(grouped: GroupedRows) -> list[Route]:
    rows = grouped.rows
    when = grouped.fits and (not rows.has_row_kernel or rows.rows < FEW_ROWS)
    dispatches = [rows.dispatch(8, in_subgroup=True), *grouped.after]
    return [Route("eight lanes per row", dispatches, when, SUBGROUP, SOFTWARE)]
