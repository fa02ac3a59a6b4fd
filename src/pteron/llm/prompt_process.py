"""The child process that turns messages into text and text into tokens. `bounded.Worker` starts it.

It runs the chat template and the tokenizer of a model file, and tries grammars that clients send. It does not
import Pteron, so that it starts fast. It handles one request at a time: [task, arguments] in,
[outcome, value] out, both as JSON.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import llguidance
    from llguidance._lib import JsonCompileOptions

MAX_OUTPUT = 1 << 24  # characters that a template may write
MAX_GROWTH = 16  # how many times longer the steps of a tokenizer's decoder may make a text
HEAD = 16  # characters per allowed token: of a long text, only this much is tokenized first
MAX_MESSAGE = 500  # characters of an error in a grammar; it may repeat the whole grammar
# Between the parts of JSON: nothing, a blank, or a new line. A model cannot write blanks without end.
JSON_OPTIONS: JsonCompileOptions = {"whitespace_pattern": r"[ ]?|\n[ ]{0,40}"}
MARK = "\ufdd0"  # a Unicode noncharacter; it separates parts that must not become one token


class Refused(Exception):
    """A message for the caller."""


class PromptTokenizer:
    """Turns text into tokens."""

    def __init__(self, definition: str) -> None:
        import tokenizers

        self._library = tokenizers.Tokenizer.from_str(definition)
        self._library.no_padding()
        self._library.no_truncation()
        if self._library.decoder is not None:
            check_decoder(json.loads(self._library.decoder.__getstate__()))
        added = self._library.get_added_tokens_decoder().values()
        self.added: dict[str, bool] = {token.content: token.special for token in added}
        self.longest = max(map(len, self._library.get_vocab(with_added_tokens=True)), default=1)

    def encode(self, parts: Sequence[str], special: bool, most: int | None) -> list[int] | None:
        """The tokens of consecutive texts; None if they are certainly more than `most`."""
        if most is not None and sum(map(len, parts)) > most * self.longest:
            return None
        tokens: list[int] = []
        for part in parts:
            if most is not None and len(part) > HEAD * most:
                head = self._library.encode(part[: HEAD * most], add_special_tokens=special)
                if len(head.ids) > 2 * most:  # the cut may split a word, but this never halves the count
                    return None
            tokens += self._library.encode(part, add_special_tokens=special).ids
        return tokens


def check_decoder(decoder: dict[str, Any]) -> None:
    """The parent decodes tokens at every step, without limits. So refuse decoders that can be slow."""
    growth = 1.0
    for step in steps_of(decoder):
        if step["type"] == "Replace":
            pattern = step["pattern"].get("String")
            if not pattern:
                raise Refused("its decoder uses a regular expression, which is not supported")
            growth *= max(1.0, len(step["content"]) / len(pattern))
    if growth > MAX_GROWTH:
        raise Refused(f"its decoder can make a text more than {MAX_GROWTH} times as long")


def steps_of(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in steps_of(inner)]
    return [decoder]


class Template:
    """Turns messages into text, with a Jinja template in Hugging Face's format, in a sandbox."""

    def __init__(self, source: str, variables: Mapping[str, Any], added: Mapping[str, bool]) -> None:
        import jinja2
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        class Environment(ImmutableSandboxedEnvironment):
            """Refuses to create huge strings and numbers, for systems without a memory limit."""

            intercepted_binops = frozenset(["*", "**"])

            def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
                check_product(operator, left, right)
                return super().call_binop(context, operator, left, right)

        environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._syntax = environment.parse(source)
        self._template: jinja2.Template = environment.from_string(source)
        self._variables = variables
        self._added = added

    def render(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], as_text: bool
    ) -> list[str]:
        """The text in parts. With `as_text`, no part has a complete control token from a message."""
        if as_text and self.controls:
            messages, variables = self._marked(messages), self._marked(variables)
        given = {"tools": None, "documents": None, **self._variables, **variables, "messages": messages}
        pieces, length = [], 0
        for piece in self._template.generate(given):
            pieces.append(piece)
            length += len(piece)
            if length > MAX_OUTPUT:
                raise Refused(f"it writes more than {MAX_OUTPUT} characters")
        return "".join(pieces).split(MARK)

    def _marked(self, value: Any) -> Any:
        """A value with a mark after the first character of every control token in its strings."""
        if isinstance(value, str):
            return self._beginnings.sub(rf"\g<0>{MARK}", value)
        if isinstance(value, list):
            return [self._marked(each) for each in value]
        if isinstance(value, dict):
            return {self._marked(key): self._marked(each) for key, each in value.items()}
        return value

    @cached_property
    def _beginnings(self) -> re.Pattern[str]:
        """Matches the first character of a control token. Tokens may overlap, so it consumes no more."""
        return re.compile("(?=" + "|".join(map(re.escape, self.controls)) + ").", re.DOTALL)

    @cached_property
    def controls(self) -> list[str]:
        """The tokens with a meaning for the model, which no message may write.

        They are the special tokens, the named tokens (such as bos_token), and those that the template writes.
        A token that the template searches for in messages, as some do for </think>, is not included.
        """
        from jinja2 import nodes

        def constants(*roots: nodes.Node) -> str:
            found = [c.value for root in roots for c in root.find_all(nodes.Const)]
            return "\0".join(text for text in found if isinstance(text, str))

        methods = [c for c in self._syntax.find_all(nodes.Call) if isinstance(c.node, nodes.Getattr)]
        looked_for = constants(*methods, *self._syntax.find_all(nodes.Compare))
        data = [node.data for node in self._syntax.find_all(nodes.TemplateData)]
        written = "\0".join([*data, constants(self._syntax)])
        named = {text for text in self._variables.values() if isinstance(text, str)}

        def is_control(text: str) -> bool:
            return self._added[text] or text in named or (text in written and text not in looked_for)

        return [text for text in self._added if len(text) > 1 and text.strip() and is_control(text)]


def check_product(operator: str, left: Any, right: Any) -> None:
    if operator == "*":
        for value, times in ((left, right), (right, left)):
            is_repetition = isinstance(value, (str, bytes, list, tuple)) and isinstance(times, int)
            if is_repetition and len(value) * times > MAX_OUTPUT:
                raise Refused(f"it repeats a value of length {len(value)} {times} times")
    elif isinstance(left, int) and isinstance(right, int) and right * left.bit_length() > 1 << 16:
        raise Refused(f"it raises a number to the power of {right}")


def to_json(value: Any, indent: int | None = None) -> str:
    """Plain JSON. Jinja's own filter escapes HTML, which is wrong in a prompt."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def raise_exception(message: str) -> None:
    raise Refused(message)


def vocabulary(definition: str, ends: Sequence[int]) -> llguidance.LLTokenizer:
    """The tokens of a tokenizer as bytes, for grammars. `ends` are the tokens that end a text."""
    import llguidance

    return llguidance.LLTokenizer(definition, eos_token=list(ends) or None)


def matcher(tokens: llguidance.LLTokenizer, kind: str, text: str) -> llguidance.LLMatcher:
    """A compiled grammar. It has computed the first set of allowed tokens, which takes the longest."""
    from llguidance import LLMatcher, LLParserLimits

    if kind == "schema":
        grammar = LLMatcher.grammar_from_json_schema(text, overrides=JSON_OPTIONS)
    else:
        grammar = (LLMatcher.grammar_from_regex if kind == "regex" else LLMatcher.grammar_from_lark)(text)
    # Else an error repeats the whole grammar and the state of the parser.
    made = LLMatcher(tokens, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
    if not made.is_error():
        made.compute_bitmask()
    if made.is_error():
        raise Refused(error_of(made))
    return made


def error_of(state: llguidance.LLMatcher) -> str:
    """What went wrong, without the marks that llguidance adds."""
    return state.get_error().partition("\n<")[0].strip()[:MAX_MESSAGE]


class Tasks:
    """The requests. `tokenizer`, `template` and `vocabulary` come before the others."""

    def __init__(self) -> None:
        self._vocabulary: llguidance.LLTokenizer | None = None
        self._tokenizer: PromptTokenizer | None = None
        self._templates: dict[int, Template] = {}

    def tokenizer(self, definition: str) -> dict[str, Any]:
        self._tokenizer = PromptTokenizer(definition)
        return {"longest": self._tokenizer.longest}

    def template(self, number: int, source: str, variables: dict[str, Any]) -> None:
        added = self._tokenizer.added if self._tokenizer else {}
        self._templates[number] = Template(source, variables, added)

    def encode(self, parts: list[str], special: bool, most: int | None) -> list[int] | None:
        assert self._tokenizer
        return self._tokenizer.encode(parts, special, most)

    def control_tokens(self, number: int) -> list[str]:
        return self._templates[number].controls

    def render(self, number: int, messages: list[Any], variables: dict[str, Any], as_text: bool) -> list[str]:
        return self._templates[number].render(messages, variables, as_text)

    def vocabulary(self, definition: str, ends: list[int]) -> None:
        self._vocabulary = vocabulary(definition, ends)

    def try_grammar(self, kind: str, text: str) -> None:
        assert self._vocabulary
        matcher(self._vocabulary, kind, text)


def answer(work: Callable[..., Any], arguments: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "value", work(**arguments)
    except MemoryError:
        return "memory", None
    except Refused as error:
        return "error", str(error)
    except BaseException as error:  # a panic in the tokenizer library is a BaseException
        return "error", f"{type(error).__name__}: {error}"


def limit_memory(nbytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until the parent closes the pipe or ends."""
    tasks = Tasks()
    length = struct.Struct("<Q")
    while len(head := requests.read(length.size)) == length.size:
        task, arguments = json.loads(requests.read(length.unpack(head)[0]))
        reply = json.dumps(answer(getattr(tasks, task), arguments)).encode()
        replies.write(length.pack(len(reply)) + reply)
        replies.flush()


if __name__ == "__main__":
    limit_memory(int(sys.argv[1]))
    serve(sys.stdin.buffer, sys.stdout.buffer)
