"""`pteron.export`: its arguments and its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pteron._util.extras import needs
from pteron.errors import InputError
from pteron.pte.container import write_file
from pteron.tools.exporter.quiet import quiet, quiet_imports
from pteron.tools.exporter.report import ExportReport, describe

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

Exportable: TypeAlias = "nn.Module | Callable[..., Any] | ExportedProgram | str | os.PathLike[str]"

QUANTIZATIONS = {"4bit": 4, "8bit": 8}  # bits


@dataclass(frozen=True, slots=True)
class Export:
    """An exported program, and a report on the export.

    Attributes:
        buffer: The bytes of the `.pte` file.
        report: Which operators are delegated, which are not, and whether Pteron can run the program.
    """

    buffer: bytes = field(repr=False)
    report: ExportReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.pte` file. It is written completely or not at all."""
        write_file(path, [self.buffer])


def export(
    module: Exportable | Mapping[str, Exportable],
    example_inputs: Sequence[Any] | Mapping[str, Sequence[Any]] = (),
    path: str | os.PathLike[str] | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    quantize: str | None = None,
    group_size: int = 32,
    symmetric: bool = True,
    partition: bool = True,
    compile_options: Mapping[str, Any] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    etrecord: str | os.PathLike[str] | None = None,
) -> Export:
    """Export a torch module or function to a `.pte` program. The module is not changed.

    It needs the extra `export`: `pip install '.[export]'` in a checkout.

    Args:
        module: A module, a function or a method of a module, or what `torch.export.export` made of it: an
            `ExportedProgram` or a `.pt2` file. Such a program has inputs and dynamic shapes already. For a
            file with several methods: a dictionary of these by name, such as `{"prefill": model.prefill,
            "decode": model.decode}`. Then `example_inputs`, `example_kwargs` and `dynamic_shapes` are
            dictionaries with the same names. Methods of one module share the buffers that they write.
        example_inputs: A tuple of arguments. Their sizes are the maximum of dimensions that have none.
        example_kwargs: Arguments by name.
        path: Where to write the file. Default: it is not written, see `Export.save`.
        dynamic_shapes: The dimensions that may be smaller, in the format of `torch.export.export`.
        quantize: `"4bit"` or `"8bit"` weights in linear layers and embeddings. Kernels read these weights
            directly.
        group_size: The number of weights that share a scale.
        symmetric: A quantized weight is scale * code. With False, each group also has a minimum or a zero
            point. This is more accurate. Stock ExecuTorch cannot run 4-bit weights with a minimum.
        partition: Whether to put operators into the Vulkan delegate. Pteron runs them in both cases.
        compile_options: Options of ExecuTorch's `VulkanPartitioner`, such as `{"force_fp16": True}`.
        constant_methods: Numbers and strings to store as methods, such as `{"get_max_seq_len": 128}`.
        etrecord: Where to write an ETRecord. ExecuTorch's Inspector joins it with an ETDump of
            `pteron.runtime`, and shows the module and the line of each operator.

    Returns:
        The program and a report on it.

    Raises:
        InputError: An argument has a value that is not allowed.
        UnsupportedError: The module uses an operator that neither ExecuTorch nor Pteron has.
        ImportError: torch or ExecuTorch is missing. The message says what to install.

    Example:
        ```python
        length = torch.export.Dim("length", min=1, max=128)
        x = torch.randn(1, 128, 64)
        made = pteron.export(module, (x,), "model.pte", dynamic_shapes=({1: length},))
        print(made.report)
        ```
    """
    if quantize not in (None, *QUANTIZATIONS):
        raise InputError(
            f"quantize must be {' or '.join(map(repr, QUANTIZATIONS))} or None, not {quantize!r}"
        )
    if quantize is not None and not partition:
        raise InputError("only the delegate supports quantized weights: quantize needs partition=True")
    if group_size < 1 or group_size % 4:
        raise InputError(f"group_size must be a multiple of 4, not {group_size}")
    lowering, prepare = exporters()
    methods = module if isinstance(module, Mapping) else {"forward": module}
    several = methods if methods is module else None
    examples = _by_method(several, "example_inputs", example_inputs)
    named_examples = _by_method(several, "example_kwargs", example_kwargs)
    shapes = _by_method(several, "dynamic_shapes", dynamic_shapes)
    kept: list[str] = []
    with quiet(), prepare.layer_by_layer():
        sources = {}
        for name, one in methods.items():
            inputs = examples.get(name, ())
            if not isinstance(inputs, (tuple, list)):
                raise InputError(
                    f"example_inputs must be a tuple of arguments, not {type(inputs).__name__}: write (x,)"
                )
            ready = prepare.open_source(one)
            if not isinstance(ready, prepare.nn.Module) and (quantize or shapes.get(name) or inputs):
                raise InputError(
                    "an exported program has its inputs, shapes and weights: "
                    "example_inputs, dynamic_shapes and quantize need a module"
                )
            if quantize is not None:
                bits = QUANTIZATIONS[quantize]
                ready, layers = prepare.quantize_weights(ready, bits, group_size, symmetric)
                kept += layers
            given, named = prepare.distinct(ready, (tuple(inputs), dict(named_examples.get(name) or {})))
            sources[name] = lowering.MethodSource(ready, given, named, shapes.get(name))
        lowered = lowering.lower(
            sources,
            options=dict(compile_options or {}) if partition else None,
            constant_methods=dict(constant_methods or {}),
            needs_delegate=quantize is not None,
            etrecord=etrecord is not None,
        )
        if etrecord is not None:
            if set(sources) == {"forward"} and not sources["forward"].named_inputs:
                lowered.etrecord.update_representative_inputs([list(sources["forward"].inputs)])
            lowered.etrecord.save(os.fspath(etrecord))
    report = describe(
        lowered.buffer,
        list(sources),
        lowered.reasons,
        tuple(kept),
        lowered.partitioner_error,
        lowered.notes + lowered.changed,
    )
    made = Export(lowered.buffer, report)
    if path is not None:
        made.save(path)
    return made


def _by_method(methods: Mapping[str, Any] | None, argument: str, value: Any) -> Mapping[str, Any]:
    """An argument of each method, by name. Without names of methods, it is that of `forward`."""
    if methods is None:
        return {"forward": value}
    if value is None or (isinstance(value, tuple) and not value):
        return {}
    if not isinstance(value, Mapping) or not set(value) <= set(methods):
        raise InputError(f"{argument}: expected a dictionary by method, as module is: {', '.join(methods)}")
    return value


def exporters() -> tuple[Any, Any]:
    """Import the two modules that need torch and ExecuTorch. The error says what to install."""
    with needs("export", "to export a PyTorch module"), quiet_imports():
        from pteron.tools.exporter import lowering, prepare
    return lowering, prepare
