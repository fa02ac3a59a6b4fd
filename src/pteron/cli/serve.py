"""`pteron serve`: a language model or an embedder behind the OpenAI API."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from pteron.cli import common, language, sampling_flags
from pteron.cli.language import ModelSource, located, opened, ready
from pteron.cli.progress import progress_console
from pteron.cli.sampling_flags import Policy


class LogForm(StrEnum):
    plain = "plain"
    json = "json"


def serve(
    model: language.Model,
    from_hub: language.FromHub = False,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on.")] = 8080,
    sessions: Annotated[
        int, typer.Option("-np", "--parallel", min=1, help="Answers at the same time, each with a KV cache.")
    ] = 4,
    kv_memory: Annotated[
        int | None,
        typer.Option("--kv-memory", min=1, help="The most MiB for KV caches: fewer answers at a time."),
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Requests that may wait; more get 429.")] = 16,
    name: Annotated[
        str | None, typer.Option("-a", "--alias", help="The name of the model. Default: the file name.")
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
    log_format: Annotated[
        LogForm, typer.Option("--log-format", help="json: one JSON object per line, for each request.")
    ] = LogForm.plain,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="A web origin that may use it; *: any. Repeatable."),
    ] = None,
    allow_special: language.AllowSpecial = False,
    policy: sampling_flags.ContextPolicy = Policy.stop,
    context: language.Context = 0,
    kv_dtype: language.KvDtype = language.KvType.f16,
    tokenizer: language.TokenizerPath = None,
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Serve a language model or an embedder to OpenAI clients."""
    from pteron import server  # fails at once if the extra is not installed
    from pteron.llm.embedder import is_embedder, load_embedder

    program = ready(located(model, from_hub), context)
    with (
        load_embedder(program, tokenizer=tokenizer, device=device)
        if is_embedder(program)
        else opened(ModelSource(program, tokenizer, data, device, context, kv_dtype))
    ) as served:
        say = progress_console()
        say.print(Text(f"{model.name} on {served.program.device.name}: http://{host}:{port}/v1"))
        if host not in server.LOOPBACK and api_key is None:
            say.print(Text("anyone who reaches this address can use the model: consider --api-key", "yellow"))
        server.serve(
            served,
            host=host,
            port=port,
            name=name or model.stem,
            sessions=sessions,
            kv_memory=None if kv_memory is None else kv_memory << 20,
            queue=queue,
            api_key=api_key,
            log_format=log_format.value,
            cors=cors or (),
            allow_special=allow_special,
            context_policy=policy.value,
            limits=server.Limits(body=max_body << 20, connections=max_connections),
        )
