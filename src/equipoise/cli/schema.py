"""`equipoise schema`: the JSON Schema of trial files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import print_json


def command(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.")
    ] = None,
) -> None:
    """Print the JSON Schema of trial files, for editors.

    Save it and begin a trial file with
    `# yaml-language-server: $schema=trial.schema.json` to have an editor
    complete keys, parts and parameters, and mark mistakes.
    """
    import json

    from equipoise.trial.jsonschema import trial_schema

    if output is None:
        print_json(trial_schema())
    else:
        output.write_text(json.dumps(trial_schema(), indent=2) + "\n", encoding="utf-8")
