"""Make a prompt from messages, with the model's chat template."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, TypeAlias

from pteron._util.extras import missing
from pteron.errors import InputError, PteronError
from pteron.llm.bounded import Worker, WorkFailed
from pteron.llm.tokenizer import prompt_worker

Message: TypeAlias = Mapping[str, Any]  # {"role": "user", "content": "..."}
NUMBERS = itertools.count()  # models may share a tokenizer, and so a process, but not their templates


class ChatTemplate:
    """A Jinja template in Hugging Face's format. It runs in a sandbox, in a process with limits.

    special_tokens: tokens that the template can use by name, such as `bos_token`.
    name: its name in errors. worker: the tokenizer's worker, which knows the control tokens.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        name: str = "the chat template",
        worker: Worker | None = None,
    ) -> None:
        if find_spec("jinja2") is None:
            raise missing("llm", "to use a chat template", "jinja2")
        self.source = source
        self.name = name
        self._worker = worker or prompt_worker()
        self._number = next(NUMBERS)
        variables = dict(special_tokens or {})
        try:
            self._worker.prepare(
                "template", blame=name, number=self._number, source=source, variables=variables
            )
        except WorkFailed as error:
            raise PteronError(f"{name} cannot be read: {error}") from None

    @cached_property
    def control_tokens(self) -> list[str]:
        """The texts of the tokens that `render_parts` keeps out of messages."""
        tokens: list[str] = self._worker.call("control_tokens", blame=self.name, number=self._number)
        return tokens

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt. With `add_generation_prompt`, it ends where the assistant's answer begins."""
        return "".join(
            self.render_parts(
                messages, as_text=False, add_generation_prompt=add_generation_prompt, **variables
            )
        )

    def render_parts(
        self,
        messages: Sequence[Message],
        *,
        as_text: bool,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[str]:
        """The prompt in parts, to tokenize one by one.

        as_text: control tokens in the messages are split in two, so they are tokenized as text.
        """
        variables = {"add_generation_prompt": add_generation_prompt, **variables}
        plain = [dict(message) for message in messages]
        try:
            parts: list[str] = self._worker.call(
                "render",
                blame=self.name,
                number=self._number,
                messages=plain,
                variables=variables,
                as_text=as_text,
            )
        except WorkFailed as error:
            raise InputError(f"{self.name} does not take these messages: {error}") from None
        return parts
