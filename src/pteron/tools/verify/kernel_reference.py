"""Compute a node by ExecuTorch's own kernel: a program with one call of it, at the node's live shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pteron.compiler.ir.dtypes import HOST_TYPES, DType
from pteron.compiler.ir.op import OpSpec
from pteron.compiler.ir.values import Arg, Graph, SymInt, Tensor, ValueId
from pteron.compiler.lower.kernel_calls import ALLOCATION_OPTIONS, find, is_in_place
from pteron.pte import program_chunks, schema
from pteron.pte.schema import EValue, ScalarType, TensorShapeDynamism
from pteron.tools.verify.executorch_runtime import NAME, ExecutorchRuntime, Signature, as_input
from pteron.tools.verify.references import NoReference
from pteron.tools.verify.walk import NodeRun

# ExecuTorch's kernels are plain loops. What reads more elements is left to torch.
LARGEST_OPERANDS = 2**20
ALIGNMENT = 16
SCALAR_TYPES = {dtype: ScalarType(kind) for kind, (name, dtype) in HOST_TYPES.items() if name == dtype.label}


class KernelReference:
    """keep_float32: compute with float32 where the program has 16-bit floats."""

    name = NAME

    def __init__(self, runtime: ExecutorchRuntime, keep_float32: bool = False) -> None:
        self._runtime = runtime
        self._keep_float32 = keep_float32
        self._kernel_of: dict[OpSpec, str] = {}

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        arrays = [value for value in run.given.values() if not isinstance(value, (int, float))]
        if sum(array.size for array in arrays) > LARGEST_OPERANDS:
            raise NoReference("its operands are large, and ExecuTorch's kernels are slow")
        kernel = self._kernel(run.node.op)
        call = _KernelProgram(kernel, self._runtime.kernels[kernel], run, self._keep_float32)
        (made,) = self._runtime.run(call.program(), [("forward", call.inputs)])
        return made

    def _kernel(self, op: OpSpec) -> str:
        if not self._kernel_of:
            for name in sorted(self._runtime.kernels):
                spec = None if is_in_place(name) or name.startswith("executorch_prim") else find(name)
                if spec is not None:
                    self._kernel_of.setdefault(spec, name)
        if op not in self._kernel_of:
            raise NoReference(f"ExecuTorch has no kernel {op.name}")
        return self._kernel_of[op]


class _KernelProgram:
    """A program that calls a kernel once. Every tensor has memory of its own."""

    def __init__(self, kernel: str, signature: Signature, run: NodeRun, keep_float32: bool) -> None:
        self.inputs: list[Any] = []
        self._kernel = kernel
        self._run = run
        self._keep_float32 = keep_float32
        self._values: list[EValue] = []
        self._inputs: dict[ValueId, int] = {}
        self._memory = 0
        taken = [(kind, default) for kind, is_out, default in signature if not is_out]
        targets = [kind for kind, is_out, _ in signature if is_out]
        args = [
            self._argument(arg, kind) for arg, (kind, _) in zip(self._in_order(taken), taken, strict=True)
        ]
        written = [value for value in run.node.writes if isinstance(value, Tensor)]
        outs = [self._tensor(tensor, tensor.max_shape) for tensor in written]
        # A kernel that changes its arguments also has a result that nothing reads.
        outs = outs or [self._planned(ScalarType.FLOAT, (1,)) for _ in targets]
        is_list = any("List" in kind for kind in targets)
        given = [self._add(schema.TensorList(tuple(outs)))] if is_list else outs
        returned = given if len(given) == 1 else [self._add(schema.TensorList(tuple(outs)))]
        self._args = (*args, *given, *returned)
        self._outputs = [*(outs if written else ()), *(self._inputs[t.id] for t in run.node.mutates)]

    def _in_order(self, taken: Sequence[tuple[str, Any]]) -> list[Arg]:
        """The node's arguments in the order of the kernel, which lacks the options for allocation."""
        node = self._run.node
        args = list(zip(node.op.parameters, node.args[:-1], strict=False))
        while len(args) > len(taken):
            extra = next((item for item in args if item[0] in ALLOCATION_OPTIONS), None)
            if extra is None:
                raise NoReference(f"{self._kernel} takes {len(taken)} arguments, the node has {len(args)}")
            args.remove(extra)
        rest = [default for _, default in taken[len(args) :]]
        return [*(arg for _, arg in args), *rest]

    def program(self) -> bytes:
        operator, _, overload = self._kernel.partition(".")
        plan = schema.ExecutionPlan(
            "forward",
            container_meta_type=schema.ContainerMetadata("", ""),
            values=tuple(self._values),
            inputs=tuple(self._inputs.values()),
            outputs=tuple(self._outputs),
            chains=(schema.Chain(instructions=(schema.Instruction(schema.KernelCall(0, self._args)),)),),
            operators=(schema.Operator(operator, overload),),
            non_const_buffer_sizes=(0, max(self._memory, ALIGNMENT)),
        )
        nothing = schema.SubsegmentOffsets(0, (0,))  # ExecuTorch wants a segment of constants
        return b"".join(
            program_chunks(schema.Program(execution_plan=(plan,), constant_segment=nothing), (b"",))
        )

    # -- values ---------------------------------------------------------------------------------

    def _add(self, value: Any) -> int:
        self._values.append(EValue(value))
        return len(self._values) - 1

    def _dtype(self, tensor: Tensor) -> DType:
        is_short = tensor.dtype in (DType.float16, DType.bfloat16)
        return DType.float32 if is_short and self._keep_float32 else tensor.dtype

    def _tensor(self, tensor: Tensor, shape: Sequence[int]) -> int:
        # The GPU has 32-bit integers where a file has 64.
        dtype = self._dtype(tensor)
        code = ScalarType.LONG if dtype is DType.int32 else SCALAR_TYPES[dtype]
        return self._planned(code, shape)

    def _planned(self, code: ScalarType, shape: Sequence[int]) -> int:
        place = schema.AllocationDetails(1, self._memory)
        made = schema.Tensor(
            code,
            sizes=tuple(shape),
            dim_order=tuple(range(len(shape))),
            allocation_info=place,
            shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND,  # the kernel finds the shape of its result
        )
        self._memory += max(made.nbytes, 1) + -max(made.nbytes, 1) % ALIGNMENT
        return self._add(made)

    def _argument(self, arg: Arg, kind: str) -> int:
        if isinstance(arg, Tensor):
            return self._input(arg)
        if isinstance(arg, SymInt):
            return self._number(self._run.given[arg.id], kind)
        if isinstance(arg, (tuple, list)):
            return self._list(tuple(arg), kind)
        return self._add(schema.Null()) if arg is None else self._number(arg, kind)

    def _input(self, tensor: Tensor) -> int:
        if tensor.id not in self._inputs:
            array = self._run.given[tensor.id]
            self._inputs[tensor.id] = self._tensor(tensor, array.shape)
            dtype = self._dtype(tensor)
            self.inputs.append(as_input(array, "int64" if dtype is DType.int32 else dtype))
        return self._inputs[tensor.id]

    def _list(self, items: tuple[Arg, ...], kind: str) -> int:
        if "Optional[Tensor]" in kind:
            ids = tuple(-1 if item is None else self._argument(item, "Tensor") for item in items)
            return self._add(schema.OptionalTensorList(ids))
        if "Tensor" in kind:
            return self._add(schema.TensorList(tuple(self._argument(item, "Tensor") for item in items)))
        numbers: list[Any] = [self._run.given[i.id] if isinstance(i, SymInt) else i for i in items]
        if "float" in kind:
            return self._add(schema.DoubleList(tuple(float(x) for x in numbers)))
        if "bool" in kind:
            return self._add(schema.BoolList(tuple(bool(x) for x in numbers)))
        return self._add(schema.IntList(tuple(self._add(schema.Int(int(x))) for x in numbers)))

    def _number(self, number: Any, kind: str) -> int:
        if isinstance(number, str):
            return self._add(schema.String(number))
        if "bool" in kind or isinstance(number, bool):
            return self._add(schema.Bool(bool(number)))
        if "float" in kind or isinstance(number, float):
            return self._add(schema.Double(float(number)))
        return self._add(schema.Int(int(number)))
