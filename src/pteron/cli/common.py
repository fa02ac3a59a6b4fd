"""Options that have the same meaning in several commands."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Model: TypeAlias = Annotated[Path, typer.Argument(help="A .pte file.")]
Inputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]FILE|NUMBER",
        help="A .npy or .npz file, or a number. Repeatable: in the order of the inputs, or with a name.",
    ),
]
Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        "-s",
        metavar="[NAME=]SHAPE",
        help="The live shape of a tensor input that has no file, such as 1,7,64. Default: the largest.",
    ),
]
Bounds: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--bound",
        "-b",
        metavar="NAME=SHAPE",
        help="A smaller largest shape of an input, such as x=1,512,-. - keeps the file's size, and 512..512 "
        "is always 512. Memory is for these shapes.",
    ),
]
LiveSize: TypeAlias = Annotated[
    int | None, typer.Option("--live", "-l", min=1, help="The size of every dynamic dimension.")
]
Random: TypeAlias = Annotated[bool, typer.Option("--random", "-r", help="Random inputs instead of zeros.")]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", help="The seed of the random inputs.")]
MethodName: TypeAlias = Annotated[str, typer.Option("--method", "-m", help="The method to call.")]
Repeat: TypeAlias = Annotated[int, typer.Option("--repeat", "-n", min=1, help="Calls per measurement.")]
DataPaths: TypeAlias = Annotated[
    list[Path] | None, typer.Option("--data", help="A .ptd file with weights. Repeatable.")
]
DeviceName: TypeAlias = Annotated[
    str | None, typer.Option("--device", "-d", help="An adapter's index, part of its name, or software.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check_method(name: str, names: Collection[str]) -> None:
    """Refuse the name of a method that the program does not have."""
    if name not in names:
        raise typer.BadParameter(f"there is no method {name!r}; the methods are {', '.join(names)}")
