"""torch.export and ExecuTorch's lowering, with workarounds for their known problems."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from executorch.backends.vulkan import patterns  # noqa: F401  registers the patterns
from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from torch import nn
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from pteron.compiler.lower.port_names import ENTRY as NAMES
from pteron.compiler.lower.port_names import is_name
from pteron.compiler.lower.stored_sizes import ENTRY as SIZES
from pteron.tools.exporter.fusible import rewritten
from pteron.tools.exporter.mending import equal_outputs_stay, sizes_stay_dynamic
from pteron.tools.exporter.mutable_buffers import (
    buffers_outside,
    common_buffers,
    join_buffers,
    keep_initial_values,
    refuse_written_parameters,
    unchanged_numbers,
)
from pteron.tools.exporter.operators import edge_config, refuse_unknown_operators
from pteron.tools.exporter.partitioner import Partitioner, Reasons
from pteron.tools.exporter.size_bounds import bound_sizes, bounds_stay, changed_bounds, upper_bounds
from pteron.tools.exporter.size_relations import stored_sizes
from pteron.tools.exporter.source_lines import lines_stay


@dataclass(frozen=True, slots=True)
class MethodSource:
    """One method of the file: what to export, and its example."""

    module: nn.Module | ExportedProgram
    inputs: tuple[Any, ...]
    named_inputs: dict[str, Any]
    dynamic_shapes: Any


@dataclass(frozen=True, slots=True)
class Lowered:
    """The bytes of a `.pte` file, and what was not delegated."""

    buffer: bytes
    reasons: Reasons
    changed: tuple[str, ...] = ()  # sizes whose maximum is not the one that was asked for
    partitioner_error: str | None = None  # why nothing is delegated, where that was wanted
    notes: tuple[str, ...] = ()  # sizes without a maximum, inputs without an effect
    etrecord: Any = None  # ExecuTorch's record of the export, if it was asked for


def lower(
    sources: Mapping[str, MethodSource],
    *,
    options: dict[str, Any] | None,
    constant_methods: dict[str, Any],
    needs_delegate: bool = False,
    etrecord: bool = False,
) -> Lowered:
    """Lower methods by name. Without `options` for the partitioner, nothing is delegated.

    The partitioner fails on some programs that ExecuTorch can write without it. Pteron runs both forms, so in
    this case nothing is delegated, unless the caller needs the delegate.
    """
    optional = options == {} and not needs_delegate
    error: Exception
    try:
        made = _attempt(sources, options, constant_methods, etrecord)
        if not made.changed or not optional:
            return made
        error = ValueError("; ".join(made.changed))
    except Exception as reason:
        if not optional:
            raise
        error = reason
    try:
        alone = _attempt(sources, None, constant_methods, etrecord)
    except Exception:
        raise error from None  # the partitioner was not the cause
    return replace(alone, partitioner_error=f"{type(error).__name__}: {error}")


def _attempt(
    sources: Mapping[str, MethodSource],
    options: dict[str, Any] | None,
    constant_methods: dict[str, Any],
    etrecord: bool,
    checked: bool = True,
) -> Lowered:
    """Export and lower. `checked`: with ExecuTorch's check, which refuses some dtypes that Pteron has."""
    with torch.no_grad():
        programs = {name: _exported(source) for name, source in sources.items()}
        notes = [
            note for program in programs.values() for note in (*bound_sizes(program), *unread_inputs(program))
        ]
        shapes = {name: source.dynamic_shapes for name, source in sources.items()}
        try:
            with lines_stay():
                made = _lower_programs(programs, shapes, options, constant_methods, etrecord, checked)
        except SpecViolationError as error:
            for program in programs.values():
                refuse_written_parameters(_functional(program) or program)
            refuse_unknown_operators(error)
            if not checked:
                raise
            return _attempt(sources, options, constant_methods, etrecord, checked=False)
    return replace(made, notes=(*notes, *made.notes))


def _functional(program: ExportedProgram) -> ExportedProgram | None:
    """The program without operators that write in place. None if torch cannot trace it again."""
    try:
        return program.run_decompositions({})
    except Exception:
        return None


def _exported(source: MethodSource) -> ExportedProgram:
    """A program of torch. Lowering changes it, so one that was given is copied."""
    module = source.module
    if isinstance(module, ExportedProgram):
        program = module.run_decompositions({})
        program._state_dict, program._constants = dict(module.state_dict), dict(module.constants)
    else:
        with unchanged_numbers(module):
            program = torch.export.export(
                module, source.inputs, source.named_inputs, dynamic_shapes=source.dynamic_shapes
            )
    plain_results(program)
    join_buffers(program)
    return program


def _lower_programs(
    exported: Mapping[str, ExportedProgram],
    dynamic_shapes: Mapping[str, Any],
    options: dict[str, Any] | None,
    constant_methods: dict[str, Any],
    etrecord: bool,
    checked: bool,
) -> Lowered:
    bounds = {name: upper_bounds(program) for name, program in exported.items()}
    names = {name: port_names(program) for name, program in exported.items()}
    common = common_buffers(exported.values())
    remember_patterns()
    partitioner = None if options is None else Partitioner(options)
    with mended(common):
        edge = to_edge_transform_and_lower(
            {name: rewritten(program, delegated=bool(partitioner)) for name, program in exported.items()},
            partitioner=partitioner and [partitioner],
            constant_methods=constant_methods,
            compile_config=edge_config(checked),
            generate_etrecord=etrecord,
        )
    made = {name: edge.exported_program(name) for name in exported}
    changed = [change for name, most in bounds.items() for change in changed_bounds(made[name], most)]
    for program in made.values():
        refuse_written_parameters(program)
        keep_initial_values(program)
    changing = {
        name: program.graph_signature.user_inputs_to_mutate.values() for name, program in made.items()
    }
    for name, inputs in changing.items():
        with_changed(names[name], list(inputs), len(exported[name].graph_signature.user_outputs))
    # Lowering may have changed bounds, which a note then says.
    sizes = {name: stored_sizes(program, dynamic_shapes[name]) for name, program in exported.items()}
    for key, value in {NAMES: names, SIZES: sizes}.items():
        edge._named_data_store.add_named_data(key, json.dumps(value).encode())
    planning = MemoryPlanningPass(share_mutable_buffers=bool(common))
    done = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    reasons = partitioner.reasons if partitioner else {}
    record = done.get_etrecord() if etrecord else None
    notes = [
        f"the module changes {given}: the program leaves it, and returns new_{given} before its results"
        for inputs in changing.values()
        for given in inputs
    ]
    return Lowered(bytes(done.buffer), reasons, tuple(changed), notes=tuple(notes), etrecord=record)


@contextmanager
def mended(common: set[str]) -> Iterator[None]:
    """ExecuTorch without the problems that change a program. `common`: buffers of several methods."""
    with sizes_stay_dynamic(), bounds_stay(), equal_outputs_stay(), buffers_outside(common):
        yield


def unread_inputs(program: ExportedProgram) -> Iterator[str]:
    """A note for each tensor that has no effect. It may have been exported with another input's example."""
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in inputs and isinstance(node.meta["val"], torch.Tensor) and not node.users:
            yield f"nothing reads {node.name}: its values have no effect"


def plain_results(program: ExportedProgram) -> None:
    """Return a tuple where the program returns a result of torch with names, such as that of `x.max(1)`.

    ExecuTorch cannot write the type of such a result.
    """

    def plain(spec: Any) -> Any:
        children = [plain(child) for child in spec.children()]
        if getattr(spec.type, "__module__", "") == "torch.return_types":
            return pytree.TreeSpec(tuple, None, children)
        return pytree.TreeSpec(spec.type, spec.context, children) if children else spec

    signature = program.module_call_graph[0].signature
    if signature is not None:
        signature.out_spec = plain(signature.out_spec)


def port_names(program: Any) -> dict[str, Any]:
    """The names of the arguments, and of the outputs if the module returns a dictionary or a dataclass.

    Also the arguments that are texts: ExecuTorch stores None for them.
    """
    signature = program.graph_signature
    inputs = [spec.arg for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    outputs = pytree.tree_unflatten(range(len(signature.user_outputs)), program.call_spec.out_spec)
    if dataclasses.is_dataclass(outputs):
        outputs = {f.name: getattr(outputs, f.name) for f in dataclasses.fields(outputs)}
    names = {"inputs": [arg.name for arg in inputs]}
    if isinstance(outputs, Mapping) and all(isinstance(number, int) for number in outputs.values()):
        names["outputs"] = sorted(outputs, key=lambda name: outputs[name])
    stored: dict[str, Any] = {
        kind: found
        for kind, found in names.items()
        if all(map(is_name, found)) and len(set(found)) == len(found)
    }
    texts = {n: arg.value for n, arg in enumerate(inputs) if isinstance(getattr(arg, "value", None), str)}
    return stored | ({"texts": texts} if texts else {})


def with_changed(names: dict[str, Any], inputs: list[str], results: int) -> None:
    """Name the outputs that ExecuTorch adds: the new values of inputs that the module changes."""
    if inputs:
        own = names.get("outputs") or [f"output{number}" for number in range(results)]
        names["outputs"] = [*(f"new_{name}" for name in inputs), *own]


@functools.cache
def remember_patterns() -> None:
    """Cache the partitioner's rope patterns. It traces them for every program, which takes seconds."""
    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None:
            entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)
