"""Several conversations in one call give what each gives alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pteron
import pteron.llm
from pteron.api.segmented_method import SegmentedMethod
from pteron.compiler.segments.graph import Batching
from pteron.engine import slots
from pteron.engine.call import POISON
from pteron.engine.devices.opening import Device
from pteron.engine.slots import Slot
from pteron.engine.state import State, everything
from pteron.errors import InputError, OutOfMemory, PteronError, UnsupportedError
from pteron.llm.decoder import Decoder, Segment
from tests.llm import gguf_families
from tests.llm.tiny_models import LLAMA, write_gguf
from tests.support.faults import collecting_new_garbage, each_line
from tests.support.memory import poison

DATA = Path(__file__).parents[1] / "data"
MOST = 4

# Segments of a call: which conversation, how many new tokens.
Mixture: TypeAlias = Sequence[tuple[int, int]]


@dataclass
class Conversations:
    """The same conversations in two decoders: one runs them alone, the other together."""

    alone: Decoder
    together: Decoder
    lengths: list[int] = field(default_factory=lambda: [0] * MOST)

    def __post_init__(self) -> None:
        self.alone_states = [self.alone.new_state() for _ in range(MOST)]
        self.states = [self.together.new_state() for _ in range(MOST)]

    @property
    def method(self) -> SegmentedMethod:
        assert isinstance(self.together.method, SegmentedMethod)
        return self.together.method

    def run(self, mixture: Mixture, random: np.random.Generator) -> float:
        """Run a mixture in both ways. Returns the largest difference, as a share of the range."""
        poison(self.method)
        tokens = [random.integers(0, 100, count).tolist() for _, count in mixture]
        places = [self.lengths[c] for c, _ in mixture]
        states = [self.states[c] for c, _ in mixture]
        found = self.together.logits_many(list(map(Segment, tokens, places, states)))
        worst = 0.0
        for (c, count), new, place, row in zip(mixture, tokens, places, found, strict=True):
            expected = self.alone.logits(new, place, self.alone_states[c])
            worst = max(worst, float(np.abs(row - expected).max() / np.ptp(expected)))
            self.lengths[c] += count
        return worst

    def restart(self) -> None:
        """Begin new conversations in the same states. What is left in the caches is poisoned."""
        self.lengths = [0] * MOST
        for state in self.states:
            state.write([POISON * size for size in state.sizes()])

    def close(self) -> None:
        for state in (*self.alone_states, *self.states):
            state.close()


def conversations(path: Path, device: Device, **options: Any) -> Iterator[Conversations]:
    batching = Batching(MOST, last_rows=True)
    with (
        pteron.load(path, device=device, **options) as one,
        pteron.load(path, device=device, segments=batching, **options) as many,
    ):
        yield Conversations(Decoder(one), Decoder(many))


def converted(folder: Path, name: str, **options: Any) -> Path:
    """A converted model. The options are those of its config."""
    if name in gguf_families.FAMILIES:
        family = gguf_families.FAMILIES[name]
        family = replace(family, options={**family.options, **options})
        source = gguf_families.write_gguf(folder / "tiny.gguf", family, gguf_families.model(family))
    else:
        source = write_gguf(folder / "tiny.gguf", LLAMA)
    path = folder / "tiny.pte"
    pteron.convert(source, path, max_seq_len=24, quantize="4bit" if "4 bits" in name else None)
    return path


MODELS = ("ExecuTorch's export", "exported, all logits", "llama in 4 bits", "gemma2", "gpt2")


@pytest.fixture(scope="module", params=MODELS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, device: Device
) -> Iterator[Conversations]:
    match request.param:
        case "ExecuTorch's export":
            path = request.getfixturevalue("stock") / "model.pte"
        case "exported, all logits":
            path = request.getfixturevalue("model_folder") / "model.pte"
        case name:
            path = converted(tmp_path_factory.mktemp("model"), name)
    yield from conversations(path, device)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(tmp_path_factory.mktemp("llama"), "llama")


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    """Some conversations in any order, with decode steps and chunks of prompts of at most 16 tokens."""
    chosen = draw(st.permutations(range(MOST)))[: draw(st.integers(1, MOST))]
    counts = [draw(st.sampled_from((1, 1, 2))) for _ in chosen]
    counts[draw(st.integers(0, len(chosen) - 1))] = draw(st.integers(1, 7) | st.integers(8, 10))
    return list(zip(chosen, counts, strict=True))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(calls=st.lists(mixtures(), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_any_mixture_equals_each_alone(pair: Conversations, calls: list[Mixture], seed: int) -> None:
    device = pair.together.program.device
    pair.restart()
    made = device.allocations, device.compilations
    random = np.random.default_rng(seed)
    for mixture in calls:
        assert pair.run(mixture, random) <= 1e-5, mixture
    assert (device.allocations, device.compilations) == made


# The other tests of this file run on a software device. Some kernels compile for half a minute.
@pytest.mark.parametrize(
    "routed",
    [
        "portable",
        "GPU",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("software", "GPU with all")),
    ],
    indirect=True,
)
def test_every_kind_of_device_gives_the_same(routed: Device, tmp_path: Path) -> None:
    """Windows and soft-caps in heads that all kernels take, for short and for long segments."""
    random = np.random.default_rng(1)
    for pair in conversations(converted(tmp_path, "gemma2", head_dim=32), routed):
        for mixture in ([(0, 9)], [(1, 17), (0, 1)], [(0, 1), (2, 3), (1, 1), (3, 9)], [(2, 12), (0, 8)]):
            assert pair.run(mixture, random) <= 1e-5, mixture


def test_caches_in_half_precision(llama: Path, device: Device) -> None:
    random = np.random.default_rng(2)
    for pair in conversations(llama, device, kv_dtype="f16"):
        assert pair.together.kv_nbytes == pair.alone.kv_nbytes
        for mixture in ([(0, 9), (1, 2)], [(1, 1), (2, 4), (0, 1)], [(0, 1), (1, 1), (2, 1)]):
            assert pair.run(mixture, random) <= 1e-3, mixture  # rounding may differ in the last place


# -- states -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(llama: Path, device: Device) -> Iterator[Decoder]:
    with pteron.load(llama, device=device, segments=MOST) as program:
        yield Decoder(program)


@pytest.fixture
def states(several: Decoder) -> Iterator[list[State]]:
    taken = [several.new_state() for _ in range(MOST)]
    yield taken
    for state in taken:
        state.close()


def test_a_conversation_is_copied_saved_and_loaded(several: Decoder, states: list[State]) -> None:
    several.logits([5, 6, 7], 0, states[0])
    expected = several.logits([8], 3, states[0])
    states[1].copy_from(states[0], several.positions(3))
    states[2].write(states[0].read(several.positions(3)), several.positions(3))
    for row in several.logits_many([Segment([8], 3, states[2]), Segment([8], 3, states[1])]):
        np.testing.assert_allclose(row, expected, atol=1e-5)
    with pytest.raises(InputError, match="sizes of this state's tensors"):
        states[2].write([b"1"] * len(states[2].sizes()))


def test_slots_are_given_back_and_begin_empty(several: Decoder, states: list[State]) -> None:
    with pytest.raises(PteronError, match=f"all {MOST} slots .* close a session or a state, or load"):
        several.new_state()
    several.logits([5, 6, 7], 0, states[1])
    untouched = states[0].read()
    states[1].close()
    states[1].close()
    with pytest.raises(PteronError, match="the state is closed"):
        several.logits([5], 0, states[1])
    states[1] = several.new_state()
    assert all(not any(part) for part in states[1].read())
    assert states[0].read() == untouched
    del states[1]  # a state that nobody has is free, too
    states.append(several.new_state())


def test_memory_is_taken_when_conversations_come(llama: Path, device: Device) -> None:
    with pteron.load(llama, device=device, segments=MOST) as program:
        decoder = Decoder(program)
        size, before = decoder.kv_nbytes, device.allocated_nbytes
        states = [decoder.new_state()]
        assert device.allocated_nbytes == before
        decoder.logits([5, 6, 7], 0, states[0])
        expected = decoder.logits([8], 3, states[0])
        for count, taken in ((2, 2), (3, 4), (4, 4)):
            states.append(decoder.new_state())
            assert device.allocated_nbytes - before == (taken - 1) * size
            decoder.logits([9] * count, 0, states[-1])
            np.testing.assert_array_equal(decoder.logits([8], 3, states[0]), expected)


def test_a_device_with_too_little_memory_has_fewer_conversations(
    llama: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: Any) -> Any:
        raise OutOfMemory("no more")

    with pteron.load(llama, device=device, segments=MOST) as program:
        decoder = Decoder(program)
        states = [decoder.new_state() for _ in range(2)]
        expected = decoder.logits([5, 6], 0, states[0])
        monkeypatch.setattr(slots, "State", too_much)
        with pytest.raises(OutOfMemory):
            decoder.new_state()
        assert decoder.free_states == 0
        with pytest.raises(PteronError, match="all 2 slots"):
            decoder.new_state()
        np.testing.assert_array_equal(decoder.logits([5, 6], 0, states[0]), expected)
        states[1].close()
        assert isinstance(decoder.new_state(), Slot)


def test_a_refused_call_changes_nothing(several: Decoder, states: list[State]) -> None:
    several.logits_many([Segment([1, 2, 3], 0, states[0]), Segment([4], 0, states[1])])
    before = [state.read(everything) for state in states]
    shapes = several.method.live_shapes
    fine = Segment([1], 3, states[0])
    refused = {
        r"segment 1: position 40 plus 9 new tokens does not fit the cache of 48": [
            fine,
            Segment([1] * 9, 40, states[1]),
        ],
        "segment 1: position -1": [fine, Segment([1], -1, states[1])],
        "have 34 tokens, but the program takes at most 24": [
            Segment([1] * 17, 0, states[0]),
            Segment([1] * 17, 0, states[1]),
        ],
        "segments 0 and 1 have the same state": [fine, Segment([1], 4, states[0])],
        "1 to 4 segments, got 5": [fine] * 5,
        "1 to 4 segments, got 0": [],
        "at least 1": [fine, Segment([], 1, states[1])],
        "element .* is 100000": [fine, Segment([100000], 1, states[1])],
    }
    for message, segments in refused.items():
        with pytest.raises(InputError, match=message):
            several.logits_many(segments)
    assert [state.read(everything) for state in states] == before
    assert several.method.live_shapes == shapes
    assert len(several.logits_many([fine, Segment([5], 1, states[1])])) == 2


def test_an_interrupt_at_any_line_gives_no_slot_to_two_conversations(several: Decoder) -> None:
    count = several.free_states
    with collecting_new_garbage() as collect:
        for _ in each_line(lambda: several.new_state().close()):
            collect()
            assert several.free_states == count
            states = [several.new_state() for _ in range(MOST)]
            assert len({state.number for state in states if isinstance(state, Slot)}) == MOST
            del states


def test_a_program_is_reloaded_with_new_slots(llama: Path) -> None:
    with pteron.load(llama, segments=2) as program:
        method = program.method()
        inputs = np.array([[1, 2, 3]]), np.array([0])
        expected, old = method(*inputs), method.new_state()
        program.reload()
        with pytest.raises(InputError, match="lost with its device"):
            method(*inputs, state=old)
        np.testing.assert_array_equal(method(*inputs), expected)


# -- programs -----------------------------------------------------------------------------------------


def test_outputs_have_the_rows_of_each_segment(device: Device) -> None:
    """A program without a state."""
    path = DATA / "emb_dyn.pte"
    with (
        pteron.load(path, device=device) as one,
        pteron.load(path, device=device, segments=Batching(3, slots=4)) as many,
    ):
        method = many.method()
        assert isinstance(method, SegmentedMethod)
        parts = [np.array([3, 1]), np.array([2]), np.array([5, 6, 7])]
        np.testing.assert_array_equal(method(parts[0]), one(parts[0]))
        states = [method.new_state() for _ in parts]
        calls = [((part,), state) for part, state in zip(parts, states, strict=True)]
        for part, (found,) in zip(parts, method.submit_many(calls).result(), strict=True):
            np.testing.assert_array_equal(found, one(part))


def test_a_program_that_mixes_rows_is_refused_by_name(device: Device) -> None:
    with pytest.raises(UnsupportedError, match=r"segments=4.*conv.*\(node \d+\).*Load it without segments"):
        pteron.load(DATA / "dyn_conv1d.pte", device=device, segments=4)
    with pteron.load(DATA / "dyn_conv1d.pte", device=device, segments=Batching(4, required=False)) as program:
        assert not isinstance(program.method(), SegmentedMethod)


def test_memory_limits_the_number_of_conversations(llama: Path, device: Device) -> None:
    with pteron.load(llama, device=device) as program:
        one = program.method().memory.state
    batching = Batching(8, memory=3 * one + 1)
    with pteron.load(llama, device=device, segments=batching) as program:
        method = program.method()
        assert isinstance(method, SegmentedMethod)
        assert (method.segments, method.memory.state, method.state_nbytes) == (3, 3 * one, one)


def test_numbers_of_segments_and_slots_are_checked() -> None:
    with pytest.raises(InputError, match="segments must be at least 1, not 0"):
        Batching(0)
    with pytest.raises(InputError, match="slots must be at least the number of segments, 4, not 2"):
        Batching(4, slots=2)


def test_greedy_texts_are_those_of_one_conversation_after_another(model_folder: Path, device: Device) -> None:
    prompts = ["hello world", "a", "the quick brown fox", "hello", "the end", "b c d", "ing", "llo"]
    path = model_folder / "model.pte"
    with (
        pteron.llm.load(path, device=device) as one,
        pteron.llm.load(path, device=device, parallel=len(prompts)) as many,
    ):
        assert many.decoder.parallel == len(prompts)
        expected = [one.generate(prompt, max_new_tokens=12, temperature=0).tokens for prompt in prompts]
        found = many.generate(prompts, max_new_tokens=12, temperature=0)
        assert [generation.tokens for generation in found] == expected
