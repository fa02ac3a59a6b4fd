"""One model of the zoo: its factory, its inputs, and its dynamic dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Model:
    """`inputs(n)` are the arguments at live size n. `live`: the dimension of each argument with size n."""

    name: str
    family: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    live: tuple[int | None, ...]
    sizes: tuple[int, ...]  # the largest first; then in the order in which they are run

    @property
    def largest(self) -> int:
        return self.sizes[0]

    def dynamic_shapes(self) -> Any:
        n = torch.export.Dim("n", min=min(self.sizes), max=self.largest)
        return (tuple(None if dim is None else {dim: n} for dim in self.live),)

    def build(self) -> nn.Module:
        """The model with random weights. They are the same every time."""
        torch.manual_seed(0)
        return Plain(shortened(self.make())).eval()


def shortened(module: nn.Module) -> nn.Module:
    """Leave out layers that equal the layer before them. Exporting a layer takes seconds."""
    for part in list(module.modules()):
        if type(part) is nn.Sequential:
            last: Any = None
            for name, layer in list(part.named_children()):
                if likeness(layer) != last:
                    last, seen = likeness(layer), []
                if shifts(layer) in seen:
                    delattr(part, name)
                seen.append(shifts(layer))
    return module


def likeness(layer: nn.Module) -> tuple[str, list[torch.Size]]:
    """What equal layers have in common: all but the values of their weights, and drop rates."""
    return re.sub(r"p(rob)?=[0-9.e-]+", "", repr(layer)), [x.shape for x in layer.state_dict().values()]


def shifts(layer: nn.Module) -> list[Any]:
    """By how much a layer shifts its windows: half of a Swin's layers do it, and `repr` does not show it."""
    return [part.shift_size for part in layer.modules() if hasattr(part, "shift_size")]


class Plain(nn.Module):
    """A model that takes tensors by position and returns a tuple of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensors(self.model(*inputs)))


def tensors(result: Any) -> Iterator[Tensor]:
    """All tensors in the result of a model, except KV caches."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from tensors(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from tensors(value)


class Calling(nn.Module):
    """A model that is called with named arguments and fixed options."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **options: Any) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.options = options

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.options)


def image(size: int, channels: int = 3) -> Callable[[int], Inputs]:
    """A batch of n images."""

    def make(n: int) -> Inputs:
        return (torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(n)),)

    return make


def words(limit: int = 90, rows: int = 1) -> Callable[[int], Inputs]:
    """Rows of n token ids."""

    def make(n: int) -> Inputs:
        return (torch.randint(3, limit, (rows, n), generator=torch.Generator().manual_seed(n)),)

    return make


BATCH = (3, 2)
LENGTHS = (11, 4, 7)
