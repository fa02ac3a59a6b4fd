"""The cases: at least one for every kernel, and for every route of it."""

import pteron.fusion
import pteron.ops  # noqa: F401  both register operators
from pteron.trust.case import CASES
from pteron.trust.cases import (  # noqa: F401  each adds its cases
    attention_cases,
    elementwise_cases,
    image_cases,
    index_cases,
    norm_cases,
    product_cases,
    quantized_cases,
    reduction_cases,
    training_cases,
    view_cases,
)

__all__ = ["CASES"]
