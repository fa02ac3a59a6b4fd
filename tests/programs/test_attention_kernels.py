"""The attention kernels of ExecuTorch's language models outside of delegates, beside its own runtime."""

import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized  # noqa: F401
import pytest
import torch
from executorch.runtime import Runtime
from torch import nn
from torch.export import Dim

from tests.support.calls import Call, check_file
from tests.support.compare import SDPA

CAPACITY, HEADS, SHARED, WIDTH = 12, 4, 2, 8


class Kernels(nn.Module):
    """Each kernel with a mask, causal, and neither."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("keys", "values"):
            for number in range(3):
                self.register_buffer(f"{name}{number}", torch.zeros(1, CAPACITY, SHARED, WIDTH))

    def forward(self, q, k, v, cached_k, cached_v, mask, position):
        start, length, ops = position[0].item(), q.shape[1], torch.ops.llama
        torch._check(start >= 0)
        torch._check(start + length <= CAPACITY)
        results = []
        for number, (used, causal) in enumerate([(mask, False), (None, True), (None, False)]):
            keys, values = getattr(self, f"keys{number}"), getattr(self, f"values{number}")
            results += [
                ops.custom_sdpa(q, cached_k, cached_v, start, used, 0.0, causal, None),
                ops.sdpa_with_kv_cache(q, k, v, keys, values, start, length, used, 0.0, causal, None),
            ]
        return tuple(results)


def inputs(length, start):
    seed = torch.Generator().manual_seed(10 * length + start)

    def x(*shape):
        return torch.randn(1, *shape, WIDTH, generator=seed)

    mask = torch.randn(length, CAPACITY, generator=seed)
    mask[:, ::3] = -torch.inf
    new = [x(length, HEADS), x(length, SHARED), x(length, SHARED)]
    return *new, x(CAPACITY, SHARED), x(CAPACITY, SHARED), mask, torch.tensor([start])


class FromPositions(nn.Module):
    """The start as Hugging Face models give it: an element of a view of the positions of all tokens."""

    def forward(self, q, k, v, cache_position):
        position_ids = cache_position.to(torch.int32).unsqueeze(0)
        start = position_ids[0][0].item()
        torch._check(start >= 0)
        torch._check(start + q.shape[1] <= CAPACITY)
        return torch.ops.llama.custom_sdpa(q, k, v, start, None, 0.0, True, None)


@pytest.fixture(scope="module")
def program(exported):
    length = Dim("length", min=1, max=8)
    dynamic = (*[{1: length}] * 3, None, None, {0: length}, None)
    return exported("attention_kernels", lambda: (Kernels(), inputs(3, 2), dynamic), partitioner=False)


def test_attention_kernels_give_what_executorch_gives(device, program):
    theirs = Runtime.get().load_program(program).load_method("forward")

    def calls():
        for length, start in ((8, 0), (1, 8), (3, 2), (1, 0), (8, 4), (2, 9), (1, 11), (5, 1)):
            arguments = inputs(length, start)
            outputs = [output.clone() for output in theirs.execute(list(arguments))]
            yield Call(arguments, outputs, f"of {length} at {start}")

    check_file(device, program, calls(), SDPA)


def test_a_position_may_be_an_element_of_a_view_of_an_input(device, exported):
    length = Dim("length", min=1, max=8)

    def arguments(rows, start):
        q, _, _, k, v, *_ = inputs(rows, start)
        return q, k, v, torch.arange(start, start + rows)

    dynamic = ({1: length}, None, None, {0: length})
    program = exported("position_ids", lambda: (FromPositions(), arguments(3, 2), dynamic), partitioner=False)
    theirs = Runtime.get().load_program(program).load_method("forward")

    def calls():
        for rows, start in ((8, 0), (1, 8), (3, 2), (8, 4), (1, 11)):
            given = arguments(rows, start)
            yield Call(given, [output.clone() for output in theirs.execute(list(given))])

    check_file(device, program, calls(), SDPA)
