"""Every operator of torch, with the arguments of the catalogue, against torch at changing live sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import known
from pteron.compiler.ops.elementwise import ElementwiseRule
from pteron.engine.devices.opening import Device
from pteron.tools.verify.catalogue import CATALOGUE, OperatorEntry
from pteron.tools.verify.catalogue.arguments import Drawing
from pteron.tools.verify.comparison import worst
from pteron.tools.verify.references import NoReference
from pteron.tools.verify.single_node import open_graph
from pteron.tools.verify.torch_reference import IS_RANDOM, TorchReference
from pteron.tools.verify.verification import differences
from pteron.tools.verify.walk import walk
from tests.support.operators.graphs import is_integer_arithmetic

# What moves elements runs with types of each width: a word of the GPU has one, two or four of them.
OF_EACH_WIDTH = (DType.float32, DType.float16, DType.int32, DType.int8, DType.bool)
BY_OUTPUT = ("_to_copy", "full", "scalar_tensor")  # the dtype of the result is not among the arguments
OTHER_RESULTS = ("allclose", "empty", "masked_select", "nonzero")  # torch has no count, or undefined elements

NAMES = [
    name
    for name in CATALOGUE
    if name.startswith("aten.")
    and name.split(".")[1] not in (*IS_RANDOM, *BY_OUTPUT, *OTHER_RESULTS)
    and not is_integer_arithmetic(name)
    and known(name).alias is None  # no kernel runs
]


def dtypes_of(entry: OperatorEntry) -> tuple[DType, ...]:
    """Elementwise operators run with all types in `test_edges.py`."""
    moves = DType.bool in entry.dtypes and not isinstance(entry.spec.rule, ElementwiseRule)
    return OF_EACH_WIDTH if moves else entry.tried or entry.dtypes[:1]


def compared(device: Device, entry: OperatorEntry, dtype: DType) -> Iterator[str]:
    """What is wrong with each result, in poisoned memory. Empty texts: nothing."""
    graph = entry.graph(dtype, Drawing(dtype))
    with open_graph(graph, device, device.route_features) as method:
        for size in entry.sizes:
            inputs, _ = entry.drawn(size, dtype)
            for run in walk(method, inputs):
                try:
                    wanted = TorchReference().outputs(graph, run)
                except NoReference:  # torch does not have it for this type
                    return
                found = worst(differences(run, wanted))
                yield f"{dtype} at {size}, {run.route}: {found}" if found.is_bad else ""


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_torch(device: Device, name: str) -> None:
    told = [
        text
        for entry in CATALOGUE[name]
        for dtype in dtypes_of(entry)
        if dtype in entry.dtypes
        for text in compared(device, entry, dtype)
    ]
    assert told, "torch computes none of its entries"
    assert not any(told), "\n".join(filter(None, told))
