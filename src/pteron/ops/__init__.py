"""What each operator means. Importing this package registers them all."""

from pteron.ops import attention, create, elementwise, index, matmul, rope, rows, symint, views

__all__ = ["attention", "create", "elementwise", "index", "matmul", "rope", "rows", "symint", "views"]
