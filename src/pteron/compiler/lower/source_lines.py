"""The lines of the user's module that operators come from, where the file has them.

They are frames in `Chain.stacktrace`: for an instruction, those of its call, the innermost last. For a call
of a delegate, `pteron.export` stores one frame for each of its operators.
"""

from __future__ import annotations

from pteron.pte import schema


class SourceLines:
    """The lines of one chain of instructions."""

    def __init__(self, chain: schema.Chain) -> None:
        self._stacks = [stack.items for stack in chain.stacktrace or ()]

    def of(self, number: int) -> str:
        """The line of an instruction, as a part of its origin; empty if it is not known."""
        frames = self._stacks[number] if number < len(self._stacks) else ()
        return _text(frames[-1]) if frames else ""

    def in_delegate(self, number: int, operators: int) -> list[str]:
        """The line of each operator in the delegate that an instruction calls."""
        frames = self._stacks[number] if number < len(self._stacks) else ()
        return list(map(_text, frames)) if len(frames) == operators else [""] * operators


def _text(frame: schema.Frame) -> str:
    return f", from {frame.filename}:{frame.lineno} in {frame.name}" if frame.filename else ""
