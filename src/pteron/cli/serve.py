"""`pteron serve`: language models and embedders behind the OpenAI API."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from pteron.cli import common, language, sampling_flags
from pteron.cli.language import convert_if_needed, fetch_model, open_model
from pteron.cli.progress import progress_console
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.llm import Embedder, LanguageModel


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(help="Models: .pte or .gguf files, or Hugging Face folders. Several load when used."),
    ],
    from_hub: language.FromHub = False,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on.")] = 8080,
    parallel: Annotated[
        int, typer.Option("-np", "--parallel", min=1, help="Answers at the same time, each with a KV cache.")
    ] = 4,
    kv_memory: Annotated[
        int | None,
        typer.Option("--kv-memory", min=1, help="The most MiB for KV caches: fewer answers at a time."),
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Requests that may wait; more get 429.")] = 16,
    names: Annotated[
        list[str] | None,
        typer.Option("-a", "--alias", help="The name of a model; once for each. Default: the file name."),
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option("--idle-seconds", min=0, help="Unload a model that was not used for this time."),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option("--memory", min=1, help="The most MiB on the GPU: unload idle models to load others."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="PTERON_API_KEY", help="The key that clients must send.")
    ] = None,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, help="Maximum size of a request in MiB; more gets 413.")
    ] = 4,
    max_connections: Annotated[
        int, typer.Option("--max-connections", min=1, help="Maximum number of open connections.")
    ] = 1000,
    drain_seconds: Annotated[
        float,
        typer.Option("--drain-seconds", min=0, help="How long answers may take to finish after SIGTERM."),
    ] = 20,
    verify: Annotated[
        float,
        typer.Option(
            "--verify", min=0, max=1, help="Of this share of the calls, compute a node again: see /metrics."
        ),
    ] = 0,
    log_format: Annotated[
        Literal["plain", "json"],
        typer.Option("--log-format", help="json: one JSON object per line, for each request."),
    ] = "plain",
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="A web origin that may use it; *: any. Repeatable."),
    ] = None,
    allow_special: language.AllowSpecial = False,
    policy: sampling_flags.Policy = "stop",
    context: language.Context = 0,
    kv_dtype: language.KvDtype = "f16",
    precision: language.Precision = "float32",
    ubatch: language.Ubatch = None,
    no_wait: language.NoWait = False,
    tokenizer: language.TokenizerPath = None,
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Serve language models and embedders to OpenAI clients, and a chat page to browsers."""
    from pteron import server  # fails at once if the extra is not installed

    named = _names(models, names)
    files = [fetch_model(model, from_hub) for model in models]
    most_nbytes = None if kv_memory is None else kv_memory << 20
    opened = partial(
        _opened,
        device=device,
        tokenizer=tokenizer,
        data_path=data,
        context_length=context or None,
        kv_dtype=kv_dtype,
        precision=precision,
        ubatch=ubatch,
        parallel=parallel,
        kv_memory=most_nbytes,
        wait=not no_wait,
    )
    say = progress_console()
    if host not in server.LOOPBACK and api_key is None:
        say.print(Text("anyone who reaches this address can use the models: consider --api-key", "yellow"))
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "parallel": parallel,
        "kv_memory": most_nbytes,
        "queue": queue,
        "api_key": api_key,
        "log_format": log_format,
        "verify": verify,
        "cors": cors or (),
        "allow_special": allow_special,
        "context_policy": policy,
        "limits": server.Limits(
            body=max_body << 20, connections=max_connections, drain_seconds=drain_seconds
        ),
    }
    options["sockets"] = _reserved(host, port)  # before a model is loaded, which may take minutes
    address = f"http://{host}:{options['sockets'][0].getsockname()[1]}"
    if len(models) == 1 and idle_seconds is None and memory is None:
        with opened(files[0]) as served:
            say.print(Text(f"{models[0].name} on {served.program.device.name}: {address}"))
            _prepare_process(max_connections)
            server.serve(served, name=named[0], **options)
        return
    for file in files:
        if not file.exists():
            raise InputError(f"there is no file {file}")
    say.print(Text(f"{', '.join(named)}: {address}"))
    on_demand = [
        server.ModelFile(name, partial(opened, file), _nbytes(file))
        for name, file in zip(named, files, strict=True)
    ]
    limit = None if memory is None else memory << 20
    _prepare_process(max_connections)
    server.serve(on_demand, idle_seconds=idle_seconds, memory=limit, **options)


def _prepare_process(connections: int) -> None:
    """Switches of the whole process, which only serves."""
    # How long the event loop waits for Python's lock while the scheduler's thread computes.
    sys.setswitchinterval(0.0005)
    gc.freeze()  # the garbage collector need not look at a loaded model again
    try:
        import resource
    except ImportError:  # Windows does not limit open files
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 100  # each is an open file, and the default is often about a thousand
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _reserved(host: str, port: int) -> list[socket]:
    from pteron.server.connections import reserved

    try:
        return reserved(host, port)
    except OSError as error:
        raise InputError(
            f"the server cannot listen on {host}:{port} ({error.strerror}): choose another --host or --port"
        ) from None


def _names(models: list[Path], names: list[str] | None) -> list[str]:
    if names and len(names) != len(models):
        raise InputError(
            f"--alias is given {len(names)} times for {len(models)} models: give it once for each"
        )
    return names or [model.stem for model in models]


def _nbytes(model: Path) -> int:
    """The size of a model's file, or of all files in its folder."""
    files = model.rglob("*.safetensors") if model.is_dir() else [model]
    return sum(file.stat().st_size for file in files)


@contextmanager
def _opened(model: Path, device: str | None, **options: Any) -> Iterator[LanguageModel | Embedder]:
    """A language model or an embedder."""
    from pteron.llm.embedder import is_embedder, load_embedder

    model = convert_if_needed(model, options["context_length"], options["ubatch"])
    if is_embedder(model):
        with load_embedder(model, tokenizer=options["tokenizer"], device=device) as embedder:
            yield embedder
    else:
        with open_model(model, device, **options) as llm:
            yield llm
