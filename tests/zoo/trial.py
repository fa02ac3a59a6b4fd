"""One model: exported in a mode, loaded, run at every size, compared with torch, and timed."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch

import pteron
from pteron.engine.devices.opening import Device
from pteron.tools.verify.comparison import Tolerance, difference
from tests.support.memory import poison
from tests.support.signature import wrong_sizes
from tests.zoo.exporter import Exporter, Mode
from tests.zoo.model import Model
from tests.zoo.refused import executorch_refuses
from tests.zoo.results import EQUAL, FROZEN, NOT_EXPORTED, NOT_LOADED, WRONG, Result

# The difference from torch that passes, as a share of the largest element of an output.
SHARES = {torch.float32: 1e-3, torch.bfloat16: 6e-2, torch.float16: 2e-2}
EXPORTER_FROZE = "The exporter made this size a constant"  # a part of an error of Pteron
# The same from ExecuTorch's own runtime, in a quantized program: a few steps of int8.
QUANTIZED_TOLERANCE = 3e-2
TIMED = 0.2  # seconds of CPU: this clock advances in steps while the child's time limit is set


class Trial:
    """One model, tried in one mode after the other. The modes share what torch computes."""

    def __init__(self, model: Model, device: Device) -> None:
        self.model = model
        self.device = device
        self.module = model.build()
        self.exporter = Exporter(model, self.module)

    def run(self, mode: Mode) -> Result:
        result = functools.partial(Result, self.model.name, str(mode), versions=versions(self.model.family))
        try:
            program = self.exporter.export(mode)
        except Exception as error:  # an error of torch.export or of ExecuTorch
            return result(NOT_EXPORTED, reason(error))
        try:
            loaded = pteron.load(program, device=self.device, tune=False)
        except pteron.PteronError as error:
            if mode.is_quantized and executorch_refuses(program, self.model.inputs(self.model.largest)):
                return result(NOT_EXPORTED, f"ExecuTorch's own runtime cannot run the file. {reason(error)}")
            return result(NOT_LOADED, reason(error))
        with loaded:
            try:
                method = loaded.method()
            except pteron.PteronError as error:
                return result(NOT_LOADED, reason(error))
            try:
                reference = ExecutorchOutputs(program, self.model) if mode.is_quantized else self
                sizes = (self.model.largest, *self.sizes(mode))
                worst = max(self.compare(method, size, reference) for size in sizes)
                compare_signature(method)
            except (pteron.PteronError, Mismatch) as error:
                return result(FROZEN if EXPORTER_FROZE in str(error) else WRONG, reason(error))
            ratio = cpu_ratio(self.model, self.module, method)
        return result(EQUAL, worst=float(f"{worst:.1e}"), ratio=round(ratio, 2))

    def sizes(self, mode: Mode) -> tuple[int, ...]:
        """The live sizes to run after the largest, in this order."""
        return (*self.model.sizes, self.model.largest)[1:] if mode.dynamic else ()

    def compare(self, method: Any, size: int, reference: Trial | ExecutorchOutputs) -> float:
        """The largest difference from the reference at one live size, on poisoned memory."""
        inputs = self.model.inputs(size)
        wanted = reference.wanted(size)
        poison(method)
        outputs = method.execute(inputs)
        if len(outputs) != len(wanted):
            raise Mismatch(f"{len(outputs)} outputs instead of {len(wanted)}")
        worst = 0.0
        for number, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
            what = f"output {number} at size {size}"
            if got.shape != tuple(want.shape):
                raise Mismatch(f"{what} has shape {got.shape}, not {tuple(want.shape)}")
            share = reference.tolerance(want.dtype)
            arrays = (torch.as_tensor(x).double().numpy() for x in (got, want))
            found = difference(*arrays, Tolerance(0.0, share, absolute=1e-6 * share))
            if found.is_bad:
                raise Mismatch(
                    f"{what} differs by {found.share * share:.2g} of its largest element: "
                    f"expected {found.expected:.7g}, got {found.found:.7g}"
                )
            worst = max(worst, found.share * share)
        return worst

    def tolerance(self, dtype: torch.dtype) -> float:
        return SHARES.get(dtype, 0.0)

    def wanted(self, size: int) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            results: tuple[torch.Tensor, ...] = self.module(*self.model.inputs(size))
        return results


class ExecutorchOutputs:
    """What ExecuTorch's own runtime gives for a program. A quantized program has no equal in torch."""

    def __init__(self, program: bytes, model: Model) -> None:
        import executorch.kernels.quantized  # noqa: F401  registers kernels
        from executorch.runtime import Runtime

        self._method: Any = Runtime.get().load_program(program).load_method("forward")
        self._model = model

    def tolerance(self, dtype: torch.dtype) -> float:
        return QUANTIZED_TOLERANCE if dtype.is_floating_point else 0.0

    def wanted(self, size: int) -> tuple[torch.Tensor, ...]:
        return tuple(output.clone() for output in self._method.execute(list(self._model.inputs(size))))


def compare_signature(method: Any) -> None:
    """Compare the formulas of all sizes with live shapes at random sizes."""
    for problem in wrong_sizes(method._live):
        raise Mismatch(problem)


class Mismatch(Exception):
    """An output that differs from the reference."""


def cpu_ratio(model: Model, module: torch.nn.Module, method: Any) -> float:
    inputs = model.inputs(model.largest)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        theirs = cpu_seconds(lambda: module(*inputs))
    torch.set_num_threads(threads)
    return cpu_seconds(lambda: method.execute(inputs)) / theirs


def cpu_seconds(call: Callable[[], Any]) -> float:
    """The mean CPU time of a call, over all threads of this process."""
    call()
    start, calls = time.process_time(), 0
    while (taken := time.process_time() - start) < TIMED:
        call()
        calls += 1
    return taken / calls


def reason(error: BaseException) -> str:
    """The first paragraph of the first cause of an error, as one line that is the same in every process."""
    while error.__cause__ is not None:  # ExecuTorch wraps the errors of its passes
        error = error.__cause__
    paragraph = str(error).strip().partition("\n\n")[0]
    text = re.sub(r" object at 0x[0-9a-f]+", "", " ".join(paragraph.split()))
    return f"{type(error).__name__}: {text[:300]}"


@functools.cache
def versions(family: str) -> str:
    """The versions of all that a result depends on."""
    packages = ("torch", "executorch", family, "pteron")
    return ", ".join(f"{package} {version(package)}" for package in packages)
