"""The command line: a module per command, imported when it is called."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code.

    What `EquipoiseError` says is printed as one sentence; a bug keeps its
    traceback and exits with 4, since 1 means that a claim was refuted.
    """
    # Read when torch loads: threads that wait for each other sleep instead of spinning, which
    # on a machine with anything else to do is many times faster.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    # A function named in a trial file may stand beside it; last, so that it hides nothing.
    sys.path.append(os.getcwd())

    from equipoise.cli._app import app, report_error

    try:
        app(arguments)
    except BrokenPipeError:
        # The reader of a pipe went away, as `| head` does; that is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        from equipoise.core.errors import EquipoiseError

        if isinstance(error, EquipoiseError):
            sys.exit(report_error(error))
        import traceback

        traceback.print_exc()
        sys.exit(4)
