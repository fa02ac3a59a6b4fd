"""Buffers that a program writes: where they are stored, and with which contents they begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from executorch.backends.vulkan.partitioner import vulkan_partitioner
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from pteron.errors import UnsupportedError
from pteron.tools.exporter.replaced import replaced

# An operator that writes its argument in place, which torch.export has made functional.
WRITES_ITS_ARGUMENT = (
    torch.ops.higher_order.auto_functionalized,
    torch.ops.higher_order.auto_functionalized_v2,
)


@contextmanager
def unchanged_numbers(module: nn.Module) -> Iterator[None]:
    """Restore buffers with one element. torch.export computes with such constants, and may write them."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers() if buffer.numel() == 1]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


def refuse_written_parameters(program: ExportedProgram) -> None:
    """ExecuTorch would return the new values of a parameter and forget them."""
    written = sorted(program.graph_signature.parameters_to_mutate.values())
    if written:
        raise UnsupportedError(
            f"the module writes the parameter {written[0]}, which a program cannot keep: "
            "make it a buffer, with register_buffer"
        )


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


def buffers_outside(common: set[str]) -> AbstractContextManager[None]:
    """Keep buffers out of the delegate, except those that an operator of the delegate writes in place.

    Buffers of several methods are always outside, also where a method only reads them: no method sees those
    of another's delegate.

    A delegate does not say which buffer an output replaces. If a result is both the new contents of a buffer
    and an output of the program, ExecuTorch even stores it once, in the wrong order.
    """

    def mend(before: Any) -> Any:
        def tag(program: ExportedProgram) -> None:
            before(program)
            names = program.graph_signature.inputs_to_buffers
            nodes = program.graph.find_nodes(op="placeholder")
            shared = [node for node in nodes if names.get(node.name) in common]
            alone = [
                node
                for node in written_buffers(program)
                if not any(user.target in WRITES_ITS_ARGUMENT for user in node.users)
            ]
            for node in (*shared, *alone):
                node.meta.pop("delegation_tag", None)

        return tag

    return replaced(vulkan_partitioner, "tag_mutated_buffer", mend)


def keep_initial_values(program: ExportedProgram) -> None:
    """Store the contents of buffers that the program writes. ExecuTorch would store only their shapes.

    Buffers of zeros are not stored. They may be large, such as KV caches, and memory begins with zeros.
    """
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in written_buffers(program):
        if _has_contents(_tensor(program, specs[node.name])):
            node.meta["et_init_buffer"] = True


def common_buffers(programs: Collection[ExportedProgram]) -> set[str]:
    """The buffers that several methods have, under one name, and that at least one of them writes."""
    places = Counter((name, x.data_ptr()) for program in programs for name, x in program.named_buffers())
    common = {name for (name, _), count in places.items() if count > 1}
    if not common:
        return common
    # Writes in place are outputs after this step, and before it only nodes among others.
    signatures = [program.run_decompositions({}).graph_signature for program in programs]
    return common & {name for signature in signatures for name in signature.buffers_to_mutate.values()}


def written_buffers(program: ExportedProgram) -> list[Any]:
    """The placeholders of the buffers that a program writes."""
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    return [
        node
        for node in program.graph.find_nodes(op="placeholder")
        if signature.inputs_to_buffers.get(node.name) in written
    ]


def _has_contents(x: Tensor) -> bool:
    """Whether a bit is set: also in -0.0."""
    return bool(x.detach().contiguous().flatten().view(torch.uint8).any())


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
