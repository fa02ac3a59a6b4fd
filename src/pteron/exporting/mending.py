"""Mend programs of torch.export that ExecuTorch cannot lower. They compute the same as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from executorch.exir.verification.arg_validator import EdgeOpArgValidator
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Interpreter

VIEW, RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default


def reshape_views(program: ExportedProgram) -> None:
    """Replace each `view` by a `reshape`, which copies the elements where a view is not possible.

    Lowering replaces attention by operators whose result has other strides. A view of it may be impossible.
    """
    for node in program.graph.nodes:
        if node.target is VIEW:
            node.target = RESHAPE
    program.graph_module.recompile()


@contextmanager
def unchanged_numbers(module: nn.Module) -> Iterator[None]:
    """Restore buffers with one element. torch.export computes with such constants, and may write them."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers() if buffer.numel() == 1]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


@contextmanager
def sizes_stay_dynamic() -> Iterator[None]:
    """Keep ExecuTorch from making a dynamic size constant when the program splits a tensor.

    Its check of dtypes takes the first tensor of a result list for the list, and asks for its length. That is
    a size of the tensor, which becomes a constant by this. Such operators are not checked here.
    """
    before: Any = EdgeOpArgValidator.call_function

    def check(self: EdgeOpArgValidator, target: Any, args: Any, kwargs: Any) -> Any:
        schema = getattr(target, "_schema", None)
        if any(result.type == torch.ListType.ofTensors() for result in getattr(schema, "returns", ())):
            return Interpreter.call_function(self, target, args, kwargs)
        return before(self, target, args, kwargs)

    EdgeOpArgValidator.call_function = check
    try:
        yield
    finally:
        EdgeOpArgValidator.call_function = before


def join_buffers(program: ExportedProgram) -> None:
    """Let the program write a buffer that the module also keeps elsewhere, as transformers' caches do.

    torch.export takes the other reference for a constant. Lowering then fails, because the program writes it.
    """
    specs = program.graph_signature.input_specs
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    buffers = {
        _identity(_tensor(program, spec)): placeholders[spec.arg.name]
        for spec in specs
        if spec.kind is InputKind.BUFFER
    }
    for spec in list(specs):
        if spec.kind is not InputKind.CONSTANT_TENSOR:
            continue
        buffer = buffers.get(_identity(_tensor(program, spec)))
        if buffer is not None:
            constant = placeholders[spec.arg.name]
            constant.replace_all_uses_with(buffer)
            program.graph.erase_node(constant)
            specs.remove(spec)
            del program.constants[spec.target]
    program.graph_module.recompile()


def _tensor(program: ExportedProgram, spec: InputSpec) -> Tensor:
    """The value of a buffer or a constant."""
    assert spec.target is not None
    stored = program.state_dict if spec.persistent else program.constants
    value: Tensor = stored[spec.target]
    return value


def _identity(x: Tensor) -> tuple[object, ...]:
    """What two references to the same elements have in common. Tensors without elements are all different."""
    where = x.data_ptr() if x.numel() else id(x)
    return where, x.dtype, tuple(x.shape), x.stride()
