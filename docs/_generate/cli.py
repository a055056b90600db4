"""The page of the command line, from the commands' own help."""

from __future__ import annotations

import typer

from equipoise.cli._app import COMMANDS, load_command

HEAD = """\
# Commands

`equipoise COMMAND --help` shows what stands here. What `--json` prints and what exit
codes mean is told in [machine output](../guide/machine-output.md).
"""


def page() -> str:
    """Return every command's help at 80 columns."""
    lines = [HEAD]
    for name, summary in COMMANDS.items():
        lines += [f"## {name}", "", summary, "", "```text", _help(name), "```", ""]
    return "\n".join(lines)


def _help(name: str) -> str:
    command = load_command(name)
    context = typer.Context(command, info_name=f"equipoise {name}", terminal_width=80)
    context.help_option_names = ["-h", "--help"]
    return str(command.get_help(context)).rstrip()
