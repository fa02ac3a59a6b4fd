"""Convolutions with constant weights."""

from __future__ import annotations

from pteron.compiler.ir.extensions import extra_routes
from pteron.compiler.ops.conv import PackedConvolution
from pteron.compiler.ops.products import Candidate
from pteron.compiler.software.conv_rows import row_candidates
from pteron.compiler.software.kinds import in_order
from pteron.compiler.software.unfold import unfolded_candidates


@extra_routes(PackedConvolution)
def convolution_candidates(problem: PackedConvolution) -> list[Candidate]:
    return in_order([*unfolded_candidates(problem), *row_candidates(problem)])
