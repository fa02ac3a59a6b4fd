"""`pteron`: the commands, and how errors are printed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pteron.cli import cache
from pteron.cli.bench import bench
from pteron.cli.chat import chat
from pteron.cli.check import check
from pteron.cli.compare import compare
from pteron.cli.convert import convert
from pteron.cli.devices import devices
from pteron.cli.doctor import doctor
from pteron.cli.embed import embed
from pteron.cli.export import export
from pteron.cli.generate import generate
from pteron.cli.inspect import inspect
from pteron.cli.llama_flags import LlamaCommand
from pteron.cli.map_file import map_file
from pteron.cli.profile import profile
from pteron.cli.run import run
from pteron.cli.serve import serve
from pteron.cli.terminal import complain, in_words, print_json
from pteron.cli.tune import tune
from pteron.cli.verify import verify
from pteron.cli.view import view
from pteron.cli.web import web
from pteron.errors import PteronError

# click's exception for bad arguments. New versions of typer have a click of their own.
UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class Commands(TyperGroup):
    """Prints errors that a user can cause as one line, or as JSON. Other errors keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        as_json = "--json" in (*ctx._protected_args, *ctx.args)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader closed the pipe; click sets the exit code
        except UsageProblem as error:
            if not as_json:
                raise
            told: Any = error
            print_json({"error": told.format_message()})
            raise typer.Exit(told.exit_code) from None
        except (PteronError, OSError) as error:
            if ctx.params.get("traceback"):
                raise
            if as_json:
                print_json({"error": in_words(error)})
            else:
                complain(in_words(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    name="pteron",
    help="Run and inspect PyTorch programs (.pte files) on any GPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from pteron import __version__

        typer.echo(f"pteron {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", envvar="PTERON_TRACEBACK", help="Show the traceback of an error.")
    ] = False,
) -> None:
    pass


app.command()(run)
app.command()(inspect)
app.command()(view)
app.command(cls=LlamaCommand)(chat)
app.command(cls=LlamaCommand)(generate)
app.command(cls=LlamaCommand)(serve)
app.command(cls=LlamaCommand)(embed)
app.command()(web)
app.command("map")(map_file)
app.command()(convert)
app.command()(compare)
app.add_typer(cache.app, name="cache")
app.command()(export)
app.command()(check)
app.command()(verify)
app.command()(profile)
app.command(cls=LlamaCommand)(bench)
app.command()(tune)
app.command()(devices)
app.command()(doctor)
