"""The values of a method's plan, and the graph value of each at the current instruction.

A plan value may be written more than once, for example in a loop. Its graph value therefore depends on the
position in the program: every full write creates a new tensor or SymInt in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pteron.compiler.ir.dtypes import HOST_TYPES, DType
from pteron.compiler.ir.values import Arg, Constant, Place, Port, SymInt, Tensor, ValueId
from pteron.compiler.lower.budget import Budget
from pteron.compiler.lower.builder import VIEW, Builder
from pteron.compiler.lower.port_names import PortNames
from pteron.compiler.lower.shared_buffers import shared_memory
from pteron.compiler.lower.stored_sizes import StoredSizes
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import schema
from pteron.pte.file import ProgramFile
from pteron.pte.schema import ScalarType


@dataclass(slots=True)
class Bindings:
    """The graph value of each plan value, at one point of the program."""

    values: dict[int, Arg] = field(default_factory=dict)  # by index into the plan's values
    written: set[int] = field(default_factory=set)  # tensors that hold a result or an input
    at: dict[Place, Tensor] = field(default_factory=dict)  # the tensor at each address
    views: dict[int, Tensor] = field(default_factory=dict)  # the source of each tensor that is a view

    def copy(self) -> Bindings:
        return Bindings(self.values.copy(), self.written.copy(), self.at.copy(), self.views.copy())


class PlanValues(Builder):
    """Reads and writes the values of a plan while the graph is built."""

    def __init__(self, file: ProgramFile, plan: schema.ExecutionPlan, budget: Budget | None = None) -> None:
        super().__init__(plan.name or "", budget)
        self.file = file
        self.plan = plan
        self.names = PortNames(file, plan)
        self.sizes = StoredSizes(file, plan)
        self.bindings = Bindings()
        self._input_numbers: dict[int, int] = {}
        for number, index in enumerate(plan.inputs):
            self._input_numbers.setdefault(index, number)
        self._planned: set[ValueId] = set()  # tensors of the plan, not of a delegate
        self._buffers: dict[Place, int] = {}  # the owner of each address that is a mutable buffer
        self._shared_memory = shared_memory(file.program)

    def read(self, index: int) -> Arg:
        """The graph value of an argument. Lists become tuples."""
        if index < 0:
            return None
        value = self.plan.values[index].val
        match value:
            case schema.Tensor():
                return self.read_tensor(index)
            case schema.IntList() | schema.TensorList() | schema.OptionalTensorList():
                return tuple(self.read(item) for item in value.items)
            case schema.DoubleList() | schema.BoolList():
                return tuple(value.items)
        if index in self.bindings.values:
            return self.bindings.values[index]
        match value:
            case schema.Int():
                return value.int_val
            case schema.Bool():
                return value.bool_val
            case schema.Double():
                return value.double_val
            case schema.String():
                return value.string_val
        return self._integer_input(index) if index in self._input_numbers else None

    def _integer_input(self, index: int) -> SymInt:
        """The exporter writes an integer input as Null. It is an integer because an instruction reads it."""
        number = self._input_numbers[index]
        symint = self.write_symint(index)
        self.graph.inputs[number] = Port(self.names.input(number), symint, "int", True)
        return symint

    def read_tensor(self, index: int) -> Tensor:
        known = self._bound_tensor(index)
        if known is not None and index in self.bindings.written:
            return known
        place = self._place(index)
        source = self._held_at(place) if place else None
        if source is None:
            return known or self._make_tensor(index)
        if source is self._bound_tensor(index):
            return source
        # The exporter omits views that need no work: a tensor that no instruction writes, at the address of
        # a written tensor or of a buffer.
        if known is None or self.bindings.views.get(index) is not source:
            known = self._make_tensor(index, as_view=True)
            self.bindings.views[index] = source
            self.node(VIEW, [source, known.max_shape, known], f"value {index}")
        return known

    def _held_at(self, place: Place) -> Tensor | None:
        """The tensor at an address: the last result written there, or a buffer."""
        owner = self._buffers.get(place)
        if owner is not None and place not in self.bindings.at:
            self.bindings.at[place] = self._bound_tensor(owner) or self._make_tensor(owner)
            if self._is_shared(place):
                self.graph.shared[self.bindings.at[place].id] = place
        return self.bindings.at.get(place)

    def _is_shared(self, place: Place | None) -> bool:
        """Whether the methods of the program share what is at an address."""
        return place is not None and place[0] == self._shared_memory

    def write_tensor(self, index: int) -> Tensor:
        """The tensor for a result. A tensor that was read before is a buffer, and is written in place."""
        if self._is_shared(self._place(index)):
            return self.read_tensor(index)
        bindings = self.bindings
        known = self._bound_tensor(index)
        if known is None or (index in bindings.written and known.constant is None):
            known = self._make_tensor(index)
            bindings.written.add(index)
        place = self._place(index)
        if place:
            bindings.at[place] = known
        return known

    def write_symint(self, index: int) -> SymInt:
        symint = self.symint(f"s{index}")
        self.bindings.values[index] = symint
        return symint

    def _bound_tensor(self, index: int) -> Tensor | None:
        known = self.bindings.values.get(index)
        if known is not None and not isinstance(known, Tensor):
            raise FormatError(f"value {index} is used as a tensor and as an integer")
        return known

    def _plan_tensor(self, index: int) -> schema.Tensor:
        source = self.plan.values[index].val
        if not isinstance(source, schema.Tensor):
            raise FormatError(f"value {index} is used as a tensor but is {type(source).__name__}")
        return source

    def _make_tensor(self, index: int, as_view: bool = False) -> Tensor:
        source = self._plan_tensor(index)
        host, dtype = host_type(source.scalar_type, f"value {index}")
        data = None if as_view else self.file.tensor_data(source)
        constant = None if data is None else Constant(data, host, source.dim_order)
        info = source.extra_tensor_info
        name = (info.fully_qualified_name if info else None) or f"v{index}"
        tensor = self.tensor(dtype, tuple(source.sizes), name, constant)
        self.bindings.values[index] = tensor
        self._planned.add(tensor.id)
        return tensor

    def _place(self, index: int) -> Place | None:
        source = self._plan_tensor(index)
        where = source.allocation_info
        if where is None or not source.nbytes:
            return None
        return where.memory_id, where.memory_offset, source.nbytes

    def _tensors_among(self, indices: Iterable[int]) -> Iterator[int]:
        for index in indices:
            value = self.plan.values[index].val if index >= 0 else None
            if isinstance(value, (schema.TensorList, schema.OptionalTensorList)):
                yield from self._tensors_among(value.items)
            elif isinstance(value, schema.Tensor):
                yield index

    def _is_tensor(self, index: int) -> bool:
        return isinstance(self.plan.values[index].val, schema.Tensor)


def host_type(code: int, what: str) -> tuple[str, DType]:
    known = HOST_TYPES.get(code)
    if known is None:
        name = ScalarType(code).name.lower() if code in set(ScalarType) else f"number {code}"
        raise UnsupportedError(f"{what} has the element type {name}, which the GPU does not support")
    return known
