"""Which rows go into the next step: the choice between conversations that share one call of a program.

It knows only numbers. A row is one token of one conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StepLimits(NamedTuple):
    """The size of one step. Each is at least 1.

    conversations: the most of them.
    rows: the most rows in total.
    prompt_rows: the most rows of prompts. It limits how long those wait that write an answer.
    """

    conversations: int
    rows: int
    prompt_rows: int


def rows_of_step(wanted: Sequence[int], limits: StepLimits) -> list[int]:
    """How many rows of each conversation are in the next step. 0: none, it waits for a later step.

    wanted: the number of rows that each can run: one for a conversation that writes an answer, the rest of
        the prompt for one that reads it. The one that has waited the longest is first.

    Conversations are served in this order. One row for an answer is always given while the step has room.
    A prompt gets all it wants, but leaves one row for every answer, and all prompts together get at most
    `prompt_rows`. The first conversation always gets a row. The caller puts those that were served at the
    end, so of n conversations each is served at least once in n steps.
    """
    conversations, rows, prompt_rows = limits
    answers = sum(want == 1 for want in wanted)  # that are not served yet
    given: list[int] = []
    for want in wanted:
        room = rows if conversations else 0
        if want == 1:
            count = min(1, room)
            answers -= 1
        else:
            beside_answers = rows - min(answers, conversations - 1)
            count = min(want, room, prompt_rows, max(beside_answers, 0 if any(given) else 1))
            prompt_rows -= count
        conversations -= count > 0
        rows -= count
        given.append(count)
    return given
