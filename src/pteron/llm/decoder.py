"""The program of a language model: it takes tokens and a position, and returns the next token's logits.

Most programs have one method for all numbers of tokens, `forward`. Others have two that share their KV
caches: `prefill` for several tokens, and `decode` for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pteron.api.method import Method
from pteron.api.method_info import IOInfo
from pteron.api.program import Program
from pteron.api.segmented_method import SegmentedMethod
from pteron.engine.call import Call
from pteron.engine.staging import Pending
from pteron.engine.state import Part, State, first_positions
from pteron.errors import InputError, UnsupportedError

T = TypeVar("T")
Row: TypeAlias = np.ndarray[Any, Any]


def copied(row: Row) -> Row:
    return row.copy()


class Segment(NamedTuple, Generic[T]):
    """The next tokens of one conversation: their first position, and the state that they are written to.

    look: takes what is needed from the logits after the last token. They are in memory of the GPU's driver,
        which is valid only during its call. Default: a copy of all.
    """

    tokens: Sequence[int]
    position: int
    state: State
    look: Callable[[Row], T] = copied  # type: ignore[assignment]


# The most tokens of a call, unless it is given: more are not faster, and cannot be interrupted.
GPU_UBATCH, SOFTWARE_UBATCH = 512, 128


class TokenMethod:
    """A method with the inputs tokens [1, S] and input_pos [1], or one position for each token."""

    def __init__(self, program: Program, name: str) -> None:
        self.method = program.method(name)
        tokens, positions = _check_inputs(name, self.method.inputs)
        self.max_length: int = tokens.max_shape[1]
        self.is_static = 1 not in tokens.dynamic_dims
        self._one_position_per_token = positions.max_shape[0] == self.max_length > 1

    def inputs(self, tokens: Sequence[int], position: int) -> tuple[Row, ...]:
        # The GPU's integers have 32 bits. They need no conversion, and no check.
        count = len(tokens) if self._one_position_per_token else 1
        return np.array([tokens], np.int32), np.arange(position, position + count, dtype=np.int32)


def token_methods(program: Program) -> tuple[TokenMethod, TokenMethod]:
    """The method for one token, and that for several. Mostly it is the same."""
    if "forward" not in program.method_names and {"prefill", "decode"} <= set(program.method_names):
        if not program.shares_state:
            raise UnsupportedError(
                "prefill and decode have KV caches of their own: export the program again with "
                "MemoryPlanningPass(share_mutable_buffers=True), so that one reads what the other has written"
            )
        one, several = TokenMethod(program, "decode"), TokenMethod(program, "prefill")
        return (one, one) if several.is_static and several.max_length > 1 else (one, several)
    one = TokenMethod(program, "forward")
    return one, one


class Decoder:
    """Runs the next tokens of a conversation: one or several, up to the maximum."""

    def __init__(
        self,
        program: Program,
        context_length: int | None = None,
        capacity: int | None = None,
        ubatch: int | None = None,
    ) -> None:
        """capacity: the positions of the KV caches, if they are not as the file says.

        ubatch: the most tokens of a call. Default: as many as are fast on the device.
        """
        self.program = program
        self._one, self._several = token_methods(program)
        self.method = self._one.method
        fast = SOFTWARE_UBATCH if program.device.is_software else GPU_UBATCH
        self.max_length = min(ubatch or fast, self._several.max_length)
        if self._one.is_static and self._one.max_length != 1:
            raise UnsupportedError(
                f"{self.method.graph.name} takes exactly {self._one.max_length} tokens: export it with a "
                "dynamic sequence length"
            )
        self.vocab_size: int = self.method.outputs[0].max_shape[-1]
        self.bos_id: int | None = self._constant("get_bos_id", None)
        self.eos_ids = frozenset(_as_tuple(self._constant("get_eos_ids", ())))
        self._capacity: int = (
            capacity
            or self._constant("get_max_context_len", None)
            or self._constant("get_max_seq_len", self.max_length)
        )
        if context_length is not None and not 1 <= context_length <= self._capacity:
            raise InputError(
                f"context_length is {context_length}: the KV caches of this program have room for 1 to "
                f"{self._capacity} tokens"
            )
        self.context_length = context_length or self._capacity
        self._many = self.method if isinstance(self.method, SegmentedMethod) else None
        # The most conversations that one call of the program can run.
        self.parallel: int = self._many.segments if self._many else 1
        # The most conversations that can have KV caches. None: any number.
        self.slots: int | None = self._many.graph.slot_count if self._many else None

    def _constant(self, name: str, default: Any) -> Any:
        """The value of a constant method, which stores metadata."""
        return self.program.method(name)() if name in self.program.method_names else default

    def new_state(self) -> State:
        return self.program.new_state() if self.program.shares_state else self.method.new_state()

    @property
    def free_states(self) -> int | None:
        """How many more conversations can have KV caches. None: as many as there is memory for."""
        return self._many.free_states if self._many else None

    @property
    def kv_nbytes(self) -> int:
        """The size of the KV caches of one conversation, on the GPU."""
        return self.method.state_nbytes

    def positions(self, count: int) -> Part:
        """The part of a state that holds the first tokens."""
        return first_positions(count, self._capacity)

    def logits(self, tokens: Sequence[int], position: int, state: State) -> Row:
        """Run up to `max_length` tokens at a position. Returns the logits after the last token."""
        return self.start(Segment[Row](tokens, position, state)).result()

    def start(self, segment: Segment[T]) -> Pending[T]:
        """Start the run of the next tokens of one conversation. The result is what its `look` returns."""
        used = self._one if len(segment.tokens) == 1 else self._several
        inputs = used.inputs(segment.tokens, segment.position)
        look = partial(self._look, segment.look)
        return used.method.submit_and_look(inputs, look, state=segment.state)

    def logits_many(self, segments: Sequence[Segment[T]]) -> list[T]:
        """Run the next tokens of up to `parallel` conversations, of up to `max_length` tokens in total.

        Returns what each one's `look` takes from the logits after its last token. If it fails, no
        conversation has changed.
        """
        if not 1 <= len(segments) <= self.parallel:
            raise InputError(f"logits_many takes 1 to {self.parallel} segments, got {len(segments)}")
        if self._many is None:
            return [self.start(segment).result() for segment in segments]
        calls = self._calls(segments)
        looks = [partial(self._look, s.look) for s in segments]
        return self._many.submit_many_and_look(calls, looks).result()

    @contextmanager
    def prepare_many(self, segments: Sequence[Segment[Any]]) -> Iterator[tuple[Method, Call]]:
        """Do everything for a call of `logits_many` except running it: see `Method.prepare`.

        After that call, it computes the same again.
        """
        if self._many is not None:
            with self._many.prepare_many(self._calls(segments)) as call:
                yield self._many, call
        else:
            (segment,) = segments
            used = self._one if len(segment.tokens) == 1 else self._several
            inputs = used.inputs(segment.tokens, segment.position)
            with used.method.prepare(*inputs, state=segment.state) as call:
                yield used.method, call

    def _calls(self, segments: Sequence[Segment[Any]]) -> list[tuple[tuple[Row, ...], State]]:
        return [(self._one.inputs(s.tokens, s.position), s.state) for s in segments]

    def inputs(self, tokens: Sequence[int], position: int) -> tuple[Row, ...]:
        """The inputs of a call of `method` with these tokens."""
        return self._one.inputs(tokens, position)

    def _look(self, look: Callable[[Row], T], outputs: list[Row]) -> T:
        return look(outputs[0].reshape(-1, self.vocab_size)[-1])


def _check_inputs(name: str, inputs: Sequence[IOInfo]) -> tuple[IOInfo, IOInfo]:
    shapes = [i.max_shape for i in inputs]
    if len(shapes) != 2 or len(shapes[0]) != 2 or shapes[0][0] != 1 or len(shapes[1]) != 1:
        found = ", ".join(f"{i.dtype}{list(i.max_shape)}" for i in inputs)
        raise UnsupportedError(
            f"a language model has {name}(tokens [1, S], input_pos [1]) and a KV cache inside, but this "
            f"program has {name}({found}). `pteron run` and pteron.load run any program. For an "
            "embedder, use pteron.llm.load_embedder or `pteron embed`."
        )
    return inputs[0], inputs[1]


def _as_tuple(value: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in np.atleast_1d(value))
