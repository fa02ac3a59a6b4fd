"""Mend programs of torch.export that ExecuTorch cannot lower. They compute the same as before."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from executorch.backends.vulkan.serialization.vulkan_graph_builder import VkGraphBuilder
from executorch.exir.verification.arg_validator import EdgeOpArgValidator
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.utils import _pytree as pytree

from pteron.tools.exporter.replaced import replaced

VIEW, RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default


def reshape_views(program: ExportedProgram) -> None:
    """Replace each `view` by a `reshape`, which copies the elements where a view is not possible.

    Lowering replaces attention by operators whose result has other strides. A view of it may be impossible.
    """
    for node in program.graph.nodes:
        if node.target is VIEW:
            node.target = RESHAPE
    program.graph_module.recompile()


def sizes_stay_dynamic() -> AbstractContextManager[None]:
    """Keep ExecuTorch from making a dynamic size constant when the program splits a tensor.

    Its check of dtypes calls `len` on the first tensor of a list of results, in place of the list. This makes
    the tensor's first size a constant. So operators with lists of results are not checked.
    """

    def mend(before: Any) -> Any:
        def check(self: EdgeOpArgValidator, target: Any, args: Any, kwargs: Any) -> Any:
            schema = getattr(target, "_schema", None)
            if any(result.type == torch.ListType.ofTensors() for result in getattr(schema, "returns", ())):
                return Interpreter.call_function(self, target, args, kwargs)
            return before(self, target, args, kwargs)

        return check

    return replaced(EdgeOpArgValidator, "call_function", mend)


def equal_outputs_stay() -> AbstractContextManager[None]:
    """Keep ExecuTorch from storing an output of a delegate once that the program returns twice.

    The call of the delegate has both, so the outputs after it would be confused.
    """

    def mend(before: Any) -> Any:
        def process(self: VkGraphBuilder, node: Node) -> None:
            before(self, node)
            stored, returned = set(self.output_ids), pytree.tree_leaves(node.args)
            ids = [self.node_to_value_ids[out] for out in returned if isinstance(out, Node)]
            self.output_ids = [number for number in ids if number in stored]

        return process

    return replaced(VkGraphBuilder, "process_output_node", mend)
