"""The inputs of `pteron run`: from files, from numbers, or generated at a shape."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import typer

from pteron.cli.arguments import in_order, parse_shape, split_name
from pteron.tools.verify.samples import random_arrays

if TYPE_CHECKING:
    from pteron.api.method import Method
    from pteron.api.method_info import IOInfo

Fill: TypeAlias = "Callable[[IOInfo, tuple[int, ...]], np.ndarray[Any, Any]]"


@dataclass(frozen=True, slots=True)
class Given:
    """The value of an input, and a short note on its origin."""

    value: Any
    source: str


def make_inputs(
    method: Method, inputs: Sequence[str], shapes: Sequence[str], fill: str, seed: int
) -> dict[str, Given]:
    """Every input by name: the user's value, or else `fill` at the given or largest shape."""
    infos = {info.name: info for info in method.inputs}
    values = in_order(_open_archives(inputs, infos), infos, "--input")
    given: dict[str, Given] = {name: _read(text) for name, text in values.items()}
    shapeless = [name for name, info in infos.items() if info.is_tensor and not _is_array(given, name)]
    sizes = {name: parse_shape(text) for name, text in in_order(shapes, shapeless, "--shape").items()}
    fillers = {"random": random_arrays(method, seed), "zeros": _constant(0), "ones": _constant(1)}
    return {
        name: _complete(info, given.get(name), sizes.get(name, info.largest_shape), fillers[fill], fill)
        for name, info in infos.items()
    }


def live_shapes(method: Method, live: int | None, shapes: Sequence[str]) -> list[str]:
    """The `--shape` arguments, and `--live` for the other inputs: the size of every dynamic dimension."""
    if live is None:
        return list(shapes)
    most = max((info.max_shape[d] for info in method.inputs for d in info.dynamic_dims), default=live)
    if live > most:
        raise typer.BadParameter(f"--live {live}: expected a size from 1 to {most}")
    if any(info.guessed and info.dynamic_dims for info in method.inputs):
        typer.echo("note: the file does not say which sizes may vary, so --live follows a guess", err=True)
    tensors = [info.name for info in method.inputs if info.is_tensor]
    given = in_order(shapes, tensors, "--shape")
    for info in method.inputs:
        if info.name in tensors and info.name not in given and info.dynamic_dims:
            given[info.name] = ",".join(map(str, info.shape_at(live)))
    return [f"{name}={text}" for name, text in given.items()]


def _open_archives(inputs: Sequence[str], names: Collection[str]) -> list[str]:
    """Replace each `.npz` by one argument per array. Arrays named like an input go there, others in order."""
    opened: list[str] = []
    for text in inputs:
        name, path = split_name(text)
        if name is not None or not path.endswith(".npz"):
            opened.append(text)
            continue
        with _opened(path) as arrays:
            keys = list(arrays)
        opened += [f"{key}={path}#{key}" if key in names else f"{path}#{key}" for key in keys]
    return opened


def _read(text: str) -> Given:
    number = _number(text)
    if number is not None:
        return Given(number, "given")
    path, is_member, key = text.partition(".npz#")
    path += ".npz" if is_member else ""
    with _opened(path) as arrays:
        keys = list(arrays)
        if key not in keys and (key or len(keys) > 1):
            raise typer.BadParameter(
                f"--input {path} contains {', '.join(keys)}: choose one, such as {path}#{keys[0]}"
            )
        return Given(arrays[key or keys[0]], Path(path).name)


@contextmanager
def _opened(path: str) -> Iterator[Mapping[str, np.ndarray[Any, Any]]]:
    """The arrays of a file by name. The array of a `.npy` file has the name ""."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            yield {"": loaded}
        else:
            with loaded:
                if not loaded.files:
                    raise ValueError("it contains no arrays")
                yield loaded
    except (ValueError, EOFError, BadZipFile, zlib.error) as error:
        said = f"--input {path}: neither a number nor a readable .npy or .npz file ({error})"
        raise typer.BadParameter(said) from None


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _is_array(given: Mapping[str, Given], name: str) -> bool:
    return name in given and isinstance(given[name].value, np.ndarray)


def _complete(info: IOInfo, given: Given | None, shape: tuple[int, ...], fill: Fill, label: str) -> Given:
    if not info.is_tensor:
        return given or Given(0 if info.is_integer else info.fixed, "default")
    if given is None:
        return Given(fill(info, shape), label)
    if isinstance(given.value, np.ndarray):
        return given
    return Given(np.full(shape, given.value, info.array_dtype), f"all {given.value}")


def _constant(value: int) -> Fill:
    return lambda info, shape: np.full(shape, value, info.array_dtype)
