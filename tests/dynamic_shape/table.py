"""The table: which model, which dimensions are dynamic, which live sizes, how close. Data only.

`largest` is what a program is built for; `live` are the sizes of the calls that follow one another
on the one loaded program. Sizes are what the model's `inputs` takes: an integer, or a tuple of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tests.support.compare import ELEMENTWISE, EXACT, MATMUL, QUANTISED, RMS, SDPA

Sizes: TypeAlias = int | tuple[int, ...]


class Dim(NamedTuple):
    """A dynamic dimension, described without torch."""

    name: str
    low: int
    high: int


INTEGER = "an integer that each call chooses"


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    dynamic: tuple[Any, ...] | None  # per input: {dimension: Dim}, None if static, or INTEGER
    largest: Sizes
    live: tuple[Sizes, ...]
    tolerance: float
    options: dict[str, Any] = field(default_factory=dict)  # of the export

    def __str__(self) -> str:
        return self.name


S128, S64, S48, S32, S16 = (Dim("s", 1, n) for n in (128, 64, 48, 32, 16))
DOWN_AND_UP = (128, 64, 37, 1, 128)
GROW = (1, 3, 37, 64, 127, 128)
SMALL = (32, 7, 1, 18, 32)

# Prefill, decode at a moving position, prefill on top, then a new conversation over the old one's cache.
CONVERSATION = ((24, 0), (1, 24), (1, 25), (7, 26), (1, 33), (64, 0), (5, 0), (1, 5))

NO_DELEGATE = {"partitioner": False}
ALIASED = {"compile_options": {"alias_buffer_mutations": True}}

CASES = (
    Case("rms_norm", "RmsNorm", ({2: S128},), 128, DOWN_AND_UP, RMS),
    Case("rms_norm_growing", "RmsNorm", ({2: S128},), 128, GROW, RMS),
    Case("rms_norm_static", "RmsNorm", None, 8, (8, 8), RMS),
    Case("rms_of_rms", "RmsOfRms", ({2: S128},), 128, DOWN_AND_UP, RMS),
    Case("rms_plus_x", "RmsPlusX", ({2: S128},), 128, DOWN_AND_UP, RMS),
    Case("rms_times_x", "RmsTimesX", ({2: S128},), 128, DOWN_AND_UP, RMS),
    Case("residual", "Residual", ({2: S128},), 128, DOWN_AND_UP, ELEMENTWISE),
    Case("residual_growing", "Residual", ({2: S128},), 128, GROW, ELEMENTWISE),
    Case("residual_undelegated", "Residual", ({2: S128},), 128, DOWN_AND_UP, ELEMENTWISE, NO_DELEGATE),
    Case("deep_residual", "DeepResidual", ({2: S128},), 128, DOWN_AND_UP, RMS),
    Case("layer_norm", "LayerNorm", ({2: S128},), 128, DOWN_AND_UP, RMS),
    Case("linear", "Linear", ({0: S128},), 128, DOWN_AND_UP, MATMUL),
    Case("linear_q4", "LinearQ4", ({0: S128},), 128, (128, 64, 37, 4, 1, 2, 128), QUANTISED),
    Case("gated_mlp_q4", "GatedMlpQ4", ({1: S64},), 64, (64, 1, 37, 1, 64), QUANTISED),
    Case(
        "batch_and_length",
        "BatchAndLength",
        ({0: Dim("b", 1, 4), 1: S32},),
        (4, 32),
        ((4, 32), (2, 32), (4, 5), (1, 1), (3, 17), (4, 32)),
        MATMUL,
    ),
    Case(
        "batched_matmul",
        "BatchedMatmul",
        ({1: Dim("m", 1, 33), 2: Dim("k", 1, 18)}, {1: Dim("k", 1, 18)}),
        (33, 18),
        ((33, 18), (4, 18), (33, 3), (1, 1), (33, 18)),
        MATMUL,
    ),
    Case("plain_attention", "PlainAttention", ({1: S32},), 32, SMALL, MATMUL),
    Case(
        "cached_attention",
        "CachedAttention",
        ({1: S64}, {1: S64}, {1: S64}, None),
        (64, 0),
        CONVERSATION,
        SDPA,
    ),
    Case(
        "position_by_size",
        "PositionBySize",
        ({1: S48}, {1: S48}, {1: S48}, {1: S16._replace(name="position")}),
        (48, 16),
        ((48, 16), (1, 16), (5, 2), (17, 7), (48, 16)),
        SDPA,
    ),
    Case("rope", "Rope", ({1: S16}, {1: S16}, {0: S16}, {0: S16}), 16, (16, 8, 1, 5, 16), ELEMENTWISE),
    Case(
        "rope_hf",
        "RopeHf",
        ({1: S16}, {1: S16}, None, None, None),
        (16, 0),
        ((16, 0), (1, 16), (1, 17), (5, 27), (1, 31), (16, 16)),
        ELEMENTWISE,
    ),
    Case("embedding_q4", "EmbeddingQ4", ({0: S16},), 16, (16, 8, 1, 3, 16), QUANTISED),
    Case("embedding", "Embedding", ({1: S16},), 16, (16, 5, 1, 16), ELEMENTWISE),
    Case("permute_merged", "PermuteMerged", ({1: S32},), 32, SMALL, EXACT),
    Case("permute_last", "PermuteLast", ({1: S32},), 32, SMALL, ELEMENTWISE),
    Case("slice_to_live", "SliceToLive", ({0: S32},), 32, SMALL, ELEMENTWISE),
    Case("last_row", "LastRow", ({1: S32},), 32, SMALL, ELEMENTWISE),
    Case(
        "cat",
        "Cat",
        ({1: Dim("a", 1, 9)}, {1: Dim("b", 1, 12)}),
        (9, 12),
        ((9, 12), (9, 1), (1, 12), (4, 7), (9, 12)),
        ELEMENTWISE,
    ),
    Case("size_of_intermediate", "SizeOfIntermediate", ({1: S32},), 32, SMALL, ELEMENTWISE),
    Case("expand", "Expand", ({1: Dim("s", 1, 8)},), 8, (8, 3, 1, 8), EXACT),
    Case("expand_inferred", "ExpandInferred", ({1: Dim("s", 1, 8)},), 8, (8, 3, 1, 8), EXACT),
    Case("where_compare", "WhereCompare", ({1: S32}, {1: S32}), 32, (32, 7, 1, 5, 18, 32), EXACT),
    Case("softmax_over_live", "SoftmaxOverLive", ({1: S32},), 32, SMALL, ELEMENTWISE),
    Case("reduce_live", "ReduceLive", ({1: S32},), 32, SMALL, ELEMENTWISE),
    Case("int_arithmetic", "IntArithmetic", ({1: S32}, {1: S32}), 32, SMALL, EXACT),
    Case("size_as_output", "SizeAsOutput", ({1: S32},), 32, SMALL, ELEMENTWISE),
    Case(
        "size_as_input",
        "SizeAsInput",
        ({0: S32}, INTEGER),
        (32, 32),
        ((32, 32), (32, 5), (7, 7), (7, 1), (32, 31)),
        ELEMENTWISE,
    ),
    Case(
        "size_as_input_undelegated",
        "SizeAsInput",
        ({0: S32}, INTEGER),
        (32, 32),
        ((32, 32), (32, 5), (7, 7), (7, 1), (32, 31)),
        ELEMENTWISE,
        NO_DELEGATE,
    ),
    Case("zero_length", "Residual", ({2: Dim("s", 0, 128)},), 128, (128, 0, 37, 0, 128), ELEMENTWISE),
    Case("running_sum", "RunningSum", ({0: S32},), 32, SMALL, ELEMENTWISE),
    Case(
        "running_sum_aliased",
        "RunningSum",
        ({0: S32},),
        32,
        SMALL,
        ELEMENTWISE,
        ALIASED,
    ),
)
BY_NAME = {case.name: case for case in CASES}

# One case for each distinct program. A static one has only one shape to be called at.
DYNAMIC = list({(c.model, str(c.dynamic), str(c.options)): c for c in CASES if c.dynamic}.values())
