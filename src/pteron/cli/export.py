"""`pteron export`: export a PyTorch module to a `.pte` program."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pteron.cli import common
from pteron.cli.check import report_json
from pteron.cli.output_places import prepare_file
from pteron.cli.terminal import console, print_json

if TYPE_CHECKING:
    from pteron.tools.exporter.report import ExportReport


def export(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="FILE.PY:NAME",
            help="A function that returns (module, example_inputs) or (module, example_inputs, "
            "dynamic_shapes): path/to/file.py:name or package.module:name.",
        ),
    ],
    output: Annotated[Path, typer.Argument(help="The .pte file to write.")],
    quantize: Annotated[
        Literal["4bit", "8bit"] | None,
        typer.Option(help="Store the weights of linears and embeddings in this many bits."),
    ] = None,
    group_size: Annotated[int, typer.Option(min=4, help="How many quantised weights share a scale.")] = 32,
    symmetric: Annotated[
        bool, typer.Option("--symmetric/--affine", help="Quantise without or with a minimum for each group.")
    ] = True,
    partition: Annotated[
        bool, typer.Option("--partition/--no-partition", help="Use the Vulkan delegate where possible.")
    ] = True,
    as_json: common.AsJson = False,
) -> None:
    """Export a PyTorch module to a .pte program, and list the operators outside the delegate."""
    from pteron.tools.exporter.api import export as export_module
    from pteron.tools.exporter.api import exporters

    exporters()  # report missing packages before the user's file, which imports torch too
    prepare_file(output)
    with imports_as_in_a_script(factory):
        module, example_inputs, *rest = make(factory)
        made = export_module(
            module,
            example_inputs,
            output,
            dynamic_shapes=rest[0] if rest else None,
            quantize=quantize,
            group_size=group_size,
            symmetric=symmetric,
            partition=partition,
        )
    if as_json:
        print_json({"file": str(output), **_report_json(made.report)})
    else:
        console().print(f"{output}: {made.report}", soft_wrap=True)
    raise typer.Exit(0 if made.report.ok else 1)


def _report_json(report: ExportReport) -> dict[str, Any]:
    return {**asdict(report), "check": report_json(report.check), "ok": report.ok}


@contextmanager
def imports_as_in_a_script(factory: str) -> Iterator[None]:
    """Find modules in the folder of the factory's file first; for a module by name, in the current folder.

    Only here: the folder may have a `json.py`, which would break every Python process that is started later.
    """
    where = Path(factory.rpartition(":")[0])
    folder = where.parent.resolve() if where.suffix == ".py" else Path.cwd()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def make(factory: str) -> tuple[Any, ...]:
    """The result of the named function."""
    where, colon, name = factory.rpartition(":")
    if not colon or not where or not name:
        raise typer.BadParameter(f"{factory}: write path/to/file.py:name or package.module:name")
    function = getattr(load_module(where), name, None)
    if not callable(function):
        raise typer.BadParameter(f"{where} has no function {name!r}")
    made = function()
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise typer.BadParameter(
            f"{factory} must return (module, example_inputs) or (module, example_inputs, dynamic_shapes)"
        )
    return made


def load_module(where: str) -> ModuleType:
    """Import a module by name, or a Python file."""
    path = Path(where)
    if path.suffix != ".py":
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise  # the module exists, but an import inside it failed
            raise typer.BadParameter(f"there is no module {where!r}") from None
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {where}")
    # A name of our own: the file's name may be the name of an installed package.
    spec = spec_from_file_location(f"pteron_export_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
