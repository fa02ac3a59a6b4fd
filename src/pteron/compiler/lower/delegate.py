"""Inline a call of the Vulkan delegate: its operators become nodes of the method's graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pteron.compiler import ops
from pteron.compiler.ir.dtypes import DELEGATE_TYPES, DType
from pteron.compiler.ir.values import Arg, Constant, Element, SymInt, Tensor, Value, ValueId, numel, values_in
from pteron.compiler.lower.builder import CAST, WRITE_BACK
from pteron.compiler.lower.kernel_calls import is_internal
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import schema, vulkan

if TYPE_CHECKING:
    from pteron.compiler.lower.instructions import Lowering


PREPACK = "et_vk.prepack.default"
SELECT_AS_SYMINT = "et_vk.select_as_symint.default"


class Inlining:
    """Inlines one call of the Vulkan delegate."""

    def __init__(
        self,
        lowering: Lowering,
        delegate: vulkan.VkDelegate,
        call: schema.DelegateCall,
        name: str,
        lines: Sequence[str],
    ) -> None:
        """lines: for each operator, the line that it comes from, as a part of its origin."""
        self.lowering = lowering
        self.delegate = delegate
        self.graph = delegate.graph
        self.call = call
        self.name = name
        self._lines = lines
        self._values: dict[int, Arg] = {}
        self._long: set[int] = set()  # tensors that are int64 in the model
        self._prepacked = {call.args[-1] for call in self.graph.chain if call.name == PREPACK and call.args}

    def run(self) -> None:
        inputs, results = split_call(self.graph, self.call.args, self.lowering.plan)
        outputs = self.graph.output_ids
        for value, arg in inputs:
            self._values[value] = self._input(value, arg)
        # A plain buffer mutation is exported as an additional output that the call does not have. These
        # outputs come first. They are the new contents of the buffers.
        surplus = len(outputs) - len(results)
        if surplus < 0:
            raise FormatError(f"{self.name}: {len(outputs)} outputs, but the call takes {len(results)}")
        later = self._bind_outputs(outputs[surplus:], results)
        for number, call in enumerate(self.graph.chain):
            self._operator(call, f"{self.name}, operator {number}{self._lines[number]}")
        for source, target in later:
            self._node(CAST, [self._value(source), target], "result")
        for value in outputs[:surplus]:
            self._write_back(value)

    def _node(self, name: str, args: Iterable[Arg], what: str) -> None:
        self.lowering.node(name, args, f"{self.name}, {what}")

    def _input(self, value: int, arg: int) -> Arg:
        wanted = self.graph.values[value].value
        if isinstance(wanted, vulkan.SymInt):
            return self.lowering.read(arg)
        given = self.lowering.read_tensor(arg)
        if isinstance(wanted, vulkan.VkTensor):
            _, dtype = delegate_type(wanted.datatype, self.name)
            if not _are_same(dtype, given.dtype):  # for example, a float16 delegate between float32 values
                cast = self.lowering.tensor(dtype, given.max_shape, f"{given.name}.{dtype}")
                self._node(CAST, [given, cast], "input")
                return cast
        return given

    def _bind_outputs(self, outputs: Sequence[int], args: Sequence[int]) -> list[tuple[int, Value]]:
        """Make operators write the caller's values directly; return those that need a copy at the end."""
        later: list[tuple[int, Value]] = []
        for value, arg in zip(outputs, args, strict=True):
            wanted = self.graph.values[value].value
            target: Value
            if isinstance(wanted, vulkan.SymInt):
                target = self.lowering.write_symint(arg)
                direct = True
            else:
                target = self.lowering.write_tensor(arg)
                direct = (
                    isinstance(wanted, vulkan.VkTensor)
                    and _are_same(delegate_type(wanted.datatype, self.name)[1], target.dtype)
                    and wanted.constant_id < 0
                    and value not in self._prepacked
                )
            if direct and value not in self._values:
                self._values[value] = target
            else:
                later.append((value, target))
        return later

    def _operator(self, call: vulkan.OperatorCall, origin: str) -> None:
        name = call.name or ""
        if name == PREPACK:
            self._prepack(*_exactly(2, call.args, name, origin))
        elif name == SELECT_AS_SYMINT:
            self._select_as_symint(_exactly(4, call.args, name, origin), origin)
        elif is_internal(name):
            self.lowering.problem(name, origin)
        else:
            args: list[Arg] = [self._value(index) for index in call.args[:-1]]
            self._find_long(name, args, call.args[-1:])
            self.lowering.node(name, [*args, *(self._value(index) for index in call.args[-1:])], origin)

    def _find_long(self, name: str, args: Sequence[Arg], outs: Sequence[int]) -> None:
        """Find the results that are int64 in the model.

        The partitioner writes int64 as int32. A result of int32 tensors is int32; any other is int64.
        """
        spec = ops.find(name)
        names, indices = (spec.parameters, spec.integers.indices) if spec is not None else ((), ())
        given = {
            value.dtype
            for parameter, arg in zip(names, args, strict=False)
            for value in values_in(arg)
            if isinstance(value, Tensor) and value.constant is None and parameter not in indices
        }
        if DType.int32 not in given or DType.int64 in given:
            self._long.update(self._items(outs))

    def _items(self, indices: Iterable[int]) -> Iterator[int]:
        for index in indices:
            value = self.graph.values[index].value if index >= 0 else None
            if isinstance(value, vulkan.ValueList):
                yield from self._items(value.items)
            else:
                yield index

    def _prepack(self, source: int, out: int) -> None:
        """A prepacked tensor has its constant's bytes, and nothing runs. It may be mutated on its own."""
        constant = self._value(source)
        if not isinstance(constant, Tensor) or constant.constant is None:
            raise FormatError(f"{self.name}: prepack of value {source}, which is not a constant")
        self._values[out] = self.lowering.tensor(
            constant.dtype, constant.max_shape, f"{self.name}.v{out}", constant.constant
        )

    def _select_as_symint(self, args: Sequence[int], origin: str) -> None:
        source, dim, index, out = (self._value(i) for i in args)
        if not (isinstance(source, Tensor) and isinstance(dim, int) and isinstance(index, int)):
            raise FormatError(
                f"select_as_symint ({origin}): cannot read an element of {source!r} at {dim}, {index}"
            )
        if not isinstance(out, SymInt):
            raise FormatError(f"select_as_symint ({origin}): its result {out!r} is not a SymInt")
        rank = len(source.max_shape)
        if not -rank <= dim < rank:
            raise FormatError(f"select_as_symint ({origin}): {source!r} has no dimension {dim}")
        self.lowering.graph.elements.append(Element(out, source, dim % rank, index))

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
        if dtype is DType.int32 and (constant is not None or index in self._long):
            dtype = DType.int64
        return self.lowering.tensor(dtype, tuple(value.dims), f"{self.name}.v{index}", constant)

    def _write_back(self, index: int) -> None:
        """Copy a mutated buffer's new contents to its constant."""
        result = self._value(index)
        sources = [t for t in self._ancestors(result) if isinstance(result, Tensor) and _alike(t, result)]
        if len(sources) != 1 or not isinstance(result, Tensor):
            raise UnsupportedError(
                f"{self.name} mutates a buffer, but the file does not say which one: export the program with "
                'VulkanPartitioner({"alias_buffer_mutations": True})'
            )
        self._node(WRITE_BACK, [result, sources[0], None], "buffer mutation")

    def _ancestors(self, value: Arg) -> list[Tensor]:
        """The constants that a value is computed from."""
        wanted = {v.id for v in values_in(value)}
        found: dict[ValueId, Tensor] = {}
        self.lowering.budget.add_steps(len(self.lowering.graph.nodes) // 16)
        for node in reversed(self.lowering.graph.nodes):
            if any(v.id in wanted for v in node.writes):
                for read in node.reads:
                    wanted.add(read.id)
                    if isinstance(read, Tensor) and read.constant is not None:
                        found[read.id] = read
        return list(found.values())


def _exactly(count: int, args: Sequence[int], name: str, origin: str) -> Sequence[int]:
    if len(args) != count:
        raise FormatError(f"{name} ({origin}) takes {count} arguments, the file has {len(args)}")
    return args


def _are_same(dtype: DType, given: DType) -> bool:
    """Whether a type of the delegate is the given type. The partitioner writes int64 as int32."""
    return dtype == given or (dtype is DType.int32 and given is DType.int64)


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.max_shape == b.max_shape and a.dtype == b.dtype


def split_call(
    graph: vulkan.VkGraph, args: Sequence[int], plan: schema.ExecutionPlan
) -> tuple[list[tuple[int, int]], Sequence[int]]:
    """Match a call's arguments: (delegate value, plan value) per input, and the values for its outputs.

    The exporter may pass integers and tensors that the delegate does not use. They are skipped.
    """
    inputs = graph.input_ids
    unused = max(0, len(args) - len(inputs) - len(graph.output_ids))

    def fits(value: int, arg: int) -> bool:
        wanted, given = graph.values[value].value, plan.values[arg].val
        if not isinstance(wanted, vulkan.VkTensor):
            return True
        return isinstance(given, schema.Tensor) and (not unused or numel(given.sizes) == numel(wanted.dims))

    passed = args[: len(inputs) + unused] if unused else args
    found = _in_order(inputs, passed, fits)
    if found is None:
        raise FormatError(
            f"a delegate has {len(inputs)} inputs, which the {len(args)} arguments of its call do not match"
        )
    if unused:
        _check_only_match(graph, passed, found, fits)
    results = max([0, len(args) - len(graph.output_ids), *(at + 1 for at in found)])
    return list(zip(inputs, (args[at] for at in found), strict=True)), args[results:]


def _check_only_match(
    graph: vulkan.VkGraph, args: Sequence[int], found: Sequence[int], fits: Callable[[int, int], bool]
) -> None:
    """Refuse a call whose tensors could be matched in two ways: the first arguments, or the last ones."""
    backwards = _in_order(graph.input_ids[::-1], args[::-1], fits) or ()
    for value, first, back in zip(graph.input_ids, found, reversed(backwards), strict=True):
        if first != len(args) - 1 - back and isinstance(graph.values[value].value, vulkan.VkTensor):
            raise FormatError(
                f"a delegate's call has {len(args)} arguments for {len(found)} inputs, "
                "and their shapes do not tell which are unused"
            )


def _in_order(
    values: Sequence[int], args: Sequence[int], fits: Callable[[int, int], bool]
) -> list[int] | None:
    """For each value, the position of the first fitting argument after those of earlier values."""
    places: list[int] = []
    at = 0
    for value in values:
        while at < len(args) and not fits(value, args[at]):
            at += 1
        if at == len(args):
            return None
        places.append(at)
        at += 1
    return places


def delegate_type(code: int, what: str) -> tuple[str, DType]:
    known = DELEGATE_TYPES.get(code)
    if known is None:
        raise FormatError(f"{what}: unknown delegate data type {code}")
    return known
