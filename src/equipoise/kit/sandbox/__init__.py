"""A place to run programs that nobody vouches for, without containers.

>>> from equipoise.kit.sandbox import Sandbox
>>> with Sandbox() as sandbox:  # doctest: +SKIP
...     sandbox.run_python("print(6 * 7)").text
'42\\n'

Each program gets a fresh world: processes, network, scratch folder and root of its own; it sees
system libraries and this Python, read-only, and nothing else. What holds it is told by
`isolation_level`, kept with every outcome, and never weaker than what was asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.kit.sandbox.pool import Sandbox as Sandbox
    from equipoise.kit.sandbox.pool import isolation_level as isolation_level
    from equipoise.kit.sandbox.results import Completed as Completed
    from equipoise.kit.sandbox.results import Limits as Limits

# Loaded on first use: what runs inside imports this package and nothing more.
_WHERE = {
    "Completed": "results",
    "Limits": "results",
    "Sandbox": "pool",
    "isolation_level": "pool",
}

__all__ = ["Completed", "Limits", "Sandbox", "isolation_level"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
