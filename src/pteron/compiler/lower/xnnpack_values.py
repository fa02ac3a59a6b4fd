"""The values of an XNNPACK delegate while its nodes are inlined.

Convolutions and pools of XNNPACK work on NHWC, those of Pteron on NCHW. Therefore a value is *held* by a
tensor whose dimensions may have another order. A transposition only changes the order that is noted. A node
that needs a certain order gets it; most of the time, the value is held like that already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING

from pteron.compiler.ir.constants import permuted_constant
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Constant, Tensor
from pteron.compiler.lower.builder import CAST, VIEW
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import schema
from pteron.pte import xnnpack_graph as xnn
from pteron.pte.xnnpack import XnnDelegate
from pteron.pte.xnnpack_graph import XnnDataType

if TYPE_CHECKING:
    from pteron.compiler.lower.instructions import Lowering

PERMUTE = "aten.permute_copy.default"
CLAMP = "aten.clamp.default"
NCHW = (0, 3, 1, 2)  # the dimension of an NHWC value that each dimension of the tensor is

NUMBER_TYPES = {
    XnnDataType.FP32: ("float32", DType.float32),
    XnnDataType.PFP32: ("float32", DType.float32),  # in an order of elements that XNNPACK chooses
    XnnDataType.FP16: ("float16", DType.float16),
    XnnDataType.BF16: ("bfloat16", DType.bfloat16),
    XnnDataType.INT32: ("int32", DType.int32),
}


@dataclass(frozen=True, slots=True)
class Held:
    """A value of the delegate. Dimension d of the tensor is dimension `order[d]` of the value."""

    tensor: Tensor
    order: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def place(self, dim: int) -> int:
        """The tensor's dimension that is this dimension of the value."""
        return self.order.index(dim)


def plain(tensor: Tensor) -> Held:
    return Held(tensor, tuple(range(len(tensor.max_shape))))


class XnnValues:
    """The values of one call of the XNNPACK delegate, and the tensors that hold them."""

    def __init__(
        self, lowering: Lowering, delegate: XnnDelegate, call: schema.DelegateCall, name: str
    ) -> None:
        self.lowering = lowering
        self.delegate = delegate
        self.call = call
        self.name = name
        self.values = {value.tensor.id_out: value for value in delegate.graph.values}
        self.held: dict[int, Held] = {}
        self._origin = name
        self._bounds: xnn.OutputMinMax | None = None

    # -- reading --------------------------------------------------------------------------------

    def _name(self, index: int) -> str:
        return f"{self.name}.v{index}"

    def _argument(self, tensor: xnn.XnnTensor) -> int:
        return self.call.args[tensor.external_id]

    def _external(self, tensor: xnn.XnnTensor) -> Held:
        """An input. The delegate sees its dimensions in the order of the caller's memory."""
        index = self._argument(tensor)
        given = self.lowering.read_tensor(index)
        dtype = self.dtype(tensor.id_out)
        if given.dtype != dtype:
            cast = self.lowering.tensor(dtype, given.max_shape, f"{given.name}.{dtype}")
            self.node(CAST, [given, cast])
            given = cast
        return Held(given, self._memory_order(index))

    def _memory_order(self, index: int) -> tuple[int, ...]:
        """For each dimension of a tensor of the plan, its place in memory."""
        memory = self.lowering.memory_order(index)
        return tuple(memory.index(d) for d in range(len(memory)))

    def _write(self, held: Held, index: int) -> None:
        """Give a result to the caller."""
        target = self.lowering.write_tensor(index)
        order = self._memory_order(index)
        if not target.max_shape or not held.tensor.max_shape:  # a number is a value with one element
            shaped = self.lowering.tensor(held.tensor.dtype, target.max_shape, f"{target.name}.number")
            self.node(VIEW, [held.tensor, target.max_shape, shaped])
            held = plain(shaped)
        self.node(CAST, [self.ordered(held, order), target])

    def dtype(self, index: int) -> DType:
        code = self.values[index].tensor.datatype
        if code not in NUMBER_TYPES:
            raise UnsupportedError(f"value {index} has the type {code.name.lower()}")
        return NUMBER_TYPES[code][1]

    def read(self, index: int) -> Held:
        if index not in self.held:
            tensor = self.values[index].tensor
            if not tensor.constant_buffer_idx:
                raise self.nowhere(index)
            self.held[index] = plain(self._constant(index))
        return self.held[index]

    def nowhere(self, index: int) -> FormatError:
        """The error for a value that comes from nowhere."""
        return FormatError(
            f"{self._origin} reads value {index}, which is no input, no constant, no result of an earlier "
            "node. ExecuTorch's exporter writes such files for some models; its own runtime refuses them, too"
        )

    def _constant(self, index: int) -> Tensor:
        tensor = self.values[index].tensor
        dtype = self.dtype(index)
        data = self.delegate.constant(tensor.constant_buffer_idx, self.lowering.file.named_data)
        host = NUMBER_TYPES[tensor.datatype][0]
        return self.lowering.tensor(dtype, tuple(tensor.dims), self._name(index), Constant(data, host))

    def optional(self, index: int) -> Held | None:
        return None if index == xnn.NO_VALUE else self.read(index)

    def permuted(self, tensor: Tensor, places: Sequence[int]) -> Tensor:
        """The tensor with its dimensions in another order. A constant is permuted at upload."""
        if tuple(places) == tuple(range(len(places))):
            return tensor
        if isinstance(tensor.constant, Constant):
            return permuted_constant(self.lowering.graph, tensor, places)
        shape = tuple(tensor.max_shape[d] for d in places)
        made = self.lowering.tensor(tensor.dtype, shape, f"{tensor.name}.permuted")
        self.node(PERMUTE, [tensor, tuple(places), made])
        return made

    def ordered(self, held: Held, order: tuple[int, ...]) -> Tensor:
        """A tensor that holds the value in this order."""
        if len(held.order) != len(order):
            raise FormatError(f"{self._origin}: {len(held.order)} dimensions, expected {len(order)}")
        return self.permuted(held.tensor, [held.place(dim) for dim in order])

    def plain(self, index: int) -> Tensor:
        """The value in its own order."""
        held = self.read(index)
        return self.ordered(held, tuple(range(len(held.order))))

    def nchw(self, index: int) -> Tensor:
        return self.ordered(self._of_rank(index, 4), NCHW)

    def weights(self, index: int, rank: int) -> Tensor:
        """The weights of a node, in their own order."""
        self._of_rank(index, rank)
        return self.plain(index)

    def _of_rank(self, index: int, rank: int) -> Held:
        held = self.read(index)
        if len(held.order) != rank:
            found = len(held.order)
            raise FormatError(f"{self._origin}: value {index} has {found} dimensions, expected {rank}")
        return held

    # -- writing --------------------------------------------------------------------------------

    def node(self, name: str, args: Sequence[Arg]) -> None:
        self.lowering.node(name, args, self._origin)

    def result(self, index: int, order: tuple[int, ...]) -> Tensor:
        """The tensor for a result whose largest shape is in the file."""
        dims = self.values[index].tensor.dims
        if len(dims) != len(order):
            raise FormatError(f"{self._origin}: value {index} has {len(dims)} dimensions, not {len(order)}")
        return self.lowering.tensor(self.dtype(index), tuple(dims[d] for d in order), self._name(index))

    def make(self, index: int, name: str, args: Sequence[Arg], out: Tensor, order: tuple[int, ...]) -> None:
        """Add a node that computes a value, and clamp it if the file has bounds."""
        self.node(name, [*args, out])
        self.held[index] = Held(self._clamped(out), order)

    def _clamped(self, x: Tensor) -> Tensor:
        bounds = self._bounds
        if bounds is None or (isinf(bounds.output_min) and isinf(bounds.output_max)):
            return x
        low, high = (None if isinf(b) else b for b in (bounds.output_min, bounds.output_max))
        made = self.lowering.tensor(x.dtype, x.max_shape, f"{x.name}.clamped")
        self.node(CLAMP, [x, low, high, made])
        return made
