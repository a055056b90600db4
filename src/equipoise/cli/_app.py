"""The group of commands; each is imported only when called or asked for help."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from equipoise import __version__

if TYPE_CHECKING:
    from equipoise.core.errors import EquipoiseError

COMMANDS = {
    "run": "Run a trial file and say what came of it.",
    "plan": "Show what a trial would run, what is done already, and the likely cost.",
    "show": "Show a run again, or one of its units with the whole conversation.",
    "view": "Look at trials, units and verdicts in a browser.",
    "treat": "Edit a language model and write the edited one into a folder.",
    "compare": "Compare two runs, or two arms of runs, on the units they share.",
    "rate": "Rate models by how they compare: Elo, Bradley-Terry, equilibrium.",
    "power": "Say how many units a trial needs, from a pilot or from rates.",
    "report": "Write the HTML, Markdown or JUnit report of a run.",
    "replicate": "Run the trial that shows a paper's headline claim.",
    "list": "List the parts: subjects, treatments, tasks, measures.",
    "describe": "Explain a part: what it does, its parameters, its paper.",
    "export": "Write a run's outcomes to Parquet, JSONL or CSV.",
    "import": "Take outcomes that another tool made.",
    "new": "Write the skeleton of a new part.",
    "schema": "Print the JSON Schema of trial files, for editors.",
    "doctor": "Check this machine: versions, cores, memory, models, store.",
}


class _Group(TyperGroup):
    """Lists commands by name and summary; imports one when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if _only_listing(ctx):
            return typer.core.TyperCommand(cmd_name, callback=lambda: None, help=COMMANDS[cmd_name])
        return load_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            from equipoise.core.errors import UsageError, nearest

            raise UsageError(
                f'No command "{name}".{nearest(name, COMMANDS)} All: equipoise --help.'
            )
        return super().resolve_command(ctx, args)


def _only_listing(ctx: Any) -> bool:
    if "_EQUIPOISE_COMPLETE" in os.environ:  # the shell asks for a command's options
        return False
    return not any(word in COMMANDS for word in ctx.obj or ())


def load_command(name: str) -> Any:
    """Import a command's module and return its click command."""
    module = import_module(
        f"equipoise.cli.{name}_" if name == "import" else f"equipoise.cli.{name}"
    )
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=None)(module.command)
    command = typer.main.get_command(single)
    command.name = name
    command.short_help = COMMANDS[name]
    return command


def _version(value: bool) -> None:
    if value:
        typer.echo(f"equipoise {__version__}")
        raise typer.Exit


_typer = typer.Typer(
    cls=_Group,
    name="equipoise",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Controlled trials of models: from a short file to a verdict with a stated uncertainty.",
    epilog="Start: equipoise run examples/four_bit_activations.yaml",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_typer.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None: ...


def app(arguments: list[str] | None = None) -> None:
    """Parse the command line, run the command and exit; our own errors come out."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    typer.main.get_command(_typer).main(args=words, prog_name="equipoise", obj=tuple(words))


def report_error(error: EquipoiseError) -> int:
    """Print an error as its sentence and return its exit code."""
    print(error, file=sys.stderr)  # noqa: T201
    return error.exit_code
