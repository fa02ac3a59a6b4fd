"""From the tables of a file to one graph.

The instructions of a method are walked in order. A call of the Vulkan delegate is opened and its
operators are inlined; a kernel call outside of it becomes a node like any other. Names that no
operator is registered for are gathered, so that one error lists them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pteron.errors import FormatError, UnsupportedError
from pteron.graph import op as registry
from pteron.graph.dtypes import DELEGATE_TYPES, HOST_TYPES, DType
from pteron.graph.op import OpError
from pteron.graph.values import (
    Arg,
    Constant,
    Element,
    Graph,
    Node,
    Port,
    Shape,
    SymInt,
    Tensor,
    Value,
    ValueId,
    values_in,
)
from pteron.pte import schema, vulkan
from pteron.pte.file import ProgramFile

VULKAN_BACKEND = "VulkanBackend"
COPY = "pteron.copy"
CAST = "pteron.cast"
WRITE_BACK = "pteron.write_back"


@dataclass(frozen=True, slots=True)
class Missing:
    """An operator that no rule is registered for."""

    name: str
    origin: str


def lower(file: ProgramFile, method: str) -> Graph:
    """The graph of one method. Raises `UnsupportedError` that lists all that cannot be lowered."""
    lowering = Lowering(file, file.plan(method))
    graph = lowering.run()
    if lowering.missing:
        raise UnsupportedError(describe_missing(method, lowering.missing))
    check_order(graph)
    return graph


def describe_missing(method: str, missing: Sequence[Missing]) -> str:
    counts = Counter(item.name for item in missing)
    first = {item.name: item.origin for item in reversed(missing)}
    lines = [f"  {name}  ×{count}  (first at {first[name]})" for name, count in counts.items()]
    return f"method '{method}' uses {len(counts)} operators that Pteron does not have:\n" + "\n".join(lines)


def check_order(graph: Graph) -> None:
    """Program order must be a topological order: one sweep is only right if it is."""
    defined: set[ValueId] = graph.input_ids
    defined |= {t.id for t in graph.tensors() if t.constant is not None}
    defined |= {t.id for t in graph.states} | {e.symint.id for e in graph.elements}
    for node in graph.nodes:
        for value in node.reads:
            if value.id not in defined:
                raise FormatError(
                    f"{node.label} reads {value!r} before anything has written it: "
                    "the program's order is not a topological order"
                )
        defined.update(value.id for value in node.writes)
    for port in graph.outputs:
        if isinstance(port.value, (Tensor, SymInt)) and port.value.id not in defined:
            raise FormatError(f"output {port.name} ({port.value!r}) is never written")


class Lowering:
    """The state of lowering one method."""

    def __init__(self, file: ProgramFile, plan: schema.ExecutionPlan) -> None:
        self.file = file
        self.plan = plan
        self.graph = Graph(plan.name or "")
        self.missing: list[Missing] = []
        self._values: dict[int, Value] = {}  # by index into the plan's values
        self._delegates: dict[int, vulkan.VkDelegate] = {}

    def run(self) -> Graph:
        graph = self.graph
        graph.inputs = [self._port("input", n, index) for n, index in enumerate(self.plan.inputs)]
        for chain_index, chain in enumerate(self.plan.chains):
            for number, instruction in enumerate(chain.instructions):
                where = f"instruction {number}" if chain_index == 0 else f"chain {chain_index}, instruction {number}"
                self._instruction(instruction.instr_args, where)
        # The exporter writes an integer input as Null: only its use has told what it is.
        graph.inputs = [self._port("input", n, index) for n, index in enumerate(self.plan.inputs)]
        graph.outputs = [self._port("output", n, index) for n, index in enumerate(self.plan.outputs)]
        self._find_states()
        return graph

    # -- values ---------------------------------------------------------------------------------

    def tensor(self, dtype: DType, shape: Shape, name: str, constant: Constant | None = None) -> Tensor:
        tensor = Tensor(ValueId(len(self.graph.values)), dtype, shape, name, constant)
        self.graph.values.append(tensor)
        return tensor

    def symint(self, name: str) -> SymInt:
        symint = SymInt(ValueId(len(self.graph.values)), name)
        self.graph.values.append(symint)
        return symint

    def _plan_tensor(self, index: int) -> Tensor:
        known = self._values.get(index)
        if known is None:
            source = self.plan.values[index].val
            if not isinstance(source, schema.Tensor):
                raise FormatError(f"value {index} is used as a tensor but is {type(source).__name__}")
            host, dtype = host_type(source.scalar_type, f"value {index}")
            data = self.file.tensor_data(source)
            constant = None if data is None else Constant(data, host)
            info = source.extra_tensor_info
            name = (info.fully_qualified_name if info else None) or f"v{index}"
            known = self._values[index] = self.tensor(dtype, tuple(source.sizes), name, constant)
        if not isinstance(known, Tensor):
            raise FormatError(f"value {index} is used as a tensor and as an integer")
        return known

    def _plan_symint(self, index: int) -> SymInt:
        known = self._values.get(index)
        if known is None:
            known = self._values[index] = self.symint(f"s{index}")
        if not isinstance(known, SymInt):
            raise FormatError(f"value {index} is used as an integer and as a tensor")
        return known

    def _plan_arg(self, index: int) -> Arg:
        """An argument of a kernel call: a value of the plan, lists opened."""
        if index < 0:
            return None
        if index in self._values:
            return self._values[index]
        value = self.plan.values[index].val
        match value:
            case None | schema.Null():
                return None
            case schema.Int():
                return value.int_val
            case schema.Bool():
                return value.bool_val
            case schema.Double():
                return value.double_val
            case schema.String():
                return value.string_val
            case schema.Tensor():
                return self._plan_tensor(index)
            case schema.IntList() | schema.TensorList() | schema.OptionalTensorList():
                return tuple(self._plan_arg(item) for item in value.items)
            case _:
                return tuple(value.items)

    def _port(self, kind: str, number: int, index: int) -> Port:
        value = self.plan.values[index].val
        name = f"{kind}{number}"
        if isinstance(value, schema.Tensor):
            host, _ = host_type(value.scalar_type, name)
            resizable = value.shape_dynamism != schema.TensorShapeDynamism.STATIC
            return Port(name, self._plan_tensor(index), host, resizable)
        if index in self._values or (isinstance(value, schema.Int) and kind == "input"):
            return Port(name, self._plan_symint(index), "int", True)
        constant = self._plan_arg(index)
        return Port(name, constant, type(constant).__name__, False)  # type: ignore[arg-type]

    def _find_states(self) -> None:
        """Mutable state: constants that something writes, and planned tensors read before they are written."""
        written: set[ValueId] = set()
        early: dict[ValueId, Tensor] = {}
        for node in self.graph.nodes:
            for value in node.reads:
                if isinstance(value, Tensor) and value.id not in written:
                    early[value.id] = value
            written.update(v.id for v in node.writes)
            written.update(t.id for t in node.mutates)
        planned = {v.id for v in self._values.values()}
        inputs = self.graph.input_ids
        self.graph.states = [
            tensor
            for tensor in self.graph.tensors()
            if tensor.id in written
            and tensor.id not in inputs
            and (tensor.constant is not None or (tensor.id in early and tensor.id in planned))
        ]

    # -- nodes ----------------------------------------------------------------------------------

    def node(self, name: str, args: Iterable[Arg], origin: str) -> None:
        spec = registry.find(name)
        if spec is None:
            self.missing.append(Missing(name, origin))
            return
        index = len(self.graph.nodes)
        try:
            bound = spec.bind(args)
        except OpError as error:
            raise FormatError(f"{name} ({origin}): {error}") from None
        reads = tuple(value for arg in bound[:-1] for value in values_in(arg))
        writes = spec.outputs(bound)
        target = bound[-1]
        if isinstance(target, Tensor) and target in reads:
            # A buffer mutation writes what it reads, which no dispatch may: compute apart, then store.
            result = self.tensor(target.dtype, target.max_shape, f"{target.name}.new")
            self.node(name, [*bound[:-1], result], origin)
            self.node(WRITE_BACK, [result, target, None], origin)
            return
        self.graph.nodes.append(Node(index, name, spec, bound, reads, writes, spec.mutated(bound), origin))

    def _instruction(self, call: object, where: str) -> None:
        match call:
            case schema.DelegateCall():
                self._delegate_call(call, where)
            case schema.KernelCall():
                self._kernel_call(call, where)
            case schema.MoveCall():
                self._values[call.move_to] = self._move_source(call.move_from)
            case schema.FreeCall() | None:
                pass  # memory is planned for the whole method: there is nothing to free
            case _:
                self.missing.append(Missing(f"control flow ({type(call).__name__})", where))

    def _move_source(self, index: int) -> Value:
        value = self._plan_arg(index)
        if isinstance(value, (Tensor, SymInt)):
            return value
        raise UnsupportedError(f"a MoveCall of the plain value {value!r} is not supported")

    def _kernel_call(self, call: schema.KernelCall, where: str) -> None:
        operator = self.plan.operators[call.op_index]
        name = f"{operator.name}.{operator.overload}" if operator.overload else f"{operator.name}"
        if name == "aten::copy_":
            target, source, *_ = call.args
            self.node(WRITE_BACK, [self._plan_tensor(source), self._plan_tensor(target), None], where)
            return
        spec = registry.find(name)
        if spec is None:
            self.missing.append(Missing(name, where))
            return
        # An out-variant lists its output twice: as the `out` argument and as the returned value.
        ids = list(call.args)
        if len(ids) == len(spec.parameters) + 1 and ids[-1] == ids[-2]:
            ids.pop()
        if ids and isinstance(self.plan.values[ids[-1]].val, schema.Int):
            self._plan_symint(ids[-1])
        self.node(name, [self._plan_arg(index) for index in ids], where)

    # -- the delegate ---------------------------------------------------------------------------

    def _delegate_call(self, call: schema.DelegateCall, where: str) -> None:
        delegate = self.plan.delegates[call.delegate_index]
        if delegate.id != VULKAN_BACKEND:
            raise UnsupportedError(
                f"{where} calls the backend '{delegate.id}', which only its own runtime can run: "
                "export the program again with VulkanPartitioner, or with no partitioner at all"
            )
        opened = self._delegates.get(call.delegate_index)
        if opened is None:
            opened = vulkan.read_delegate(self.file.delegate_blob(delegate))
            self._delegates[call.delegate_index] = opened
        Inlining(self, opened, call, f"delegate {call.delegate_index}").run()


class Inlining:
    """One call of the Vulkan delegate, its operators becoming nodes of the method's graph."""

    def __init__(self, lowering: Lowering, delegate: vulkan.VkDelegate, call: schema.DelegateCall, name: str) -> None:
        self.lowering = lowering
        self.delegate = delegate
        self.graph = delegate.graph
        self.call = call
        self.name = name
        self._values: dict[int, Arg] = {}

    def run(self) -> None:
        inputs, outputs = self.graph.input_ids, self.graph.output_ids
        args = self.call.args
        if len(args) < len(inputs):
            raise FormatError(f"{self.name}: {len(inputs)} inputs, but the call has {len(args)} arguments")
        for value, arg in zip(inputs, args, strict=False):
            self._values[value] = self._input(value, arg)
        # A plain buffer mutation is exported with more outputs than the call has places for: the
        # surplus ones come first, and are the buffers' new contents.
        results = args[len(inputs) :]
        surplus = len(outputs) - len(results)
        if surplus < 0:
            raise FormatError(f"{self.name}: {len(outputs)} outputs, but the call has places for {len(results)}")
        later = self._bind_outputs(outputs[surplus:], results)
        for number, call in enumerate(self.graph.chain):
            self._operator(call, f"{self.name}, operator {number}")
        for source, target in later:
            self._node(COPY, [self._value(source), target], "result")
        for value in outputs[:surplus]:
            self._write_back(value)

    def _node(self, name: str, args: Iterable[Arg], what: str) -> None:
        self.lowering.node(name, args, f"{self.name}, {what}")

    def _input(self, value: int, arg: int) -> Arg:
        wanted = self.graph.values[value].value
        if isinstance(wanted, vulkan.SymInt):
            return self.lowering._plan_symint(arg)
        given = self.lowering._plan_tensor(arg)
        if isinstance(wanted, vulkan.VkTensor):
            _, dtype = delegate_type(wanted.datatype, self.name)
            if dtype != given.dtype:  # such as a float16 delegate between float32 values
                cast = self.lowering.tensor(dtype, given.max_shape, f"{given.name}.{dtype}")
                self._node(CAST, [given, cast], "input")
                return cast
        return given

    def _bind_outputs(self, outputs: Sequence[int], args: Sequence[int]) -> list[tuple[int, Value]]:
        """Let operators write the caller's values directly; return those that need a copy at the end."""
        later: list[tuple[int, Value]] = []
        for value, arg in zip(outputs, args, strict=True):
            wanted = self.graph.values[value].value
            target: Value
            if isinstance(wanted, vulkan.SymInt):
                target = self.lowering._plan_symint(arg)
                direct = True
            else:
                target = self.lowering._plan_tensor(arg)
                direct = (
                    isinstance(wanted, vulkan.VkTensor)
                    and delegate_type(wanted.datatype, self.name)[1] == target.dtype
                    and wanted.constant_id < 0
                    and value not in self._prepacked()
                )
            if direct and value not in self._values:
                self._values[value] = target
            else:
                later.append((value, target))
        return later

    def _prepacked(self) -> set[int]:
        return {call.args[-1] for call in self.graph.chain if call.name == "et_vk.prepack.default"}

    def _operator(self, call: vulkan.OperatorCall, origin: str) -> None:
        name = call.name or ""
        if name == "et_vk.prepack.default":
            self._prepack(*call.args)
        elif name == "et_vk.select_as_symint.default":
            self._select_as_symint(call.args, origin)
        else:
            self.lowering.node(name, [self._value(index) for index in call.args], origin)

    def _prepack(self, source: int, out: int) -> None:
        """A prepacked tensor is its constant: nothing runs. A name of its own lets each be mutated apart."""
        constant = self._value(source)
        if not isinstance(constant, Tensor) or constant.constant is None:
            raise FormatError(f"{self.name}: prepack of value {source}, which is not a constant")
        self._values[out] = self.lowering.tensor(
            constant.dtype, constant.max_shape, f"{self.name}.v{out}", constant.constant
        )

    def _select_as_symint(self, args: Sequence[int], origin: str) -> None:
        source, dim, index, out = (self._value(i) for i in args)
        if not (isinstance(source, Tensor) and isinstance(dim, int) and isinstance(index, int)):
            raise FormatError(f"select_as_symint ({origin}): cannot read an element of {source!r} at {dim}, {index}")
        if not isinstance(out, SymInt):
            raise FormatError(f"select_as_symint ({origin}): its result {out!r} is not a SymInt")
        self.lowering.graph.elements.append(Element(out, source, dim, index))

    def _value(self, index: int) -> Arg:
        if index < 0:
            return None
        if index not in self._values:
            self._values[index] = self._read_value(index)
        return self._values[index]

    def _read_value(self, index: int) -> Arg:
        value = self.graph.values[index].value
        match value:
            case None | vulkan.Null():
                return None
            case vulkan.Int():
                return value.int_val
            case vulkan.Double():
                return value.double_val
            case vulkan.Bool():
                return value.bool_val
            case vulkan.String():
                return value.string_val
            case vulkan.SymInt():
                return self.lowering.symint(f"{self.name}.s{index}")
            case vulkan.VkTensor():
                return self._tensor(index, value)
            case vulkan.ValueList():
                return tuple(self._value(item) for item in value.items)
            case _:
                return tuple(value.items)

    def _tensor(self, index: int, value: vulkan.VkTensor) -> Tensor:
        host, dtype = delegate_type(value.datatype, f"{self.name}, value {index}")
        constant = None
        if value.constant_id >= 0:
            data = self.delegate.constant(value.constant_id, self.lowering.file.named_data)
            constant = Constant(data, host)
        return self.lowering.tensor(dtype, tuple(value.dims), f"{self.name}.v{index}", constant)

    def _write_back(self, index: int) -> None:
        """Store a mutated buffer's new contents in the constant that it came from."""
        result = self._value(index)
        sources = [t for t in self._ancestors(result) if isinstance(result, Tensor) and _alike(t, result)]
        if len(sources) != 1 or not isinstance(result, Tensor):
            raise UnsupportedError(
                f"{self.name} mutates a buffer, and the file does not say which: export the program with "
                'VulkanPartitioner({"alias_buffer_mutations": True})'
            )
        self._node(WRITE_BACK, [result, sources[0], None], "buffer mutation")

    def _ancestors(self, value: Arg) -> list[Tensor]:
        """The constants that a value is computed from."""
        wanted = {v.id for v in values_in(value)}
        found: dict[ValueId, Tensor] = {}
        for node in reversed(self.lowering.graph.nodes):
            if any(v.id in wanted for v in node.writes):
                for read in node.reads:
                    wanted.add(read.id)
                    if isinstance(read, Tensor) and read.constant is not None:
                        found[read.id] = read
        return list(found.values())


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.max_shape == b.max_shape and a.dtype == b.dtype


def host_type(code: int, what: str) -> tuple[str, DType]:
    known = HOST_TYPES.get(code)
    if known is None:
        raise UnsupportedError(f"{what}: ExecuTorch's scalar type {code} has no counterpart on the GPU")
    return known


def delegate_type(code: int, what: str) -> tuple[str, DType]:
    known = DELEGATE_TYPES.get(code)
    if known is None:
        raise FormatError(f"{what}: unknown delegate data type {code}")
    return known
