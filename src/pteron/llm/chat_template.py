"""Messages to a prompt, by the model's own template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from pteron.errors import InputError, PteronError
from pteron.extras import needs

Message: TypeAlias = Mapping[str, Any]  # {"role": "user", "content": "..."}


class ChatTemplate:
    """A Jinja template of Hugging Face's kind, run where it reaches nothing but its variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        with needs("llm", "to use a chat template"):
            import jinja2
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        self.source = source
        self._special = dict(special_tokens or {})
        self._errors = jinja2.TemplateError
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = self._raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise PteronError(f"the chat template cannot be read: {error}") from error

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt. `add_generation_prompt` ends it where the assistant's answer begins."""
        given = {"tools": None, "documents": None, **self._special, **variables}
        try:
            return self._template.render(
                messages=[dict(m) for m in messages], add_generation_prompt=add_generation_prompt, **given
            )
        except (self._errors, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"the chat template does not take these messages: {error}") from error

    def _raise(self, message: str) -> None:
        raise self._errors(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Plain JSON: Jinja's own filter escapes HTML, which a prompt is not."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
