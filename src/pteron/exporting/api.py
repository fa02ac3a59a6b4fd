"""`pteron.export`: its arguments and its result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pteron.errors import InputError
from pteron.exporting.quiet import quiet
from pteron.exporting.report import ExportReport, describe
from pteron.extras import needs
from pteron.pte.container import write_file

if TYPE_CHECKING:
    from torch import nn

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
    module: nn.Module,
    example_inputs: Sequence[Any],
    path: str | os.PathLike[str] | None = None,
    *,
    dynamic_shapes: Any = None,
    quantize: str | None = None,
    group_size: int = 32,
    symmetric: bool = True,
    partition: bool = True,
    compile_options: Mapping[str, Any] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
) -> Export:
    """Export a torch module to a `.pte` program. The module is not changed.

    It needs the extra `export`: `pip install 'pteron[export]'`.

    Args:
        module: The module.
        example_inputs: A tuple of arguments, at their largest size.
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

    Returns:
        The program and a report on it.

    Raises:
        InputError: An argument has a value that is not allowed.
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
    if not isinstance(example_inputs, (tuple, list)):
        raise InputError(
            f"example_inputs must be a tuple of arguments, not {type(example_inputs).__name__}: write (x,)"
        )
    with quiet(), prepare.layer_by_layer():
        ready = prepare.copy_for_export(module)
        kept: tuple[str, ...] = ()
        if quantize is not None:
            ready, kept = prepare.quantize_weights(ready, QUANTIZATIONS[quantize], group_size, symmetric)
        lowered = lowering.lower(
            ready,
            tuple(example_inputs),
            dynamic_shapes,
            options=dict(compile_options or {}) if partition else None,
            constant_methods=dict(constant_methods or {}),
            needs_delegate=quantize is not None,
        )
    made = Export(lowered.buffer, describe(lowered.buffer, lowered.reasons, kept, lowered.partitioner_error))
    if path is not None:
        made.save(path)
    return made


def exporters() -> tuple[Any, Any]:
    """Import the two modules that need torch and ExecuTorch. The error says what to install."""
    with needs("export", "to export a PyTorch module"), quiet():
        from pteron.exporting import lowering, prepare
    return lowering, prepare
