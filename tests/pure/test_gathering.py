"""Rows in batches: every row once, of one kind, in bounded windows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pteron.api.mapping.gathering import batches, windows


@dataclass(frozen=True)
class Row:
    number: int
    kind: str
    length: int
    nbytes: int


drawn = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 50)), max_size=60)


def rows_of(values: list[tuple[str, int, int]]) -> list[Row]:
    return [Row(number, *value) for number, value in enumerate(values)]


@given(drawn, st.integers(1, 20), st.integers(1, 200))
def test_windows_are_consecutive_and_bounded(values, most, nbytes) -> None:
    rows = rows_of(values)
    made = list(windows(rows, most, nbytes))
    assert [row for window in made for row in window] == rows
    for window in made:
        assert 1 <= len(window) <= most
        assert sum(row.nbytes for row in window[:-1]) < nbytes  # the last row may be larger alone


def test_a_window_is_given_before_the_next_row_is_read() -> None:
    read = []

    def source():
        for row in rows_of([("a", 1, 1)] * 10):
            read.append(row.number)
            yield row

    next(windows(source(), 3))
    assert read == [0, 1, 2]


@given(drawn, st.integers(1, 9))
def test_a_batch_has_one_kind_and_every_row_is_in_one(values, size) -> None:
    rows = rows_of(values)
    made = list(batches(rows, size))
    assert sorted(row.number for batch in made for row in batch) == [row.number for row in rows]
    for batch in made:
        assert 1 <= len(batch) <= size
        assert len({row.kind for row in batch}) == 1


@given(drawn, st.integers(1, 9))
def test_batches_of_a_kind_do_not_overlap_in_length(values, size) -> None:
    """So no other batches of this size have less padding. All but the last are full."""
    made = list(batches(rows_of(values), size))
    for kind in "ab":
        of_kind = [batch for batch in made if batch[0].kind == kind]
        lengths = [row.length for batch in of_kind for row in batch]
        assert lengths == sorted(lengths)
        assert all(len(batch) == size for batch in of_kind[:-1])


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 9))
def test_rows_of_one_length_keep_their_order(lengths, size) -> None:
    made = list(batches(rows_of([("a", length, 0) for length in lengths]), size))
    for length in set(lengths):
        numbers = [row.number for batch in made for row in batch if row.length == length]
        assert numbers == sorted(numbers)


@given(drawn, st.integers(1, 9), st.integers(0, 30))
def test_a_batch_has_no_more_padding_than_allowed(values, size, padding) -> None:
    rows = rows_of(values)
    made = list(batches(rows, size, padding))
    assert sorted(row.number for batch in made for row in batch) == [row.number for row in rows]
    for batch in made:
        assert len(batch) <= size
        assert sum(batch[-1].length - row.length for row in batch) <= padding
    for batch, following in pairwise(made):  # none ends without need
        padded = sum(following[0].length - row.length for row in batch)
        assert len(batch) == size or batch[0].kind != following[0].kind or padded > padding
