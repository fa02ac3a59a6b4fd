"""The error of a node that refuses a call."""

from __future__ import annotations

from pteron.compiler.ir.values import Node
from pteron.errors import InputError


class RefusedByNode(InputError):
    """A node refuses the live shapes or integers of a call."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.label}: {reason}")
        self.node = node


class NotPlanned(RefusedByNode):
    """A call needs a new plan, but only calls that were planned at load are allowed."""
