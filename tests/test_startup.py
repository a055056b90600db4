"""Start-up stays light: what a command does not need is not imported."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "polars", "transformers", "sklearn", "scipy", "pandas", "altair", "sqlalchemy")


def modules_after(code):
    script = (
        "import sys, json, io, contextlib\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    try:\n"
        f"        {code}\n"
        "    except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("import equipoise", ("numpy", "yaml", "typer")),
        ("from equipoise.cli import main; main(['--help'])", ("numpy", "yaml", "pydantic")),
        ("from equipoise.cli import main; main(['list', '--json'])", ("numpy",)),
        ("from equipoise.cli import main; main(['run', '--help'])", ("numpy",)),
        ("import equipoise.core", ()),
        ("import equipoise.trial", ("numpy", "pydantic")),
    ],
)
def test_nothing_heavy_is_imported(code, more):
    loaded = modules_after(code)
    assert not [name for name in (*HEAVY, *more) if name in loaded]


def test_every_public_name_exists():
    import equipoise

    for name in equipoise.__all__:
        assert getattr(equipoise, name) is not None
