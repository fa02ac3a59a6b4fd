"""What each operator means. Importing this package registers them all."""

from pteron.ops import attention, control, conv, create, elementwise, index, matmul, rope, rows, symint, views

__all__ = [
    "attention",
    "control",
    "conv",
    "create",
    "elementwise",
    "index",
    "matmul",
    "rope",
    "rows",
    "symint",
    "views",
]
