"""Store the line of the module that each operator comes from: errors of Pteron name it.

They are in `Chain.stacktrace`, a field of ExecuTorch's format: for an instruction, the frame of its line; for
a call of a delegate, one frame for each of its operators. Names of files are stored, but no text of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from executorch.backends.vulkan import vulkan_preprocess
from executorch.backends.vulkan.serialization.vulkan_graph_builder import VkGraphBuilder
from executorch.exir.emit._emitter import _Emitter
from executorch.exir.schema import Frame, FrameList
from torch.fx import Node

from pteron.tools.exporter.replaced import replaced

FRAME = re.compile(r'File "(.*?)", line (\d+), in (\S+)')
TORCH = str(Path(torch.__file__).parent)


@contextmanager
def lines_stay() -> Iterator[None]:
    """Store the lines of what is lowered and emitted inside the block."""
    of_delegates: dict[bytes, list[Frame]] = {}

    def build(before: Any) -> Any:
        def process(builder: Any, node: Node) -> None:
            before(builder, node)
            builder.chain[-1].line = _frame(node)

        return process

    def serialize(before: Any) -> Any:
        def serialized(graph: Any, *rest: Any) -> bytes:
            made: bytes = before(graph, *rest)
            of_delegates[made] = [getattr(call, "line", Frame("", 0, "", "")) for call in graph.chain]
            return made

        return serialized

    def emit(before: Any) -> Any:
        def emitted(emitter: Any, node: Node) -> Any:
            result = before(emitter, node)
            chain = emitter.chain
            chain.stacktrace = chain.stacktrace or []
            for _ in chain.instructions[len(chain.stacktrace) :]:
                chain.stacktrace.append(FrameList([_frame(node)]))
            return result

        return emitted

    def emit_delegate(before: Any) -> Any:
        def noted(emitter: Any, number: int, target: Any, lowered: Any = None) -> None:
            before(emitter, number, target, lowered)
            if lowered is not None and len(emitter.chain.stacktrace) == number:
                emitter.chain.stacktrace.append(FrameList(of_delegates.get(lowered.processed_bytes, [])))

        return noted

    with (
        replaced(VkGraphBuilder, "process_call_function_node", build),
        replaced(vulkan_preprocess, "serialize_vulkan_graph", serialize),
        replaced(_Emitter, "run_node", emit),
        replaced(_Emitter, "_add_debug_handle", emit_delegate),
    ):
        yield


def _frame(node: Node) -> Frame:
    """The last line outside of torch. Without one, a frame without a file."""
    found = FRAME.findall(node.meta.get("stack_trace") or "")
    frames = [frame for frame in found if not frame[0].startswith((TORCH, "torch/"))]
    file, line, function = frames[-1] if frames else ("", 0, "")
    return Frame("/".join(Path(file).parts[-2:]), int(line), function, "")
