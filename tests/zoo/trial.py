"""One model in one mode: exported, loaded, run at every size, compared with torch, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

import pteron
from pteron.devices import Device
from tests.support.memory import poison
from tests.zoo.exporter import Mode, export_model
from tests.zoo.model import Model

# The largest difference from torch that passes, relative to the largest element of an output.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 6e-2, torch.float16: 2e-2}
TIMED = 3  # calls


@dataclass
class Result:
    """The result of a model in a mode. A step is None before it is tried, True if it worked, or the error."""

    model: str
    mode: str
    exported: bool | str | None = None
    loaded: bool | str | None = None
    right: bool | str | None = None
    worst: float | None = None  # difference, relative to the largest element
    ratio: float | None = None  # process CPU of a call, to torch's on one thread

    @property
    def failure(self) -> str | None:
        """The error after the export; None if there is none."""
        return next((step for step in (self.loaded, self.right) if isinstance(step, str)), None)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def try_model(model: Model, mode: Mode, device: Device) -> Result:
    result = Result(model.name, str(mode))
    module = model.build()
    try:
        program = export_model(model, module, mode)
        result.exported = True
    except Exception as error:  # whatever the exporter says is its own
        result.exported = _reason(error)
        return result
    try:
        loaded = pteron.load(program, device=device, tune=False)
        method = loaded.method()
        result.loaded = True
    except pteron.PteronError as error:
        result.loaded = _reason(error)
        return result
    try:
        sizes = (*model.sizes, model.largest) if mode.dynamic else (model.largest,)
        result.worst = max(compare(model, module, method, size) for size in sizes)
        result.right = True
        result.ratio = cpu_ratio(model, module, method)
    except (pteron.PteronError, Mismatch) as error:
        result.right = _reason(error)
    finally:
        loaded.close()
    return result


class Mismatch(Exception):
    """An output that differs from torch's."""


def compare(model: Model, module: torch.nn.Module, method: Any, size: int) -> float:
    """The largest difference from torch at one live size, on poisoned memory."""
    inputs = model.inputs(size)
    with torch.no_grad():
        wanted = module(*inputs)
    poison(method)
    worst = 0.0
    outputs = method.execute(inputs)
    if len(outputs) != len(wanted):
        raise Mismatch(f"{len(outputs)} outputs instead of {len(wanted)}")
    for number, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
        what = f"output {number} at size {size}"
        if got.shape != tuple(want.shape):
            raise Mismatch(f"{what} has shape {got.shape}, not {tuple(want.shape)}")
        error = relative_error(got, want)
        if not error <= TOLERANCE.get(want.dtype, 0.0):
            raise Mismatch(f"{what} differs by {error:.2g} of its largest element")
        worst = max(worst, error)
    return worst


def relative_error(got: np.ndarray[Any, Any], want: torch.Tensor) -> float:
    if not want.numel():
        return 0.0
    expected = want.double().numpy()
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))  # infinities, too
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(got.astype(np.float64) - expected))
    finite = np.abs(expected[np.isfinite(expected)])
    return float(apart.max() / max(finite.max() if finite.size else 0.0, 1e-6))


def cpu_ratio(model: Model, module: torch.nn.Module, method: Any) -> float:
    inputs = model.inputs(model.largest)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        theirs = cpu_seconds(lambda: module(*inputs))
    torch.set_num_threads(threads)
    return cpu_seconds(lambda: method.execute(inputs)) / theirs


def cpu_seconds(call: Callable[[], Any]) -> float:
    """The smallest CPU time of a call, over all threads of this process."""
    call()
    taken = []
    for _ in range(TIMED):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return max(min(taken), 1e-5)


def _reason(error: Exception) -> str:
    """The first lines of an error, joined to one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:300]}"
