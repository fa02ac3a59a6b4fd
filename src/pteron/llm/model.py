"""A language model: a decoder, its tokenizer and its chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Unpack, cast, overload

from pteron._util.progress import NotebookBar, Progress
from pteron.api.loading import load as load_program
from pteron.api.loading import portable_source
from pteron.compiler.segments.graph import Batching
from pteron.engine.devices.opening import Adapter, Device
from pteron.errors import InputError, PteronError
from pteron.llm.answer import Answer, Piece
from pteron.llm.batch import run_all
from pteron.llm.bounded import Worker
from pteron.llm.chat_template import ChatTemplate, Message
from pteron.llm.companions import Companions
from pteron.llm.context import ContextFull, ContextWindow, TextWindow, TurnWindow, check_room
from pteron.llm.context_choice import chosen_context, file_facts
from pteron.llm.decoder import Decoder
from pteron.llm.generate import Generation, Prompt, Prompts, Stream, collect, is_many, is_messages
from pteron.llm.grammar import Grammars, Source
from pteron.llm.loaded import LoadedModel
from pteron.llm.model_files import model_file
from pteron.llm.options import AnswerOptions, Options, Sampling, split
from pteron.llm.session import Session
from pteron.llm.session_pool import SessionPool
from pteron.llm.tokenizer import Tokenizer, TooLong, prompt_worker
from pteron.llm.tools import TemplateTurns, ToolError, ToolUse, family_of
from pteron.llm.tools.definitions import ToolSelection


def load(
    source: Any,
    *,
    tokenizer: Tokenizer | str | Path | None = None,
    chat_template: str | None = None,
    context_length: int | None = None,
    data_path: Any = None,
    device: str | int | Adapter | Device | None = None,
    kv_dtype: str = "f16",
    precision: str = "float32",
    ubatch: int | None = None,
    parallel: int = 1,
    kv_memory: int | None = None,
    wait: bool = True,
    progress: Progress | None = None,
) -> LanguageModel:
    """Load a language model.

    A `.gguf` file or a Hugging Face folder is converted once. The result is stored in a cache folder (see
    `pteron cache`).

    Args:
        source: A `.pte` file (a path, bytes, or an open binary file), a `.gguf` file, or a Hugging Face
            folder.
        tokenizer: A `tokenizer.json` or its folder. Default: the one in the file or beside it.
        chat_template: A Jinja template. Default: the one in the file or beside it.
        context_length: The number of tokens in the context. Default: the model's, up to 32768, as far as the
            KV caches have room in `kv_memory`, or in 1 GiB and a quarter of the machine's memory; for other
            `.pte` files all that their KV caches have room for.
        data_path: The `.ptd` file or files with the weights of a `.pte` file.
        device: An adapter's index or part of its name, or an open device. Default: the best adapter.
        kv_dtype: The type of the stored keys and values, `"f16"` or `"f32"`. `"f32"` needs twice the memory.
        precision: What GPUs may round the operands of products to: see `pteron.load`.
        ubatch: The most tokens of a prompt that one call reads. More are faster on large GPUs, and take more
            memory. Default: 512 on GPUs and 128 on software adapters, or what the program takes at most.
        parallel: The largest number of conversations that one call of the program can continue. The memory of
            their KV caches is taken when they come. A program that mixes the tokens of a call runs one
            conversation at a time.
        kv_memory: The most bytes for these KV caches. If they are not enough, there are fewer.
        wait: Whether to wait until all kernels are compiled. With False, the first answers begin earlier and
            are slower. `llm.program.ready` says when the rest is compiled. See `pteron.load`.
        progress: A function that is called during a conversion, and then while kernels are compiled, with
            what is being done, the finished share, and 1.0. Default: a bar in notebooks.

    Returns:
        The model. Close it, or use it as a context manager.

    Raises:
        InputError: There is no tokenizer, or an option does not fit the model.
        UnsupportedError: The program is not a language model, or its family is not supported.
        FormatError: A file is damaged.

    Example:
        ```python
        with pteron.llm.load("model.gguf") as llm:
            print(llm.generate("Once upon a time", max_new_tokens=64))
        ```
    """
    given, source = source, model_file(source, context_length, progress, ubatch=ubatch)
    worker = prompt_worker()
    worker.start()
    try:
        facts = file_facts(source)
        context_length = chosen_context(facts, context_length, kv_dtype, parallel, kv_memory)
        caches = context_length if facts.can_change else None
        call = facts.call_length(ubatch, context_length)
        batching = None
        if parallel != 1:
            batching = Batching(parallel, memory=kv_memory, last_rows=True, required=False)
        program = load_program(
            source,
            data_path=data_path,
            device=device,
            kv_dtype=kv_dtype,
            precision=precision,
            kv_length=caches,
            shapes=facts.shapes(call),
            segments=batching,
            methods=(),  # the decoder loads it, while the tokenizer is read
            wait=wait,
            progress=progress or NotebookBar("loading"),
        )
    except BaseException:
        worker.close()
        raise
    try:
        found = Companions(program, Path(source) if isinstance(source, (str, Path)) else None)
        with ThreadPoolExecutor(1) as beside:  # the tokenizer is read while the program is built
            reading = beside.submit(_tokenizer, tokenizer, found, worker)
            decoder = Decoder(program, context_length, caches, ubatch)
            made = reading.result()
        model = LanguageModel(
            decoder,
            made,
            found.template() if chat_template is None else chat_template,
            found.special_tokens(made, decoder),
            found.description(),
            name=f"the chat template of {found.name}" if chat_template is None else "the chat template given",
            tool_template=found.tool_template() if chat_template is None else None,
        )
        model.origin = partial(
            load,
            portable_source(given),
            tokenizer=tokenizer,
            chat_template=chat_template,
            context_length=context_length,
            data_path=data_path,
            device=program.device.name,
            kv_dtype=kv_dtype,
            precision=precision,
            ubatch=ubatch,
            parallel=parallel,
            kv_memory=kv_memory,
            wait=wait,
        )
        return model
    except BaseException:
        worker.close()
        program.close()
        raise


def _tokenizer(given: Tokenizer | str | Path | None, found: Companions, worker: Worker) -> Tokenizer:
    if given is None:
        return found.tokenizer(worker)
    return given if isinstance(given, Tokenizer) else Tokenizer.from_file(given, worker=worker)


class LanguageModel(LoadedModel):
    """Generates text. `pteron.llm.load` makes it.

    Threads may share it. Answers at the same time have separate KV caches. It can be pickled, without its
    sessions.

    Attributes:
        context_length: The number of tokens in the context: prompt and answer together.
        tokenizer: The tokenizer.
        chat_template: The chat template. None if the model has none.
        program: The program. `llm.program.device` is its GPU.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        chat_template: str | None = None,
        special: Mapping[str, str] | None = None,
        description: Mapping[str, Any] | None = None,
        *,
        name: str = "the chat template",
        tool_template: str | None = None,
    ) -> None:
        super().__init__(decoder.program, tokenizer, description)
        self.decoder = decoder
        self.special_tokens = dict(special or {})
        made = partial(ChatTemplate, special_tokens=self.special_tokens, name=name, worker=tokenizer.worker)
        self.chat_template = made(chat_template) if chat_template else None
        self._tool_template = made(tool_template) if tool_template else self.chat_template
        self.tool_family = family_of(tool_template or chat_template)
        self.sessions = SessionPool()
        self._containing: dict[tuple[str, ...], frozenset[int]] = {}
        self.context_length = decoder.context_length
        self.max_length = decoder.max_length
        self.eos_ids = decoder.eos_ids or self._eos_by_name()
        self.grammars = Grammars(tokenizer, self.eos_ids)

    def _eos_by_name(self) -> frozenset[int]:
        found = self.tokenizer.id_of(self.special_tokens.get("eos_token", ""))
        return frozenset(() if found is None else (found,))

    def stream(
        self,
        prompt: Prompt,
        *,
        session: Session | None = None,
        allow_special: bool = False,
        **options: Unpack[Options],
    ) -> Stream:
        """Stream the answer to a prompt.

        Args:
            prompt: A text, a list of tokens, or a list of messages such as
                `{"role": "user", "content": "Hello!"}`.
            session: The conversation to continue. Default: one is borrowed; a beginning that another answer
                had in common is not read again.
            allow_special: Whether control tokens in messages count as such. See `encode`.
            **options: See `Sampling` and `AnswerOptions`.

        Returns:
            An iterator of pieces. The last piece has a `finish_reason` and `stats`.

        Raises:
            ContextFull: The prompt is longer than the context.
            InputError: An option has a value that is not allowed.

        Example:
            ```python
            for piece in llm.stream("Once upon a time", max_new_tokens=64, temperature=0.8):
                print(piece.text, end="", flush=True)
            ```
        """
        return Stream(self.answer(prompt, session=session, allow_special=allow_special, **options))

    def answer(
        self,
        prompt: Prompt,
        *,
        session: Session | None = None,
        allow_special: bool = False,
        **options: Unpack[Options],
    ) -> Answer:
        """Make the task to answer a prompt, for a `Batch`. The arguments are those of `stream`."""
        sampling, rest = self._split(options)
        return Answer(self, self._window(prompt, rest, allow_special), sampling, rest, session)

    def _split(self, options: Options) -> tuple[Sampling, AnswerOptions]:
        """Check options, and divide them by what they are about."""
        sampling, rest = split(options)
        for token in sampling.logit_bias:
            if not 0 <= token < self.decoder.vocab_size:
                raise InputError(
                    f"logit_bias names token {token}: the vocabulary has {self.decoder.vocab_size} tokens"
                )
        return sampling, rest

    def tool_use(self, options: AnswerOptions) -> ToolUse | None:
        """How an answer may use tools. None if it may not."""
        selection = ToolSelection.read(options.tools, options.tool_choice, options.parallel_tool_calls)
        if selection is None:
            return None
        if options.regex is not None or options.grammar is not None:
            raise ToolError("tools cannot be used together with regex or grammar: give one of them")
        return ToolUse(selection, self.tool_family, options.schema, self.tokenizer)

    def grammar_of(self, options: Options) -> Source | None:
        """The grammar that an answer with these options follows."""
        answer = split(options)[1]
        use = self.tool_use(answer)
        return use.source if use else Source.of(answer)

    def _window(self, prompt: Prompt, options: AnswerOptions, allow_special: bool) -> ContextWindow:
        """A prompt as the part of it that is in the context."""
        messages = cast(Sequence[Message], prompt) if is_messages(prompt) else None
        use, can_shift = self.tool_use(options), options.context_policy == "shift"
        if use and messages is None:
            raise ToolError("tools need a prompt of messages")
        encode = partial(self.encode, allow_special=allow_special, tools=use.definitions if use else ())
        if can_shift and messages is not None:
            return TurnWindow(messages, self.context_length, encode)
        tokens = encode(prompt)
        if can_shift:
            return TextWindow(tokens, self.context_length, self.decoder.bos_id)
        return ContextWindow(tokens, self.context_length, messages)

    @overload
    def generate(
        self,
        prompt: Prompt,
        *,
        session: Session | None = None,
        allow_special: bool = False,
        **options: Unpack[Options],
    ) -> Generation: ...

    @overload
    def generate(
        self, prompt: Prompts, *, allow_special: bool = False, **options: Unpack[Options]
    ) -> list[Generation]: ...

    def generate(
        self,
        prompt: Prompt | Prompts,
        *,
        session: Session | None = None,
        allow_special: bool = False,
        **options: Unpack[Options],
    ) -> Generation | list[Generation]:
        """Generate the complete answer to a prompt, or to each of several prompts.

        Args:
            prompt: As in `stream`, or a list of such prompts. The answers to several prompts are generated at
                the same time: see `stream_many`.
            session: The conversation to continue, for one prompt.
            allow_special: Whether control tokens in messages count as such. See `encode`.
            **options: See `Sampling` and `AnswerOptions`.

        Returns:
            A `Generation` with the text and statistics. For a list of prompts: a list, in the same order.

        Example:
            ```python
            answer = llm.generate([{"role": "user", "content": "Hello!"}], max_new_tokens=64)
            answer.text, answer.finish_reason, answer.stats
            ```
        """
        if not is_many(prompt):
            one = cast(Prompt, prompt)
            with self.stream(one, session=session, allow_special=allow_special, **options) as stream:
                return collect(stream)
        if session is not None:
            raise InputError("a session answers one prompt at a time: leave session= out for several prompts")
        return self._collected(self._answers(cast(Prompts, prompt), allow_special, options))

    def stream_many(
        self, prompts: Prompts, *, allow_special: bool = False, **options: Unpack[Options]
    ) -> Iterator[tuple[int, Piece]]:
        """Stream the answers to several prompts at the same time.

        One call of the program runs up to `parallel` conversations (see `load`). More prompts wait. Each
        answer is the one that its prompt would get alone, with the same options.

        Args:
            prompts: A list of prompts. See `stream`.
            allow_special: Whether control tokens in messages count as such. See `encode`.
            **options: See `Sampling` and `AnswerOptions`.

        Yields:
            The number of a prompt, from 0, and the next piece of its answer.
        """
        return run_all(self, self._answers(prompts, allow_special, options))

    def _answers(self, prompts: Prompts, allow_special: bool, options: Options) -> list[Answer]:
        return [self.answer(prompt, allow_special=allow_special, **options) for prompt in prompts]

    def _collected(self, answers: Sequence[Answer]) -> list[Generation]:
        pieces: list[list[Piece]] = [[] for _ in answers]
        for number, piece in run_all(self, answers):
            pieces[number].append(piece)
        return [collect(each) for each in pieces]

    def answers(
        self, prompt: Prompt, n: int, *, allow_special: bool = False, **options: Unpack[Options]
    ) -> list[Answer]:
        """Make several answers to one prompt, for a `Batch`, with the seeds `seed`, `seed + 1` and so on."""
        if n < 1:
            raise InputError(f"n is {n}: expected 1 or more")
        sampling, rest = self._split(options)
        window = self._window(prompt, rest, allow_special)
        first = Answer(self, window, sampling, rest)
        others = []
        for number in range(1, n):
            seed = None if sampling.seed is None else sampling.seed + number
            others.append(Answer(self, copy(window), replace(sampling, seed=seed), rest))
        return [first, *others]

    def choices(
        self, prompt: Prompt, n: int, *, allow_special: bool = False, **options: Unpack[Options]
    ) -> list[Generation]:
        """Generate several complete answers to one prompt. With a seed, each has a seed of its own.

        Args:
            prompt: As in `stream`.
            n: The number of answers.
            allow_special: Whether control tokens in messages count as such. See `encode`.
            **options: See `Sampling` and `AnswerOptions`.
        """
        return self._collected(self.answers(prompt, n, allow_special=allow_special, **options))

    def tokens_containing(self, texts: Sequence[str]) -> frozenset[int]:
        """The tokens that contain one of these texts. The result is remembered."""
        key = tuple(texts)
        if key not in self._containing:
            words = (
                self.tokenizer.decode([t], skip_special_tokens=False) for t in range(self.decoder.vocab_size)
            )
            self._containing[key] = frozenset(
                token for token, word in enumerate(words) if any(text in word for text in key)
            )
        return self._containing[key]

    def session(self) -> Session:
        """Begin a conversation with its own KV cache, on the same weights."""
        return Session(self)

    def load_session(self, path: str | Path) -> Session:
        """Continue a conversation that `Session.save` has written. Its KV cache is not computed again.

        Messages whose tokens do not fit this context are read again, as the context policy says.

        Args:
            path: The file. It must have been saved with the same model file, on any GPU.

        Raises:
            FormatError: The file is damaged.
            InputError: The file belongs to another model.
        """
        return Session.load(self, path)

    @cached_property
    def identity(self) -> str:
        """The digest of the model's file and its weights."""
        return self.program.file.digest()

    def encode(
        self, prompt: Prompt, *, allow_special: bool = False, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Turn a prompt into tokens.

        A text gets the special tokens that the tokenizer adds. Messages go through the chat template.

        Args:
            prompt: As in `stream`.
            allow_special: A control token in a message, such as `<|im_end|>`, becomes that token. By default
                it becomes the tokens of its text, so that no message can end its turn and begin another.
            tools: The definitions of tools, for the chat template.

        Raises:
            ContextFull: The prompt is longer than the context.
        """
        try:
            if isinstance(prompt, str):
                return self._with_start(self.tokenizer.encode(prompt, most=self.context_length))
            if is_messages(prompt):
                parts = self._chat_parts(cast(Sequence[Message], prompt), tools, as_text=not allow_special)
                return self.tokenizer.encode(parts, add_special_tokens=False, most=self.context_length)
        except TooLong:
            raise ContextFull(
                f"the prompt has more tokens than the model's context, which has {self.context_length}"
            ) from None
        return self._check_tokens(cast(Sequence[int], prompt))

    def _chat_parts(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], as_text: bool
    ) -> list[str]:
        """Messages as the parts of a text. Messages that are too long in any case are not rendered."""
        characters = sum(len(m["content"]) for m in messages if isinstance(m.get("content"), str))
        if (
            characters > self.context_length * self.tokenizer.longest_token
            or len(messages) > self.context_length
        ):
            raise TooLong("the messages alone are longer than the context")
        turns, variables = TemplateTurns(self.tool_family).prepared(messages, tools)
        template = self._tool_template if "tools" in variables else None
        return (template or self._template()).render_parts(turns, as_text=as_text, **variables)

    def chat_prompt(self, messages: Sequence[Message], **variables: Any) -> str:
        """The text that the chat template makes from messages. Variables are passed to the template."""
        return self._template().render(messages, **variables)

    def _template(self) -> ChatTemplate:
        if self.chat_template is None:
            raise PteronError(
                "the model has no chat template: pass chat_template= to load, or give the prompt as text"
            )
        return self.chat_template

    @property
    def text_start(self) -> int | None:
        """The token that must begin a text without a chat template; None: what the tokenizer adds."""
        return self.decoder.bos_id if self.description.get("add_bos_token", False) else None

    def _with_start(self, tokens: list[int]) -> list[int]:
        start = self.text_start
        return tokens if start is None or tokens[:1] == [start] else [start, *tokens]

    def _check_tokens(self, tokens: Sequence[int]) -> list[int]:
        check_room(len(tokens), self.context_length)
        checked = [int(token) for token in tokens]
        for place, token in enumerate(checked):
            if not 0 <= token < self.decoder.vocab_size:
                raise InputError(
                    f"prompt token {place} is {token}: the vocabulary has {self.decoder.vocab_size} tokens"
                )
        return checked

    def reload(self) -> None:
        """Load the model on a new device, after `DeviceLost`. Sessions read their text again."""
        self.sessions.close()
        super().reload()

    def close(self) -> None:
        """Free everything on the GPU, and end the tokenizer's process."""
        self.grammars.close()
        self.sessions.close()
        super().close()

    def __repr__(self) -> str:
        return f"<LanguageModel, context of {self.context_length} tokens, on {self.program.device.name}>"
