"""The contents of a `.pte` file, including the graph inside the delegate. No GPU is needed.

    with open_file("model.pte") as file:
        method = inspect_method(file, "forward", {"input0": (1, 7, 64)})
        method.operators, method.inputs, method.memory, method.nodes

Facts from the file are given for every valid file. Facts from Pteron's plan (dynamic dimensions, memory,
kernels at a live shape) are given if the program can run. If it cannot, `problems` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from pteron.compiler.ir.dispatch import Bound, Grid, Number, Scratch
from pteron.compiler.ir.dtypes import HOST_TYPES, precision
from pteron.compiler.ir.live import Live, LiveTensor
from pteron.compiler.ir.problems import findings
from pteron.compiler.ir.sizes import FreeSize, Size, Sizes, size_texts
from pteron.compiler.ir.values import Graph, Port, Shape, SymInt, Tensor, ValueId
from pteron.compiler.lower.delegate import delegate_type
from pteron.compiler.lower.instructions import READERS, AnyDelegate
from pteron.compiler.lower.port_names import PortNames
from pteron.compiler.pipeline import AS_STORED, PORTABLE, GraphOptions, LoweredFile, Target, lower
from pteron.compiler.plan.dynamic import check_shape, find_sizes
from pteron.compiler.plan.memory import aligned, lifetimes, plan_memory
from pteron.compiler.plan.method_sizes import MethodSizes, method_sizes
from pteron.compiler.plan.node_plan import NodePlan
from pteron.compiler.plan.size_check import SizeCheck
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.segments.analysis import analyse
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.pte import schema, vulkan, xnnpack
from pteron.pte.file import ProgramFile

LARGEST_CONSTANTS = 3

# Several values may refer to the same bytes: identify a constant by the position of its bytes.
Place: TypeAlias = tuple[str, int | str]


@dataclass(frozen=True, slots=True)
class PortInfo:
    """An input or output. `values` is the valid range of its integers, if it is known."""

    name: str
    dtype: str
    max_shape: Shape
    dynamic_dims: tuple[int, ...] = ()
    value: object = None  # the value of a constant output
    values: tuple[int, int] | None = None
    sizes: tuple[str, ...] = ()  # each size as text: 64, n <= 128, 2*n + 1, or <=128 without a formula

    @property
    def note(self) -> str:
        """The precision of its values, if it is less than that of its dtype."""
        computed = precision(self.dtype)
        return "" if computed == self.dtype else f"computed in {computed}"


@dataclass(frozen=True, slots=True)
class OperatorCount:
    name: str
    count: int
    place: str  # "delegate" or "outside"
    supported: bool


@dataclass(frozen=True, slots=True)
class DelegateInfo:
    backend: str
    calls: int
    nbytes: int
    supported: bool


@dataclass(frozen=True, slots=True)
class ConstantInfo:
    name: str
    dtype: str
    shape: Shape
    nbytes: int


@dataclass(frozen=True, slots=True)
class Constants:
    count: int
    nbytes: int
    largest: tuple[ConstantInfo, ...]


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """GPU memory of a method in bytes, without constants. It is the same at every live shape."""

    activations: int
    buffers: int
    tensors: int  # the tensors that share these buffers
    unshared: int  # the bytes needed if each tensor had its own buffer
    state: int
    shared_state: int  # the part of the state that other methods use, too
    staging: int


@dataclass(frozen=True, slots=True)
class DispatchInfo:
    kernel: str
    grid: Grid
    params: Mapping[str, Number]
    bindings: dict[str, str]  # the live tensors and integers, by the kernel's binding names


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node at a live shape. A node without dispatches is free: its output has the bytes of its input."""

    index: int
    operator: str
    origin: str
    outputs: dict[str, Live]
    route: str
    dispatches: tuple[DispatchInfo, ...]


@dataclass(slots=True)
class MethodInfo:
    name: str
    inputs: tuple[PortInfo, ...]
    outputs: tuple[PortInfo, ...]
    delegates: tuple[DelegateInfo, ...]
    operators: tuple[OperatorCount, ...]
    constants: Constants
    guessed: bool = False  # the file does not say which sizes may vary, so `dynamic_dims` is a guess
    derived: str = ""  # how the formulas of the outputs are known
    memory: MemoryInfo | None = None
    batchable: bool = False  # one call can run several conversations: load the file with segments=
    mixing: str | None = None  # why it cannot: the first node that mixes the rows of a sequence
    problems: tuple[str, ...] = ()  # why Pteron cannot run it
    nodes: tuple[NodeInfo, ...] = field(default=())

    @property
    def runs(self) -> bool:
        return not self.problems

    @property
    def is_constant(self) -> bool:
        """Whether the method only returns constants. Exporters store a model's settings in such methods."""
        return not self.delegates and not self.operators and all(o.value is not None for o in self.outputs)


def open_file(source: Any, data_paths: Iterable[Any] = ()) -> ProgramFile:
    """Open a `.pte` file (a path, bytes, or a binary file) for inspection."""
    return ProgramFile.open(source, data_paths)


def inspect_method(
    file: ProgramFile, name: str, live: Mapping[str, Shape | int] | None = None, **how: Any
) -> MethodInfo:
    """Describe a method. See `inspect_methods`."""
    (info,) = inspect_methods(file, [name], live, **how)
    return info


def inspect_methods(
    file: ProgramFile,
    names: Iterable[str],
    live: Mapping[str, Shape | int] | None = None,
    *,
    size: int | None = None,
    options: GraphOptions = AS_STORED,
    target: Target = PORTABLE,
) -> list[MethodInfo]:
    """Describe methods of a file. With `live` or `size`, describe also every node at that live shape.

    live: shapes of inputs (and values of integers) by name. Other inputs have their largest shape.
    size: the size of every dynamic dimension of the inputs that `live` does not name.
    options, target: how the file would be loaded, and on what kind of device.
    """
    names = list(names)
    try:
        lowered = lower(file, names, options)
        models = [_model(lowered, name, target) for name in names]
    except (UnsupportedError, FormatError) as error:  # then no method can be loaded
        models = [(None, set(), (str(error),)) for _ in names]
    return [_inspected(file, name, *model, live, size) for name, model in zip(names, models, strict=True)]


def _inspected(
    file: ProgramFile,
    name: str,
    model: _Model | None,
    missing: set[str],
    problems: tuple[str, ...],
    live: Mapping[str, Shape | int] | None,
    size: int | None,
) -> MethodInfo:
    plan = file.plan(name)
    names = PortNames(file, plan)
    opened = _open_delegates(file, plan)
    info = MethodInfo(
        name,
        tuple(_plan_port(plan, names.input(n), index) for n, index in enumerate(plan.inputs)),
        tuple(_plan_port(plan, names.output(n), index) for n, index in enumerate(plan.outputs)),
        tuple(_delegates(file, plan)),
        tuple(_operators(plan, opened, missing)),
        _constants(plan, opened),
        problems=problems,
    )
    if model is not None:
        model.complete(info)
    if live is not None or size is not None:
        if model is None:
            raise UnsupportedError(
                f"method '{name}' has no live shapes, because it cannot run:\n" + "\n".join(problems)
            )
        info.nodes = model.nodes_at(live or {}, size)
    return info


def count_operators(file: ProgramFile, method: str) -> int:
    """The number of operator calls in a method, in its delegates and outside."""
    plan = file.plan(method)
    return sum(operator.count for operator in _operators(plan, _open_delegates(file, plan), set()))


def _model(
    lowered: LoweredFile, name: str, target: Target
) -> tuple[_Model | None, set[str], tuple[str, ...]]:
    """The method as it would be loaded, or None; the missing operators; all problems in words."""
    problems = lowered.problems[name]
    if problems:
        return None, {problem.what for problem in problems}, tuple(map(str, findings({name: problems})))
    try:
        return _Model(lowered.plan_method(name, target), lowered.unfused[name]), set(), ()
    except UnsupportedError as error:
        return None, set(), (str(error),)


def sample_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    """Ranges for random integers: the valid indices, and 0 for positions."""
    model = _Model(PORTABLE.plan(graph), graph)
    roots = {model.layout.storage[element.source.id] for element in graph.elements}
    ports = [port for port in graph.inputs if isinstance(port.value, Tensor)]
    return {port.name: (0, 0) for port in ports if _id(port.value) in roots} | model.ranges()


# -- facts from the file --------------------------------------------------------------------------


def _open_delegates(file: ProgramFile, plan: schema.ExecutionPlan) -> dict[int, AnyDelegate]:
    return {
        index: READERS[delegate.id](file.delegate_blob(delegate))
        for index, delegate in enumerate(plan.delegates)
        if delegate.id in READERS
    }


def _instructions(plan: schema.ExecutionPlan) -> Iterable[object]:
    return (instruction.instr_args for chain in plan.chains for instruction in chain.instructions)


def _plan_port(plan: schema.ExecutionPlan, name: str, index: int) -> PortInfo:
    value = plan.values[index].val
    match value:
        case schema.Tensor():
            return PortInfo(name, _host_name(value.scalar_type), tuple(value.sizes))
        case schema.Int():
            return PortInfo(name, "int", (), value=value.int_val)
        case schema.Double():
            return PortInfo(name, "float", (), value=value.double_val)
        case schema.Bool():
            return PortInfo(name, "bool", (), value=value.bool_val)
        case schema.String():
            return PortInfo(name, "str", (), value=value.string_val)
        case _:
            return PortInfo(name, type(value).__name__.lower(), ())


def _host_name(code: schema.ScalarType) -> str:
    return HOST_TYPES[code][0] if code in HOST_TYPES else code.name.lower()


def _delegates(file: ProgramFile, plan: schema.ExecutionPlan) -> Iterable[DelegateInfo]:
    calls = Counter(
        plan.delegates[call.delegate_index].id
        for call in _instructions(plan)
        if isinstance(call, schema.DelegateCall)
    )
    for backend, count in calls.items():
        nbytes = sum(len(file.delegate_blob(d)) for d in plan.delegates if d.id == backend)
        yield DelegateInfo(backend, count, nbytes, backend in READERS)


def _operators(
    plan: schema.ExecutionPlan, opened: Mapping[int, AnyDelegate], missing: set[str]
) -> Iterable[OperatorCount]:
    """All operators that a call of the method runs, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for call in _instructions(plan):
        match call:
            case schema.KernelCall(op_index=index):
                operator = plan.operators[index]
                dot = "." if operator.overload else ""
                counts[f"{operator.name}{dot}{operator.overload}", "outside"] += 1
            case schema.DelegateCall(delegate_index=index) if index in opened:
                counts.update((name, "delegate") for name in opened[index].operators)
    for (name, place), count in counts.most_common():
        yield OperatorCount(name, count, place, name not in missing)


def _constants(plan: schema.ExecutionPlan, opened: Mapping[int, AnyDelegate]) -> Constants:
    found = dict(_plan_constants(plan))
    for number, delegate in opened.items():
        if isinstance(delegate, vulkan.VkDelegate):
            found.update(_vulkan_constants(delegate.graph, number))
        else:
            found.update(_xnnpack_constants(delegate, number))
    largest = sorted(found.values(), key=lambda c: -c.nbytes)[:LARGEST_CONSTANTS]
    return Constants(len(found), sum(c.nbytes for c in found.values()), tuple(largest))


def _plan_constants(plan: schema.ExecutionPlan) -> Iterable[tuple[Place, ConstantInfo]]:
    for index, value in enumerate(plan.values):
        tensor = value.val
        if not isinstance(tensor, schema.Tensor) or tensor.allocation_info is not None:
            continue
        extra = tensor.extra_tensor_info or schema.ExtraTensorInfo()
        is_external = extra.location == schema.TensorDataLocation.EXTERNAL
        if is_external or tensor.data_buffer_idx:
            name = extra.fully_qualified_name or f"v{index}"
            place: Place = ("external", name) if is_external else ("segment", tensor.data_buffer_idx)
            dtype = _host_name(tensor.scalar_type)
            yield place, ConstantInfo(name, dtype, tuple(tensor.sizes), tensor.nbytes)


def _vulkan_constants(graph: vulkan.VkGraph, number: int) -> Iterable[tuple[Place, ConstantInfo]]:
    for index, value in enumerate(graph.values):
        tensor = value.value
        if not isinstance(tensor, vulkan.VkTensor) or tensor.constant_id < 0:
            continue
        stored = graph.constants[tensor.constant_id]
        key = stored.named_key
        place: Place = ("named", key) if key else (f"delegate {number}", tensor.constant_id)
        dtype, _ = delegate_type(tensor.datatype, f"delegate {number}, value {index}")
        yield place, ConstantInfo(f"delegate {number}.v{index}", dtype, tuple(tensor.dims), stored.length)


def _xnnpack_constants(delegate: xnnpack.XnnDelegate, number: int) -> Iterable[tuple[Place, ConstantInfo]]:
    for value in delegate.graph.values:
        tensor = value.tensor
        if tensor.constant_buffer_idx:
            nbytes, key = delegate.constant_size(tensor.constant_buffer_idx)
            place: Place = ("named", key) if key else (f"delegate {number}", tensor.constant_buffer_idx)
            name = f"delegate {number}.v{tensor.id_out}"
            yield place, ConstantInfo(name, tensor.datatype.name.lower(), tuple(tensor.dims), nbytes)


# -- facts from Pteron's plan ---------------------------------------------------------------------


class _Model:
    """A method as it would be loaded, without a GPU."""

    def __init__(self, live: LiveGraph, unfused: Graph) -> None:
        self.live = live
        self.graph, self.layout = live.graph, live.layout
        self.rows = analyse(unfused)
        self.sizes = find_sizes(live)

    @cached_property
    def formulas(self) -> MethodSizes:
        return method_sizes(self.live, self.sizes)

    def complete(self, info: MethodInfo) -> None:
        """Add the facts that come from the graph."""
        ranges = self.ranges()
        said: set[FreeSize] = set()  # the first input of a number shows its range
        info.inputs = tuple(
            self._port(port, size_texts(self._sizes(port), said), ranges) for port in self.graph.inputs
        )
        info.outputs = tuple(self._port(port, self._formulas(port), ranges) for port in self.graph.outputs)
        if any(port.dynamic_dims for port in info.inputs):
            info.guessed, info.derived = self.sizes.guessed, self.formulas.certainty
        info.memory = memory_of(self.live)
        info.batchable = self.rows.is_batchable and bool(self.graph.states)
        if not self.rows.is_batchable:
            info.mixing = str(self.rows.mixing)

    def ranges(self) -> dict[str, tuple[int, int]]:
        by_storage: dict[ValueId, tuple[int, int]] = {}
        for rule in self.live.content_rules:
            owner = self.layout.storage[rule.tensor.id]
            low, high = by_storage.get(owner, (rule.low, rule.high))
            by_storage[owner] = (max(low, rule.low), min(high, rule.high))
        ports = {port.value.id: port.name for port in self.graph.inputs if isinstance(port.value, Tensor)}
        return {name: by_storage[i] for i, name in ports.items() if i in by_storage}

    def _sizes(self, port: Port) -> Sizes:
        return self.sizes.inputs.get(port.value.id, ()) if isinstance(port.value, Tensor) else ()

    def _formulas(self, port: Port) -> tuple[str, ...]:
        if not isinstance(port.value, Tensor):
            return ()
        return self.formulas.texts(port.value, self.sizes.dims.get(port.value.id, ()))

    def _port(self, port: Port, sizes: tuple[str, ...], ranges: Mapping[str, tuple[int, int]]) -> PortInfo:
        if isinstance(port.value, (Tensor, SymInt)):
            dims = self.sizes.dims.get(port.value.id, ())
            return PortInfo(
                port.name,
                port.host_type,
                port.max_shape,
                dims,
                values=ranges.get(port.name),
                sizes=sizes,
            )
        return PortInfo(port.name, port.host_type, (), value=port.value)

    def nodes_at(self, live: Mapping[str, Shape | int], size: int | None) -> tuple[NodeInfo, ...]:
        self.live.sweep(self._changes(live, size))
        return tuple(self._node(index) for index in range(len(self.graph.nodes)))

    def _changes(self, live: Mapping[str, Shape | int], size: int | None) -> dict[ValueId, Live]:
        integers: dict[str, SymInt] = {element.symint.name: element.symint for element in self.graph.elements}
        integers |= {p.name: p.value for p in self.graph.inputs if isinstance(p.value, SymInt)}
        tensors = {p.name: p for p in self.graph.inputs if isinstance(p.value, Tensor)}
        changes: dict[ValueId, Live] = {symint.id: 0 for symint in integers.values()}
        for name, wanted in live.items():
            if name in integers:
                changes[integers[name].id] = _integer(name, wanted)
            elif name in tensors:
                shape = wanted if isinstance(wanted, tuple) else (wanted,)
                check_shape(tensors[name], shape)
                changes[_id(tensors[name].value)] = shape
            else:
                known = ", ".join([*tensors, *integers]) or "none"
                raise InputError(f"method '{self.graph.name}' has no input {name!r}; it has: {known}")
        if size is not None:
            self._check_size(size)
            for port in tensors.values():
                if port.name not in live:
                    sizes = self.sizes.inputs.get(_id(port.value), port.max_shape)
                    changes[_id(port.value)] = tuple(n.at(size) if isinstance(n, Size) else n for n in sizes)
        SizeCheck(self.graph).check(changes)
        return changes

    def _check_size(self, size: int) -> None:
        """Refuse one size for dynamic dimensions that have different maxima and vary independently."""
        sizes = [n for own in self.sizes.inputs.values() for n in own if isinstance(n, Size)]
        most = {n.values[-1] for n in sizes}
        if len(most) != 1 and len({n.of for n in sizes}) != 1:
            why = f"have the maxima {', '.join(map(str, sorted(most)))}" if most else "do not exist"
            raise InputError(
                f"one size sets all dynamic dimensions, but those of method '{self.graph.name}' {why}: "
                "give whole shapes, such as input0=1,7,64"
            )
        if not 1 <= size <= max(most):
            raise InputError(
                f"the size of all dynamic dimensions is {size}, expected a size from 1 to {max(most)}"
            )

    def _node(self, index: int) -> NodeInfo:
        node, plan = self.graph.nodes[index], self.live.plans[index]
        assert plan is not None
        dispatches = tuple(
            DispatchInfo(
                d.kernel, d.grid, d.params, {name: self._bound(b, plan) for name, b in d.bindings.items()}
            )
            for d in plan.dispatches
        )
        outputs = {value.name: self.live.current[value.id] for value in node.writes}
        return NodeInfo(index, node.name, node.origin, outputs, plan.route, dispatches)

    def _bound(self, bound: Bound, plan: NodePlan) -> str:
        if isinstance(bound, LiveTensor):
            tensor = plan.own.get(bound.tensor.id, bound.tensor)
            return f"{tensor.name}: {bound.dtype.label}{list(bound.shape)}"
        if isinstance(bound, Scratch):
            return f"scratch {bound.name}: {bound.max_nbytes} bytes"
        if bound.symint is None:
            return str(bound.constant)
        symint = plan.own.get(bound.symint.id, bound.symint)
        return f"{symint.name} = {self.live.current[symint.id]}"


def memory_of(live: LiveGraph) -> MemoryInfo:
    """What a load of this graph allocates."""
    graph, layout, scratch = live.graph, live.layout, live.scratch()
    outputs = [p.value for p in graph.outputs if isinstance(p.value, Tensor)]
    spans = lifetimes(graph, layout)
    plan = plan_memory(graph, layout, scratch)
    return MemoryInfo(
        activations=plan.nbytes,
        buffers=len(plan.buffers),
        tensors=len(spans) + len(scratch),
        unshared=sum(s.nbytes for s in spans) + sum(aligned(nbytes) for _, _, nbytes in scratch),
        state=sum(aligned(t.max_nbytes) for t in graph.states),
        shared_state=sum(aligned(t.max_nbytes) for t in graph.states if t.id in graph.shared),
        staging=sum(aligned(t.max_nbytes) for t in outputs),
    )


def _id(value: object) -> ValueId:
    assert isinstance(value, (Tensor, SymInt))
    return value.id


def _integer(name: str, wanted: Shape | int) -> int:
    if isinstance(wanted, int):
        return wanted
    if len(wanted) != 1:
        raise InputError(f"{name} is an integer, got the shape {wanted}")
    return wanted[0]
