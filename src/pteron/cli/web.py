"""`pteron web`: a static site that runs a program in the browser."""

from __future__ import annotations

import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from pteron._util.distinct_files import refuse_inputs
from pteron.cli import common, language
from pteron.cli.arguments import parse_bounds
from pteron.cli.language import convert_if_needed, fetch_model
from pteron.cli.output_places import prepare_folder
from pteron.cli.progress import progress_console
from pteron.cli.terminal import print_json


def web(
    model: Annotated[
        Path, typer.Argument(help="A .pte program, or a language model: a .gguf or Hugging Face folder.")
    ],
    folder: Annotated[Path, typer.Argument(help="The folder of the site. Files in it are replaced.")],
    serve: Annotated[bool, typer.Option("--serve", help="Serve the site here and open it.")] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0: any.")
    ] = 8000,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--no-chat", help="A chat page. Default: if the model has a tokenizer."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Its title. Default: the file name.")] = None,
    method: common.MethodName = "forward",
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="Freeze it only for software, full or gpu. Repeatable."),
    ] = None,
    from_hub: language.FromHub = False,
    context: language.Context = 0,
    kv_dtype: language.KvDtype = "f16",
    tokenizer: language.TokenizerPath = None,
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    as_json: common.AsJson = False,
) -> None:
    """Write a static site that runs a program on WebGPU, without Python in the browser."""
    from pteron.web.language_files import is_language_model
    from pteron.web.program_files import ALL
    from pteron.web.site import write_site

    say = progress_console()
    source = fetch_model(model, from_hub)
    refuse_inputs(folder, [source, *(data or []), *([tokenizer] if tokenizer else [])])
    prepare_folder(folder)
    file = convert_if_needed(source, context)
    write_site(
        file,
        folder,
        name=name or source.stem,
        chat=(tokenizer is not None or is_language_model(file)) if chat is None else chat,
        method=method,
        variants=variants or ALL,
        data_path=data or (),
        tokenizer=tokenizer,
        context_length=context or None,
        kv_dtype=kv_dtype,
        shapes=parse_bounds(bounds),
        progress=lambda what, *_: say.print(Text(what, "dim")),
    )
    nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if as_json:
        print_json({"folder": str(folder), "nbytes": nbytes})
    else:
        size = f"{nbytes / 1e6:.1f} MB"
        say.print(Text(f"{folder}: {size}. Any web server can serve it, over https or on localhost."))
    if serve:
        serve_folder(folder, port, say)


class _Files(SimpleHTTPRequestHandler):
    """Without a line on the console for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve_folder(folder: Path, port: int, say: Any) -> None:
    handler = partial(_Files, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        address = f"http://localhost:{server.server_port}/"
        try:
            say.print(Text(f"{address} (Ctrl-C ends it)"))
            webbrowser.open(address)
            server.serve_forever()
        except KeyboardInterrupt:
            say.print()
