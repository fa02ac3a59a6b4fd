"""Which rows go into the next step: bounds hold, nobody starves, every row is run once and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pteron.llm.pace import FEWEST, SAMPLES, Pace
from pteron.llm.step_choice import StepLimits, rows_of_step

SIZES = st.integers(1, 40)
LIMITS = st.builds(StepLimits, st.integers(1, 9), SIZES, SIZES)
WANTED = st.lists(st.one_of(st.just(1), SIZES), max_size=12)


@given(WANTED, LIMITS)
def test_a_step_keeps_its_limits(wanted: list[int], limits: StepLimits) -> None:
    given_rows = rows_of_step(wanted, limits)
    assert len(given_rows) == len(wanted)
    assert all(0 <= count <= want for count, want in zip(given_rows, wanted, strict=True))
    assert sum(count > 0 for count in given_rows) <= limits.conversations
    assert sum(given_rows) <= limits.rows
    of_prompts = [count for count, want in zip(given_rows, wanted, strict=True) if want > 1]
    assert sum(of_prompts) <= limits.prompt_rows


@given(WANTED.filter(bool), LIMITS)
def test_the_one_that_waited_longest_is_always_served(wanted: list[int], limits: StepLimits) -> None:
    assert rows_of_step(wanted, limits)[0] >= 1


@given(WANTED, LIMITS)
def test_with_room_for_all_every_answer_gets_its_row(wanted: list[int], limits: StepLimits) -> None:
    room = len(wanted) + 1
    limits = StepLimits(max(limits.conversations, room), max(limits.rows, room), limits.prompt_rows)
    given_rows = rows_of_step(wanted, limits)
    assert all(count == 1 for count, want in zip(given_rows, wanted, strict=True) if want == 1)
    # A prompt waits only if the conversations before it have used the rows of the step, or those for prompts.
    of_prompts = [(count, want) for count, want in zip(given_rows, wanted, strict=True) if want > 1]
    if sum(want for _, want in of_prompts) <= limits.prompt_rows and sum(wanted) <= limits.rows:
        assert all(count >= 1 for count, _ in of_prompts)


@given(st.lists(st.tuples(SIZES, st.integers(0, 10)), min_size=1, max_size=8), LIMITS)
def test_every_row_is_run_once_in_order_and_nobody_starves(
    conversations: list[tuple[int, int]], limits: StepLimits
) -> None:
    """Each conversation has a prompt of some rows, and then an answer of some rows."""
    order = list(range(len(conversations)))
    done = [0] * len(conversations)
    waited = [0] * len(conversations)
    while order:
        wanted = [max(1, conversations[each][0] - done[each]) for each in order]
        served = dict(zip(order, rows_of_step(wanted, limits), strict=True))
        for each, count in served.items():
            done[each] += count
            waited[each] = 0 if count else waited[each] + 1
            assert waited[each] < len(conversations)
        order = [each for each in order if not served[each]] + [each for each in order if served[each]]
        order = [each for each in order if done[each] < sum(conversations[each])]
    assert done == [sum(rows) for rows in conversations]


def test_a_short_prompt_is_read_beside_a_long_one() -> None:
    limits = StepLimits(conversations=8, rows=128, prompt_rows=32)
    assert rows_of_step([1, 1, 20, 980], limits) == [1, 1, 20, 12]
    assert rows_of_step([980, 1, 20, 1], limits) == [32, 1, 0, 1]
    assert rows_of_step([980, 1, 1, 1], StepLimits(8, 16, 100)) == [13, 1, 1, 1]


def test_one_segment_takes_turns() -> None:
    assert rows_of_step([500, 1, 1], StepLimits(1, 128, 128)) == [128, 0, 0]
    assert rows_of_step([1, 1, 372], StepLimits(1, 128, 128)) == [1, 0, 0]


# -- the pace -----------------------------------------------------------------------------------


def paced(pace: Pace, seconds_per_row: float, steps: int = 50) -> list[int]:
    """The rows of steps that take so long per row."""
    rows = []
    for _ in range(steps):
        rows.append(pace.rows)
        pace.note(pace.rows, pace.rows * seconds_per_row)
    return rows


@given(st.floats(1e-6, 1.0), st.integers(1, 2048))
def test_the_pace_settles_at_the_most_rows_within_the_limit(seconds_per_row: float, most: int) -> None:
    pace = Pace(most, seconds=0.25)
    settled = set(paced(pace, seconds_per_row)[-10:])
    assert len(settled) == 1
    rows = settled.pop()
    assert min(FEWEST, most) <= rows <= most
    assert rows * seconds_per_row <= 0.25 or rows == min(FEWEST, most)
    assert 2 * rows * seconds_per_row > 0.25 or rows == most


def test_a_slower_machine_gets_fewer_rows_and_a_single_slow_step_changes_nothing() -> None:
    pace = Pace(512, seconds=0.25)
    paced(pace, 0.001)
    assert pace.rows == 128
    pace.note(128, 9.0)
    pace.note(128, 0.13)
    assert pace.rows == 128
    for _ in range(SAMPLES):
        pace.note(128, 0.5)
    assert pace.rows == 64
    pace.note(5, 0.001)  # it has few rows, and says nothing about full steps
    assert pace.rows == 64
