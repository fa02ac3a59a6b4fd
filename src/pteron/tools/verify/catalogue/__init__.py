"""The catalogue of operators: arguments, element types, references in numpy, and shapes to time.

Each family of operators has a file. `pteron doctor --thorough`, `pteron bench --report`,
docs/operators.md, and the tests of rules and of shader texts use the same entries.
"""

from pteron.tools.verify.catalogue import (  # noqa: F401  each adds its entries
    attention,
    complex,
    elementwise,
    fused,
    images,
    index,
    norms,
    products,
    quantized,
    reductions,
    training,
    views,
)
from pteron.tools.verify.catalogue.entry import CATALOGUE, Case, OperatorEntry, cases

__all__ = ["CATALOGUE", "Case", "OperatorEntry", "cases"]
