"""Methods that share mutable buffers: `MemoryPlanningPass(share_mutable_buffers=True)`."""

import asyncio
import pickle
from pathlib import Path

import executorch.runtime as theirs
import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import nn
from torch.export import Dim

import pteron
import pteron.runtime as ours
from pteron.compiler.pipeline import lower
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_method
from pteron.web.freeze import freeze
from tests.support.compare import SDPA, assert_close
from tests.support.export import vulkan_partitioner
from tests.support.faults import lose
from tests.support.memory import poison

LENGTH, WIDTH = 12, 8


class Attention(nn.Module):
    """Attention with a KV cache. A prompt and a single token have a method each."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.register_buffer("keys", torch.zeros(LENGTH, WIDTH))
        self.register_buffer("values", torch.zeros(LENGTH, WIDTH))

    def forward(self, x, positions):
        self.keys.index_put_((positions,), self.key(x))
        self.values.index_put_((positions,), self.value(x))
        later = torch.arange(LENGTH) > positions.unsqueeze(1)
        scores = (self.query(x) @ self.keys.T).masked_fill(later, float("-inf"))
        return scores.softmax(-1) @ self.values


class Counters(nn.Module):
    """Buffers that begin with numbers, and an output of random numbers, which need state of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([[2.0, 3.0]]))
        self.register_buffer("calls", torch.tensor([[7, 8, 9]]))


class Add(nn.Module):
    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self.counters = counters

    def forward(self, x):
        self.counters.calls.add_(1)
        self.counters.total.add_(x)
        return self.counters.total * 2


class Look(Add):
    def forward(self, x):
        return self.counters.total + x, self.counters.calls + 0


class Put(Add):
    def forward(self, x):
        self.counters.total.copy_(x)
        return x + 1


class Draw(Add):
    def forward(self, x):
        self.counters.calls.sub_(1)
        return torch.rand(3), x + 1


def shared(programs, partitioner=None, initial=False) -> bytes:
    """The bytes of a file whose methods share buffers."""
    passes = [InitializedMutableBufferPass(["total", "calls"])] if initial else []
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True), passes=passes
    )
    partitioners = [partitioner] if partitioner else None
    return bytes(to_edge_transform_and_lower(programs, partitioner=partitioners).to_executorch(config).buffer)


def attention() -> Attention:
    torch.manual_seed(0)
    return Attention().eval().requires_grad_(False)


def attention_methods():
    rows = {0: Dim("rows", min=2, max=6)}
    x = torch.ones(4, WIDTH)
    return {
        "prefill": torch.export.export(attention(), (x, torch.arange(4)), dynamic_shapes=(rows, rows)),
        "decode": torch.export.export(attention(), (x[:1], torch.arange(1))),
    }


def counter_methods():
    x = torch.ones(1, 2)
    kinds = {"add": Add, "look": Look, "put": Put, "draw": Draw}
    return {name: torch.export.export(kind(Counters()), (x,)) for name, kind in kinds.items()}


@pytest.fixture(scope="module")
def files(once) -> Path:
    def make(folder):
        (folder / "portable.pte").write_bytes(shared(attention_methods()))
        (folder / "vulkan.pte").write_bytes(shared(attention_methods(), vulkan_partitioner()))
        (folder / "counters.pte").write_bytes(shared(counter_methods(), initial=True))
        (folder / "inside.pte").write_bytes(shared(counter_methods(), vulkan_partitioner()))

    return once("shared_state", make)


class Conversation:
    """The same calls of Pteron and of torch, in one state."""

    def __init__(self, program, seed, state=None):
        self.program, self.options = program, {} if state is None else {"state": state}
        self.module, self.at = attention(), 0
        self.x = torch.randn(LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))

    def check(self, count):
        x, positions = self.x[self.at : self.at + count], torch.arange(self.at, self.at + count)
        method = self.program.method("prefill" if count > 1 else "decode")
        poison(method)
        assert_close(method(x, positions, **self.options), self.module(x, positions), SDPA)
        self.at += count


@pytest.mark.parametrize("kind", ["portable", "vulkan"])
def test_each_method_sees_what_the_other_wrote_in_every_state(files, device, kind):
    with pteron.load(files / f"{kind}.pte", device=device) as program:
        early = program.new_state()  # no method is loaded
        talks = [Conversation(program, 0), Conversation(program, 1, early)]
        talks[0].check(4)
        talks[1].check(1)
        talks.append(Conversation(program, 2, program.method("decode").new_state()))
        for count in (3, 1, 1, 2, 1):
            for talk in talks:
                talk.check(count)


def test_the_results_are_those_of_executorch(files, device):
    x = torch.randn(LENGTH, WIDTH)
    calls = [("prefill", 4), ("decode", 1), ("decode", 1), ("prefill", 3), ("decode", 1)]
    results = []
    for runtime in (theirs.Runtime, ours.Runtime):
        program = runtime.get().load_program(files / "portable.pte")
        methods = {name: program.load_method(name) for name in ("prefill", "decode")}
        at, outputs = 0, []
        for name, count in calls:
            inputs = [x[at : at + count].clone(), torch.arange(at, at + count)]
            outputs.append(methods[name].execute(inputs)[0].clone())
            at += count
        results.append(outputs)
    for got, want in zip(results[1], results[0], strict=True):
        assert_close(got, want, SDPA)


def test_loading_a_method_does_not_reset_what_others_wrote(files, device):
    x = np.array([[1.0, 1.0]], np.float32)
    with pteron.load(files / "counters.pte", device=device) as program:
        np.testing.assert_array_equal(program.method("add")(x), [[6, 8]])
        total, calls = program.method("look")(x)  # only reads
        np.testing.assert_array_equal(total, [[4, 5]])
        np.testing.assert_array_equal(calls, [[8, 9, 10]])
        program.method("put")(x * 9)  # only writes
        program.method("draw")(x)
        total, calls = program.method("look")(x)
        np.testing.assert_array_equal(total, [[10, 10]])
        np.testing.assert_array_equal(calls, [[7, 8, 9]])
        program.method("draw").reset()  # the state of all
        np.testing.assert_array_equal(program.method("look")(x)[0], [[3, 4]])


def test_states_are_copied_written_reset_and_closed_as_with_one_method(files, device):
    with pteron.load(files / "counters.pte", device=device) as program:
        add, look, draw = map(program.method, ("add", "look", "draw"))
        x = np.array([[1.0, 1.0]], np.float32)
        one, other, third = (program.new_state() for _ in range(3))
        assert one.nbytes == add.state_nbytes == look.state_nbytes
        add(x, state=one)
        drawn, _ = draw(x, state=one)
        other.copy_from(one)
        third.write(one.read())
        wanted = [*look(x, state=one), *draw(x, state=one)]
        assert not np.array_equal(wanted[2], drawn)
        for state in (other, third):
            for got, want in zip([*look(x, state=state), *draw(x, state=state)], wanted, strict=True):
                np.testing.assert_array_equal(got, want)
        one.reset()
        np.testing.assert_array_equal(draw(x, state=one)[0], drawn)
        np.testing.assert_array_equal(look(x, state=one)[0], [[3, 4]])
        one.close()
        with pytest.raises(pteron.PteronError, match="the state is closed"):
            look(x, state=one)
        with (
            pteron.load(files / "counters.pte", device=device) as again,
            pytest.raises(pteron.InputError, match="the state belongs to another method than 'look'"),
        ):
            again.method("look")(x, state=other)


def test_a_second_method_allocates_no_second_cache(files, device):
    with pteron.load(files / "portable.pte", device=device) as program:
        state = program.new_state()
        before = device.allocated_nbytes
        methods = [program.method(name).memory for name in program.method_names]
        own = sum(m.activations + m.staging + m.parameters for m in methods) + methods[0].weights
        assert device.allocated_nbytes - before <= own
        assert state.nbytes == 2 * LENGTH * WIDTH * 4
        assert program.method("decode").new_state().nbytes == state.nbytes
    assert device.allocated_nbytes <= before


def test_after_a_lost_device_the_methods_share_again(files):
    with pteron.load(files / "portable.pte") as program:
        state = program.new_state()
        Conversation(program, 0, state).check(3)
        lose(program.device)
        with pytest.raises(pteron.DeviceLost):
            Conversation(program, 0).check(3)
        program.reload()
        with pytest.raises(pteron.InputError, match="lost with its device"):
            Conversation(program, 0, state).check(3)
        for talk in (Conversation(program, 0), Conversation(program, 1, program.new_state())):
            for count in (3, 1, 2):
                talk.check(count)
        again = pickle.loads(pickle.dumps(program))
    with again:
        talk = Conversation(again, 0)
        talk.check(2)
        talk.check(1)


def test_awaited_methods_share_state(files, device):
    async def main():
        x = np.array([[1.0, 1.0]], np.float32)
        async with await pteron.load_async(files / "counters.pte", device=device) as program:
            state = await program.new_state()
            add, look = await program.method("add"), await program.method("look")
            await add(x, state=state)
            return await look(x, state=state), await look(x)

    (written, _), (untouched, _) = asyncio.run(main())
    np.testing.assert_array_equal(written, [[4, 5]])
    np.testing.assert_array_equal(untouched, [[3, 4]])


def test_a_buffer_inside_a_delegate_is_refused_at_load_and_by_check(files, device):
    with pytest.raises(
        pteron.UnsupportedError, match=r"a buffer float32\[1, 2\] that methods share"
    ) as refused:
        pteron.load(files / "inside.pte", device=device)
    assert "operator_blocklist" in str(refused.value)
    report = pteron.check(files / "inside.pte")
    assert any("that methods share" in finding.what for finding in report.findings)


def test_what_a_program_with_shared_state_cannot_do_is_refused_by_name(files, device):
    with pytest.raises(pteron.UnsupportedError, match=r"'decode' cannot run several.* shares state"):
        pteron.load(files / "portable.pte", device=device, segments=2)
    with ProgramFile.open(files / "portable.pte") as file:
        live = lower(file).plan()["decode"]
        with pytest.raises(pteron.UnsupportedError, match="'decode' shares state with other methods"):
            freeze(live)


def test_inspect_shows_the_shared_part(files):
    with ProgramFile.open(files / "counters.pte") as file:
        memory = inspect_method(file, "draw").memory
    assert memory.shared_state == 32  # 64-bit integers
    assert memory.state == 48  # with the counter of the random numbers


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("cache", torch.zeros(LENGTH, WIDTH))

    def prefill(self, x):
        self.cache[: x.shape[0]].copy_(self.layer(x))
        return self.cache.sum(0)

    def decode(self, x, position):
        self.cache.index_copy_(0, position, self.layer(x))
        return self.cache.sum(0)


def test_the_methods_of_a_module_are_exported_with_their_state(device):
    torch.manual_seed(0)
    module = Cached().eval().requires_grad_(False)
    x, one = torch.randn(4, WIDTH), (torch.randn(1, WIDTH), torch.tensor([5]))
    rows = {"prefill": ({0: Dim("rows", min=1, max=4)},)}
    methods = {"prefill": module.prefill, "decode": module.decode}
    made = pteron.export(methods, {"prefill": (x,), "decode": one}, dynamic_shapes=rows)
    assert made.report.ok and made.report.delegates == 2
    with pteron.load(made.buffer, device=device) as program:
        assert program.shares_state
        prefill, decode = program.method("prefill"), program.method("decode")
        for size in (4, 2, 3):
            assert_close(prefill(x[:size]), module.prefill(x[:size]), SDPA)
            assert_close(decode(*one), module.decode(*one), SDPA)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(LENGTH, WIDTH))
        self.register_buffer("calls", torch.ones(1))

    def count(self, x):
        self.sums.add_(x)
        self.calls.add_(1)
        return self.calls * 2

    def look(self, x):
        return self.sums + x, self.calls


@pytest.mark.parametrize("partition", [False, True])
def test_a_method_that_only_reads_or_returns_a_buffer_sees_what_others_write(device, partition):
    module, x = Counted(), torch.ones(WIDTH)
    methods = {"count": module.count, "look": module.look}
    made = pteron.export(methods, {"count": (x,), "look": (x,)}, partition=partition)
    with pteron.load(made.buffer, device=device) as program:
        for _ in range(3):
            for name, method in methods.items():
                for got, want in zip(program.method(name)(x), method(x), strict=True):
                    assert_close(got, want, SDPA)
