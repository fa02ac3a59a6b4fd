"""A limit on the size of the graph that is made from one file.

Loops are unrolled and delegates are inlined, so a small file can ask for a huge graph. All methods of a file
share one budget. The error says how to raise it.
"""

from __future__ import annotations

from pteron.errors import UnsupportedError

# The largest language models have some thousands. Each node adds about 0.1 ms to a load.
MAX_NODES = 50_000

# Instructions, values and look-ups that take time but add no node.
STEPS_PER_NODE = 10


class TooLarge(UnsupportedError):
    """A file asks for more nodes than the caller allows."""


class Budget:
    """The nodes and steps that are left."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self.max_nodes = max_nodes
        self._nodes = max_nodes
        self._steps = max_nodes * STEPS_PER_NODE

    def add_node(self, reads: int) -> None:
        """Count a node. A node that reads many values counts as several."""
        self._nodes -= 1 + reads // 64
        self._check()

    def add_steps(self, count: int = 1) -> None:
        self._steps -= count
        self._check()

    def _check(self) -> None:
        if self._nodes < 0 or self._steps < 0:
            raise TooLarge(
                f"the program is too large: its loops and delegates make more than {self.max_nodes} nodes; "
                "if you trust the file, raise the limit with max_nodes="
            )
