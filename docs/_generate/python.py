"""The pages of the Python interface, from docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from equipoise.report.docstrings import Docstring, definition_list, definitions, examples, markdown

GROUPS = (
    (
        "Run a trial",
        "equipoise.trial",
        ("load", "loads", "plan", "run", "Trial", "Arm", "Claim", "Budget", "Result"),
    ),
    ("Build parts by name", "equipoise.catalog", ("part", "catalog", "identity", "recipe")),
    ("Write parts", "equipoise.core", ("Subject", "Treatment", "Task", "Measure", "learnable")),
    ("Parameters", "equipoise.core", ("between", "one_of", "setting", "parameters")),
    ("Units and outcomes", "equipoise.core", ("Unit", "ScoreSpec", "Outcome", "Outcomes")),
    ("Estimates", "equipoise.core", ("Estimate",)),
    ("Randomness", "equipoise.core", ("Rng",)),
    ("Language", "equipoise.core", ("Request", "Generation", "TokenScores", "Usage")),
    (
        "Capabilities",
        "equipoise.core",
        (
            "Generates", "GeneratesAsync", "ScoresText", "HasModule", "Embeds", "Predicts",
            "PredictsProba", "Acts", "Forecasts", "Trains", "Judges",
        ),
    ),
    ("Store", "equipoise.store", ("Store", "default_store")),
    ("Errors", "equipoise.core", ("EquipoiseError", "UsageError", "RunError", "UnitError")),
    ("Conformance", "equipoise.checks", ("checks_for", "verify")),
)  # fmt: skip
HOMES = {"Budget": "equipoise.trial.trial"}

HEAD = """\
# Python

Names marked with `equipoise.` alone come from the package itself:
`from equipoise import load, run`. They load on first use, so that `import equipoise`
costs nothing. The measures and their plain functions are in the
[catalogue](../catalogue/index.md), the statistics they stand on
[here](statistics.md).

```python
>>> import tempfile
>>> from pathlib import Path
>>> from equipoise import Trial, run
>>> from equipoise.kit.worlds.coins import Coin, Tosses
>>> from equipoise.trial import Arm, Claim
>>> trial = Trial(
...     "coins",
...     arms={"fair": Arm(Coin(0.5)), "bent": Arm(Coin(0.8))},
...     tasks={"toss": Tosses(200)},
...     claims=[Claim("bent", "beats", "fair", "toss")],
... )
>>> with tempfile.TemporaryDirectory() as folder:
...     result = run(trial, store=Path(folder) / "store.sqlite")
>>> print(result.verdict, result.claims[0].estimate)
supported 0.275 [0.183, 0.363]

```
"""

STATISTICS = """\
# Statistics

Plain functions of arrays, from `equipoise.kit.statistics`. They know clusters, repeats
and builds, and need nothing else of equipoise.
[Statistics explained](../guide/statistics.md) says what each assumes and when to trust it.

```python
>>> from equipoise.kit.statistics import paired_difference
>>> before = [0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0]
>>> after = [1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0]
>>> print(paired_difference(after, before))
0.333 [0.010, 0.609]

```
"""


def pages() -> dict[str, str]:
    """Return the pages of the interface and of the statistics."""
    import equipoise

    lines = [HEAD]
    for title, module, names in GROUPS:
        lines += [f"## {title}", ""]
        for name in names:
            home = HOMES.get(name, module)
            shown = "equipoise" if name in equipoise.__all__ else home
            lines += [entry(getattr(import_module(home), name), name, shown)]
    statistics = import_module("equipoise.kit.statistics")
    about = [STATISTICS]
    for name in statistics.__all__:
        about += [entry(getattr(statistics, name), name, "equipoise.kit.statistics", depth=2)]
    return {
        "reference/python.md": _tidy(lines),
        "reference/statistics.md": _tidy(about),
    }


def _tidy(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def entry(thing: Any, name: str, module: str, depth: int = 3) -> str:
    """Return the description of a class or function under a heading."""
    kind = "class" if inspect.isclass(thing) else "function"
    lines = [f"{'#' * depth} `{name}` {{ #{name} }}", "", f"{kind} in `{module}`", ""]
    lines += ["```python", _signature(thing, name), "```", "", body(inspect.getdoc(thing) or "")]
    if inspect.isclass(thing):
        lines += _methods(thing)
    return "\n".join([*lines, ""])


def body(doc: str) -> str:
    """Return a whole docstring as Markdown."""
    found = Docstring.of(doc)
    lines = [markdown(found.text), ""]
    for section, text in found.sections.items():
        if section == "Examples":
            lines += [examples(text), ""]
        elif section in ("Notes", "References"):
            lines += [f"*{section}.* {markdown(text)}", ""]
        else:
            lines += [f"*{section}*", "", definition_list(definitions(text)), ""]
    return "\n".join(lines)


def _methods(cls: type) -> list[str]:
    """Return the public methods and properties that a class defines itself."""
    lines = []
    for name, member in vars(cls).items():
        member = getattr(member, "__func__", member)  # classmethods and staticmethods
        prop = isinstance(member, property)
        if name.startswith("_") or not (prop or inspect.isfunction(member)):
            continue
        doc = inspect.getdoc(member)
        if not doc and not _is_protocol(cls):
            continue
        head = name if prop else _signature(member, name, drop_self=True)
        lines += [f"`{head}`", "", *_indented(doc or "")]
    return lines


def _indented(doc: str) -> list[str]:
    text = body(doc).strip() if doc else ""
    return [":   " + text.replace("\n", "\n    "), ""] if text else [""]


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _signature(thing: Callable[..., Any], name: str, *, drop_self: bool = False) -> str:
    """Return a call as a person would write it, over several lines where it is long."""
    if inspect.isclass(thing) and (_is_protocol(thing) or inspect.isabstract(thing)):
        return f"class {name}"
    if inspect.isclass(thing) and "__init__" not in vars(thing) and issubclass(thing, Exception):
        return f"class {name}({thing.__base__.__name__})"
    signature = inspect.signature(thing)
    given: list[str] = []
    for each in signature.parameters.values():
        if drop_self and each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and "*" not in given:
            given.append("*")
        given.append(_parameter(each))
    returns = signature.return_annotation
    end = "" if inspect.isclass(thing) or returns is signature.empty else f" -> {_type(returns)}"
    text = f"{name}({', '.join(given)}){end}"
    if len(text) <= 88 or drop_self:
        return text
    return f"{name}(\n    " + ",\n    ".join(given) + f",\n){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        plain = isinstance(parameter.default, (str, int, float, bool, tuple, type(None)))
        # An object or a factory has no short text, and often an address in it.
        shown = repr(parameter.default).replace("'", '"') if plain else "…"
        text += f" = {shown}"
    return text


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
