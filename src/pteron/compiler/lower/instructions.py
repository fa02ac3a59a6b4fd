"""Make one graph from the tables of a file.

The instructions of a method are processed in order. Calls of Vulkan and XNNPACK delegates are inlined. Other
kernel calls become nodes, too. Operators that are not registered are collected: one error lists them all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.constants import permutation, permuted_constant
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.live import LiveResult
from pteron.compiler.ir.op import OpSpec
from pteron.compiler.ir.problems import Problem
from pteron.compiler.ir.values import (
    Arg,
    Constant,
    Element,
    Graph,
    Node,
    Place,
    Port,
    SymInt,
    Tensor,
    ValueId,
    numel,
)
from pteron.compiler.lower import control
from pteron.compiler.lower import kernel_calls as outside
from pteron.compiler.lower.budget import Budget, TooLarge
from pteron.compiler.lower.builder import CAST, WRITE_BACK
from pteron.compiler.lower.data_sizes import lower_data_sized, refuse_readers
from pteron.compiler.lower.delegate import Inlining, split_call
from pteron.compiler.lower.foreign_backends import refusal
from pteron.compiler.lower.narrowing import narrow_integers
from pteron.compiler.lower.plan_values import PlanValues, host_type
from pteron.compiler.lower.quantized_kernels import mixed_product, quantized_sum
from pteron.compiler.lower.source_lines import SourceLines
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import schema, vulkan
from pteron.pte.bytesource import ByteSource, Region
from pteron.pte.file import ProgramFile

if TYPE_CHECKING:
    from pteron.pte.xnnpack import XnnDelegate

PERMUTE = "aten.permute_copy.default"
AS_STRIDED = "aten.as_strided_copy.default"
SELECT = "aten.select_copy.int"
CASTS = (CAST, "aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
WIDE_INTEGERS = (DType.int32, DType.int64)
INTEGERS = (*WIDE_INTEGERS, DType.int8, DType.uint8)
RANDOM = {"aten::rand.out": "aten.rand.default", "aten::randn.out": "aten.randn.default"}


def _read_xnnpack(region: Region) -> XnnDelegate:
    from pteron.pte.xnnpack import read_delegate  # a tenth of all imports, which most files do not need

    return read_delegate(region)


AnyDelegate: TypeAlias = "vulkan.VkDelegate | XnnDelegate"
READERS: Mapping[str, Callable[[Region], AnyDelegate]] = {
    vulkan.BACKEND_ID: vulkan.read_delegate,
    "XnnpackBackend": _read_xnnpack,
}


def try_lower(file: ProgramFile, method: str, budget: Budget | None = None) -> tuple[Graph, list[Problem]]:
    """The graph of one method, and the problems found. The methods of a file share a budget."""
    lowering = Lowering(file, file.plan(method), budget)
    graph = lowering.graph
    try:
        lowering.run()
    except TooLarge as error:
        lowering.problem("size", "the method", str(error))
    if not lowering.problems:
        check_order(graph)
        lowering.problems += narrow_integers(graph)
    return graph, lowering.problems


def check_order(graph: Graph) -> None:
    """Check that program order is a topological order. One sweep is correct only if it is."""
    defined: set[ValueId] = graph.input_ids
    defined |= {t.id for t in graph.tensors() if t.constant is not None}
    defined |= {t.id for t in graph.states} | {e.symint.id for e in graph.elements}
    for node in graph.nodes:
        for value in node.reads:
            if value.id not in defined:
                raise FormatError(
                    f"{node.label} reads {value!r} before any node has written it: "
                    "the program's order is not a topological order"
                )
        defined.update(value.id for value in node.writes)
    for port in graph.outputs:
        if isinstance(port.value, (Tensor, SymInt)) and port.value.id not in defined:
            raise FormatError(f"output {port.name} ({port.value!r}) is never written")


class Lowering(PlanValues):
    """The state while one method is lowered."""

    def __init__(self, file: ProgramFile, plan: schema.ExecutionPlan, budget: Budget | None = None) -> None:
        super().__init__(file, plan, budget)
        self.loop_counts: list[SymInt | int] = []  # of the loops being unrolled, innermost last
        self._sizes: dict[ValueId, int] = {}  # the largest value of each SymInt that is a size
        self._followed: set[int] = set()  # nodes between an input and its element that the host knows
        self._delegates: dict[int, AnyDelegate | None] = {}
        self._instructions: Sequence[schema.Instruction] = ()
        self._lines = SourceLines(schema.Chain())

    def run(self) -> None:
        graph = self.graph
        graph.inputs = [self._input(n, index) for n, index in enumerate(self.plan.inputs)]
        for chain in self.plan.chains:
            self._instructions = chain.instructions
            self._lines = SourceLines(chain)
            self._find_buffers()
            try:
                self.run_blocks(control.parse(chain.instructions, self.plan.values))
            except TooLarge:
                raise
            except UnsupportedError as error:
                self.problem("control flow", "the method", str(error))
        graph.outputs = [self._output(n, index) for n, index in enumerate(self.plan.outputs)]
        self._drop_followed()
        self._find_states()
        refuse_readers(self)

    # -- inputs, outputs, state -----------------------------------------------------------------

    def _input(self, number: int, index: int) -> Port:
        value = self.plan.values[index].val
        name = self.names.input(number)
        if isinstance(value, schema.Tensor):
            host, _ = host_type(value.scalar_type, name)
            resizable = value.shape_dynamism != schema.TensorShapeDynamism.STATIC
            sizes = self.sizes.input(number, tuple(value.sizes))
            return Port(name, self.write_tensor(index), host, resizable, sizes)
        if value is None or isinstance(value, schema.Null):
            text = self.names.text(number)
            return Port(name, text, "None" if text is None else "str", False)
        return self._fixed_port(name, index)  # the exporter has put the value into the program

    def _output(self, number: int, index: int) -> Port:
        name = self.names.output(number)
        value = self.read(index)
        if isinstance(value, Tensor):
            host, _ = host_type(self._plan_tensor(index).scalar_type, name)
            return Port(name, value, host, True)
        if isinstance(value, SymInt):
            return Port(name, value, "int", True)
        return self._fixed_port(name, index)

    def _fixed_port(self, name: str, index: int) -> Port:
        constant = self.read(index)
        return Port(name, constant, type(constant).__name__, False)  # type: ignore[arg-type]

    def _find_buffers(self) -> None:
        """A mutable buffer is a place that is read before the program writes it, or that methods share."""
        written = {self._place(index) for index in self.plan.inputs if self._is_tensor(index)}
        owners: dict[Place, int] = {}
        for instruction in self._instructions:
            reads, writes = self._accesses(instruction.instr_args)
            self._find_shared((*reads, *writes))
            for index in reads:
                place = self._place(index)
                if place and place not in written:
                    owners.setdefault(place, index)
            for index in writes:
                place = self._place(index)
                written.add(place)
                if place in owners:
                    self._buffers.setdefault(place, index)
        self._find_shared(filter(self._is_tensor, self.plan.outputs))  # a method may only return a buffer

    def _find_shared(self, indices: Iterable[int]) -> None:
        for index in indices:
            place = self._place(index)
            if place and self._is_shared(place):
                self._buffers.setdefault(place, index)

    def _accesses(self, call: object) -> tuple[list[int], list[int]]:
        """The tensors that an instruction reads, and those that it writes, as value indices."""
        match call:
            case schema.KernelCall() if call.args:
                kernel = self._kernel(call)
                reads, writes = (
                    (call.args[1:2], call.args[:1])
                    if kernel == "aten::copy_"
                    else self._split(kernel, call.args)
                )
            case schema.DelegateCall():
                reads, writes = self._accesses_of_delegate(call)
            case schema.MoveCall():
                reads, writes = [call.move_from], [call.move_to]
            case _:
                reads, writes = [], []
        return list(self._tensors_among(reads)), list(self._tensors_among(writes))

    def _accesses_of_delegate(self, call: schema.DelegateCall) -> tuple[Sequence[int], Sequence[int]]:
        opened = self._open(call.delegate_index)
        if isinstance(opened, vulkan.VkDelegate):
            pairs, writes = split_call(opened.graph, call.args, self.plan)
            return [arg for _, arg in pairs], writes
        return opened.accesses(call.args) if opened is not None else ([], [])

    def _find_states(self) -> None:
        """Mutable state: shared buffers, constants that are written, planned tensors read before a write."""
        written: set[ValueId] = set()
        early: set[ValueId] = set()
        for node in self.graph.nodes:
            early.update(value.id for value in node.reads if value.id not in written)
            written.update(v.id for v in node.writes)
            written.update(t.id for t in node.mutates)
        inputs = self.graph.input_ids
        self.graph.states = [
            tensor
            for tensor in self.graph.tensors()
            if tensor.id in self.graph.shared
            or (
                tensor.id in written
                and tensor.id not in inputs
                and (tensor.constant is not None or (tensor.id in early and tensor.id in self._planned))
            )
        ]

    def _drop_followed(self) -> None:
        """Leave out nodes that only gave the host an element of an input."""
        needed = {tensor.id for tensor in self.graph.results}
        kept: list[Node] = []
        for node in reversed(self.graph.nodes):
            if node.index not in self._followed or any(value.id in needed for value in node.writes):
                needed.update(value.id for value in node.reads)
                kept.append(node)
        self.graph.nodes = [replace(node, index=n) for n, node in enumerate(reversed(kept))]

    # -- instructions ---------------------------------------------------------------------------

    def run_blocks(self, blocks: Iterable[control.Block]) -> None:
        for block in blocks:
            self.budget.add_steps()
            try:
                match block:
                    case control.PlainInstruction():
                        self._instruction(self._instructions[block.number].instr_args, block.number)
                    case control.Branch():
                        control.lower_branch(self, block)
                    case control.Loop():
                        control.lower_loop(self, block)
            except TooLarge:
                raise
            except UnsupportedError as error:
                self.problem(self._describe(block), f"instruction {block.number}", str(error))

    def _describe(self, block: control.Block) -> str:
        if isinstance(block, control.PlainInstruction):
            call = self._instructions[block.number].instr_args
            return self._kernel(call) if isinstance(call, schema.KernelCall) else type(call).__name__
        return type(block).__name__.lower()

    def _instruction(self, call: object, number: int) -> None:
        match call:
            case schema.DelegateCall():
                self._delegate_call(call, number)
            case schema.KernelCall():
                self._kernel_call(call, f"instruction {number}{self._lines.of(number)}")
            case schema.MoveCall():
                self.bindings.values[call.move_to] = self.read(call.move_from)
                self.bindings.written.add(call.move_to)
            case schema.FreeCall():
                pass  # memory is planned for the whole method, so nothing is freed

    def _delegate_call(self, call: schema.DelegateCall, number: int) -> None:
        opened, name = self._open(call.delegate_index), f"delegate {call.delegate_index}"
        if isinstance(opened, vulkan.VkDelegate):
            lines = self._lines.in_delegate(number, len(opened.graph.chain))
            Inlining(self, opened, call, name, lines).run()
        elif opened is not None:
            from pteron.compiler.lower.xnnpack_quantized import QuantizedInlining

            QuantizedInlining(self, opened, call, name).run()
        else:
            backend = self.plan.delegates[call.delegate_index].id
            shapes = [str(list(self._plan_tensor(index).sizes)) for index in self._tensors_among(call.args)]
            place = f"{name} at instruction {number}, with the tensors {', '.join(shapes)}"
            self.problem(f"delegate for {backend}", place, refusal(backend))

    def _open(self, index: int) -> AnyDelegate | None:
        """The delegate with this number, or None if only its own backend can read it."""
        if index not in self._delegates:
            delegate = self.plan.delegates[index]
            read = READERS.get(delegate.id)
            self._delegates[index] = None if read is None else read(self.file.delegate_blob(delegate))
        return self._delegates[index]

    def memory_order(self, index: int) -> tuple[int, ...]:
        """The dimensions of a tensor of the plan in the order of the caller's memory."""
        tensor = self._plan_tensor(index)
        return tuple(tensor.dim_order) or tuple(range(len(tensor.sizes)))

    # -- kernels --------------------------------------------------------------------------------

    def _kernel(self, call: schema.KernelCall) -> str:
        operator = self.plan.operators[call.op_index]
        return f"{operator.name}.{operator.overload}" if operator.overload else operator.name

    def _kernel_call(self, call: schema.KernelCall, where: str) -> None:
        kernel = self._kernel(call)
        if kernel in outside.NO_OPERATION:
            return
        special, least = _SPECIAL.get(kernel, (None, 1))
        if len(call.args) < least:
            raise FormatError(f"{kernel} ({where}) needs {least} arguments, the file has {len(call.args)}")
        if kernel in RANDOM:
            self._random(RANDOM[kernel], call.args, where)
            return
        if special is not None:
            special(self, call.args, where)
            return
        if lower_data_sized(self, kernel, call.args, where):
            return
        inputs, outputs = self._split(kernel, call.args)
        if not outputs:
            raise FormatError(f"{kernel} ({where}) writes to an empty list")
        args = [self.read(index) for index in inputs]
        spec = outside.find(kernel)
        if spec is not None and not self._is_tensor(outputs[0]):
            self._integer_call(spec, args, outputs[0], where)
            return
        place = self.read_tensor if outside.is_in_place(kernel) else self.write_tensor
        out = tuple(place(index) for index in self._tensors_among(outputs))
        if spec is None:
            self.problem(kernel, where)
            return
        if not out:
            raise FormatError(f"{kernel} ({where}) has no tensor to write to")
        args = outside.with_options(spec, args, out[0])
        self.node(spec.name, [*args, out if spec.parameters[-1] == "outs" else out[0]], where)

    def _split(self, kernel: str, ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """The arguments that a kernel reads, and the values that it writes."""
        if outside.is_in_place(kernel):
            return ids[:-1], ids[:1]
        # The outputs appear twice: as arguments (one by one, or as a list), and as return values.
        returned = self.plan.values[ids[-1]].val
        outputs = returned.items if isinstance(returned, schema.TensorList) else tuple(ids[-1:])
        before = tuple(ids[:-1])
        if outputs and self._is_tensor(outputs[0]):
            if before[-len(outputs) :] == outputs:
                return before[: -len(outputs)], outputs
            if before and self.plan.values[before[-1]].val == schema.TensorList(outputs):
                return before[:-1], outputs
        return before, outputs

    def _integer_call(self, spec: OpSpec, args: Sequence[Arg], out: int, where: str) -> None:
        """Integer arithmetic: done now if all integers are known, else in the sweep of each call."""
        symint = self.write_symint(out)
        if any(isinstance(arg, (Tensor, SymInt)) for arg in args):
            self.node(spec.name, [*args, symint], where)
            return
        result = LiveResult()
        try:
            spec.evaluate([*spec.bind([*args, symint])[:-1], result])
        except OpError as error:
            raise FormatError(f"{spec.name} ({where}): {error}") from None
        self.bindings.values[out] = result.value

    def _permute(self, ids: Sequence[int], where: str) -> None:
        """Weights that the program permutes are permuted once, at upload."""
        source, dims, out = self.read_tensor(ids[0]), self.read(ids[1]), ids[-1]
        is_buffer = self._plan_tensor(ids[0]).allocation_info is not None
        order = permutation(source, dims)
        if source.constant is None or is_buffer or not order:
            self.node(PERMUTE, [source, dims, self.write_tensor(out)], where)
            return
        self.bindings.values[out] = permuted_constant(self.graph, source, order)
        self.bindings.written.add(out)
        place = self._place(out)
        if place:
            self.bindings.at[place] = self.read_tensor(out)

    def _as_strided(self, ids: Sequence[int], where: str) -> None:
        """Strides count elements in memory order, which may be channels-last."""
        source = self.read_tensor(ids[0])
        order = self._plan_tensor(ids[0]).dim_order
        if order and tuple(order) != tuple(range(len(order))):
            shape = tuple(source.max_shape[d] for d in order)
            in_memory = self.tensor(source.dtype, shape, f"{source.name}.in_memory")
            self.node(PERMUTE, [source, tuple(order), in_memory], where)
            source = in_memory
        size, stride, offset = (self.read(index) for index in ids[1:4])
        self.node(AS_STRIDED, [source, size, stride, offset, self.write_tensor(ids[-1])], where)

    def _random(self, name: str, ids: Sequence[int], where: str) -> None:
        """Random numbers need a counter as state, and the number of the node that draws them."""
        drawn = sum(node.name in RANDOM.values() for node in self.graph.nodes)
        start = Constant(ByteSource(struct.pack("<2i", 0, drawn)).region(), "int32")
        counter = self.tensor(DType.int32, (2,), f"random{drawn}", start)
        self.node(name, [self.read(ids[0]), counter, self.write_tensor(ids[-1])], where)

    def _sym_size(self, ids: Sequence[int], where: str) -> None:
        source, out = ids[0], ids[-1]
        tensor, axis = self.read_tensor(source), self.read(ids[1])
        rank = len(tensor.max_shape)
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise FormatError(f"sym_size ({where}): {tensor!r} has no dimension {axis!r}")
        if self._plan_tensor(source).shape_dynamism == schema.TensorShapeDynamism.STATIC:
            self.bindings.values[out] = tensor.max_shape[axis]
            return
        symint = self.write_symint(out)
        self._sizes[symint.id] = tensor.max_shape[axis]
        self.node("sym_size.int", [tensor, axis, symint], where)

    def _copy(self, ids: Sequence[int], where: str) -> None:
        """`target.copy_(source)`, with broadcast and dtype conversion."""
        target_index, source_index = ids[:2]
        source = self.read_tensor(source_index)
        fresh = target_index not in self.bindings.values and self._place(target_index) not in self._buffers
        target = self.write_tensor(target_index) if fresh else self.read_tensor(target_index)
        if source.max_shape != target.max_shape:
            wide = self.tensor(source.dtype, target.max_shape, f"{source.name}.expanded")
            self.node("aten.expand_copy.default", [source, target.max_shape, False, wide], where)
            source = wide
        if fresh and target.constant is None:
            self.node(CAST, [source, target], where)
            return
        if source.dtype != target.dtype:
            cast = self.tensor(target.dtype, source.max_shape, f"{source.name}.{target.dtype}")
            self.node(CAST, [source, cast], where)
            source = cast
        self.node(WRITE_BACK, [source, target, None], where)

    def _copy_index(self, ids: Sequence[int], where: str) -> None:
        """`target[index] = source` in a loop. The first iteration decides the size of the target."""
        target_index, source_index, counter = ids[:3]
        source, index = self.read_tensor(source_index), self.read(counter)
        if index == 0 and self.loop_counts:
            self.node(
                "pteron.first_row", [source, self.loop_counts[-1], self.write_tensor(target_index)], where
            )
        else:
            self.node("pteron.write_row", [source, self.read_tensor(target_index), index, None], where)

    def _item(self, ids: Sequence[int], where: str) -> None:
        """`tensor.item()`: the host can know the number only if it is an element of an input."""
        source, out = self.read_tensor(ids[0]), ids[-1]
        element = self._element(source)
        if element is None:
            self.write_symint(out)
            raise UnsupportedError(
                f"the host needs the value of {source.name} to continue, but the GPU computes it: "
                "only an element of an input is known before the program runs"
            )
        self.bindings.values[out] = element

    # -- for control flow -----------------------------------------------------------------------

    def condition(self, index: int) -> Arg:
        """The condition of a jump: a value that the host knows now or in each call, or else a tensor."""
        value = self.read(index)
        return (self._element(value) or value) if isinstance(value, Tensor) else value

    def loop_size(self, loop: control.Loop) -> SymInt | int:
        """The number of iterations: the instruction before the jump back compares the counter with it."""
        call = self._instructions[loop.number - 1].instr_args
        if isinstance(call, schema.KernelCall) and self._kernel(call) == "executorch_prim::eq.Scalar":
            size = self.read(call.args[1]) if len(call.args) >= 3 else None
            if isinstance(size, (SymInt, int)) and call.args[2] == loop.condition:
                return size
        raise UnsupportedError(f"the loop that ends at instruction {loop.number} does not count iterations")

    def largest(self, size: SymInt | int) -> int | None:
        return size if isinstance(size, int) else self._sizes.get(size.id)

    def _element(self, tensor: Tensor) -> SymInt | None:
        """The first element of a tensor as a SymInt, if it is an element of an input."""
        inputs = self.graph.input_ids
        self.budget.add_steps(len(inputs) // 16)
        index, followed = 0, list[int]()
        while tensor.id not in inputs:
            self.budget.add_steps()
            node = self.producers.get(tensor.id)
            source = node.args[0] if node else None
            if node is None or not isinstance(source, Tensor):
                return None
            found = _index_in_source(node, source, tensor, index)
            if found is None:
                return None
            tensor, index = source, found
            followed.append(node.index)
        self._followed.update(followed)
        symint = self.symint(f"{tensor.name}[{index}]")
        self.graph.elements.append(Element(symint, tensor, 0 if len(tensor.max_shape) == 1 else -1, index))
        return symint


def _index_in_source(node: Node, source: Tensor, tensor: Tensor, index: int) -> int | None:
    """Row-major index in the source of an element of a node's result; None if that is not fixed.

    A negative index counts from the end. It is the same at all live shapes.
    """
    if node.name == SELECT:
        dim, at = node.args[1:3]
        if not isinstance(dim, int) or not isinstance(at, int):
            return None
        before, after = numel(source.max_shape[:dim]), numel(source.max_shape[dim:][1:])
        if index == 0 and (at == 0 or (after == 1 and (at > 0 or before == 1))):
            return at
        return index if at == 0 and before == 1 and index >= 0 else None
    is_cast = node.name in CASTS and tensor.dtype in WIDE_INTEGERS and source.dtype in INTEGERS
    is_view = node.op.alias is not None and source.dtype == tensor.dtype
    return index if is_cast or is_view else None


# Kernels that are not the out-variant of one operator, and the minimum number of their arguments.
_SPECIAL: dict[str, tuple[Callable[[Lowering, Sequence[int], str], None], int]] = {
    "aten::copy_": (Lowering._copy, 2),
    "aten::as_strided_copy.out": (Lowering._as_strided, 5),
    "aten::permute_copy.out": (Lowering._permute, 3),
    "aten::sym_size.int": (Lowering._sym_size, 3),
    "aten::_local_scalar_dense": (Lowering._item, 2),
    "quantized_decomposed::add.out": (quantized_sum, 15),
    "quantized_decomposed::mixed_mm.out": (mixed_product, 5),
    "executorch_prim::et_copy_index.tensor": (Lowering._copy_index, 3),
}


def runs(kernel: str) -> bool:
    """Whether a program may call this kernel."""
    return kernel in _SPECIAL or kernel in outside.NO_OPERATION or outside.find(kernel) is not None
