"""`equipoise rate`: how good models are, from how pairs of them compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli._shared import (
    JsonOption,
    QuietOption,
    StoreOption,
    console,
    open_store,
    print_json,
)

if TYPE_CHECKING:
    from equipoise.kit.statistics.comparisons import Comparisons


def command(
    file: Annotated[
        str,
        typer.Argument(
            help="Comparisons or scores: .csv, .tsv, .jsonl, .json, .parquet; or a run of the"
            " store: its number, a trial's name, or `last`."
        ),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            help="How: `bradley_terry` (the default), `elo_ratings(k=8)`, or any measure that"
            " rates; repeat for several side by side.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[float | None, typer.Option(help="Coverage of the intervals.")] = None,
    anchor: Annotated[
        str | None,
        typer.Option(help="MODEL=1000 moves all ratings so that the model is there."),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Show the first so many.", min=1)] = None,
    lower: Annotated[bool, typer.Option("--lower", help="The lower score wins.")] = False,
    task: Annotated[str | None, typer.Option(help="Of a run, this task alone.")] = None,
    seed: Annotated[int, typer.Option(help="Of resamples and random orders.", min=0)] = 0,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the ratings here.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw them: .svg, .png or .html.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rate models by how they compare: Elo, Bradley-Terry, equilibrium.

    The file has one comparison a row: model_a, model_b and winner (model_a,
    model_b, tie, or a name), or score from 0 to 1; prompt, cluster and weight
    if you have them. Or it has scores: model, prompt and score, or a row a
    model and a column a prompt; every two models are compared on every prompt
    both have. Comparisons in the same cluster, or where there is none on the
    same prompt, are not taken as independent.

    A rank such as 1–3 says where the model may be, given the data.

    Example: equipoise rate battles.csv --by bradley_terry --by 'elo_ratings(k=8)'
    --plot ratings.svg
    """
    from equipoise.core import Rng, UsageError, nearest
    from equipoise.kit.progress import listening
    from equipoise.report.ratings import FORMATS, interval_of, print_tables, write
    from equipoise.report.terminal import progress

    if level is not None and not 0.5 <= level < 1:
        raise UsageError(f"--level must be from 0.5 to below 1, got {level:g}.")
    if plot is not None and plot.suffix not in FORMATS:
        raise UsageError(f"--plot {plot}: the name must end in {', '.join(FORMATS)}.")
    measures = {each: _measure(each, level) for each in by or ["bradley_terry"]}
    place = None if anchor is None else _anchor(anchor)
    movable = {name for name, each in measures.items() if getattr(each, "relative", False)}
    if place is not None and not movable:
        raise UsageError(
            f"--anchor: ratings by {' and '.join(measures)} have a scale of their own that cannot"
            " be moved."
        )
    comparisons = _comparisons(file, lower, task, store)
    if place is not None and place[0] not in comparisons.models:
        raise UsageError(
            f'--anchor: there is no model "{place[0]}".{nearest(place[0], comparisons.models)}'
        )
    tables = []
    with progress(console(stderr=True), quiet=quiet or json) as watcher, listening(watcher.making):
        watcher.start(1, 0)
        for name, measure in measures.items():
            found = measure.rate(comparisons, Rng(seed).child("rate", name))
            tables.append(_table(name, found, comparisons, place if name in movable else None))
    about = _about(comparisons)
    if csv is not None:
        _write_csv(tables, csv)
    if plot is not None:
        caption = f"{about}\nLines are {interval_of(tables[0])}s."
        write(tables, f"Ratings of {Path(file).name}", caption, plot, top=top)
    if json:
        print_json(_as_json(tables, file, comparisons))
        return
    screen = console()
    print_tables(tables, screen, top=top)
    screen.print(about, style="dim")
    for path in (csv, plot):
        if path is not None:
            screen.print(f"Written: {path}", soft_wrap=True)


def _measure(text: str, level: float | None) -> Any:
    """Return the measure a ``--by`` names, if it rates."""
    from dataclasses import replace

    from equipoise.cli._specs import parse_spec
    from equipoise.core import Measure, UsageError
    from equipoise.kit.statistics.comparisons import Rates
    from equipoise.trial.build import BuildFault, build

    try:
        found: Any = build(parse_spec(text), Measure)
    except BuildFault as fault:
        raise UsageError("--by: " + " ".join(message for _, message in fault.faults)) from fault
    rates = isinstance(found, Rates)
    if not rates:
        raise UsageError(
            f"--by {text}: that measure does not rate models; for example bradley_terry and"
            " elo_ratings do."
        )
    if level is not None and hasattr(found, "level"):
        return replace(found, level=level)
    return found


def _anchor(text: str) -> tuple[str, float]:
    from equipoise.core import UsageError

    name, _, value = text.rpartition("=")
    try:
        place = float(value)
    except ValueError:
        place = math.nan
    if not name or not math.isfinite(place):
        raise UsageError(f"--anchor must be MODEL=POINTS, such as gpt=1000, got {text}.")
    return name, place


def _comparisons(file: str, lower: bool, task: str | None, store: str | None) -> Comparisons:
    from equipoise.core import UsageError
    from equipoise.kit.data.comparisons import read_comparisons
    from equipoise.kit.data.formats import FORMATS

    path = Path(file)
    looks = path.suffix.lower() in (*FORMATS, ".gz")
    if looks or path.exists() or file.startswith(("hf:", "builtin:")):
        if task is not None:
            raise UsageError("--task is for runs of the store; a file has none.")
        return read_comparisons(file, lower_is_better=lower)
    if lower:
        raise UsageError("--lower is for files; a task of a run says itself which score is better.")
    return _of_run(file, task, store)


def _of_run(which: str, task: str | None, place: str | None) -> Comparisons:
    """Return the arms of a run compared on every unit, by each task's first score."""
    from equipoise.core import UsageError, nearest
    from equipoise.kit.statistics.comparisons import Comparisons
    from equipoise.trial.compare import filled

    with open_store(place) as opened:
        run = opened.run(which)
        labels = list(dict.fromkeys(cell["task_label"] for cell in run["covers"]))
        if task is not None and task not in labels:
            raise UsageError(
                f'--task: there is no task "{task}" in that run.{nearest(task, labels)}'
            )
        parts = []
        for label in labels if task is None else [task]:
            cells = [cell for cell in run["covers"] if cell["task_label"] == label]
            outcomes = {
                cell["arm_label"]: filled(
                    opened.outcomes(
                        cell["arm"],
                        cell["task"],
                        **{name: cell[name] for name in ("units", "builds", "repeats")},
                    ),
                    "worst",
                )
                for cell in cells
            }
            specs = next(iter(outcomes.values())).specs
            if len(outcomes) > 1 and specs and specs[0].higher_is_better is not None:
                parts.append((label, Comparisons.between_arms(outcomes, specs[0].name)))
    if not parts:
        raise UsageError("No task of that run has two arms and a score that says which is better.")
    return _together(parts)


def _together(parts: Sequence[tuple[str, Comparisons]]) -> Comparisons:
    """Return comparisons of several tasks as one, their units and clusters kept apart."""
    import numpy as np

    from equipoise.kit.statistics.comparisons import Comparisons

    first: list[str] = []
    second: list[str] = []
    prompt: list[str] = []
    cluster: list[str] = []
    for label, met in parts:
        first += [met.models[each] for each in met.first]
        second += [met.models[each] for each in met.second]
        assert met.prompt is not None  # between arms, prompts and clusters are known
        assert met.cluster is not None
        prompt += [f"{label} {met.prompts[each]}" for each in met.prompt]
        cluster += [f"{label} {each}" for each in met.cluster]
    score = np.concatenate([met.score for _, met in parts])
    return Comparisons.of(first, second, score, prompt=prompt, cluster=cluster)


def _table(
    name: str,
    found: Mapping[str, Any],
    met: Comparisons,
    anchor: tuple[str, float] | None,
) -> dict[str, Any]:
    """Return one method's ratings as plain rows, the best first."""
    games = met.games()
    wins = met.wins().sum(axis=1)
    shift = 0.0 if anchor is None else anchor[1] - found[anchor[0]].value
    rated = {model: found[model] for model in met.models if model in found}
    ranks = _ranks(rated)
    rows: list[dict[str, Any]] = []
    for place, model in enumerate(met.models):
        if model not in rated:
            continue
        each = rated[model]
        rows.append(
            {
                "model": model,
                "rank_low": ranks[model][0],
                "rank_high": ranks[model][1],
                **{
                    key: getattr(each, key) + shift if math.isfinite(getattr(each, key)) else None
                    for key in ("value", "low", "high")
                },
                "games": int(games[place]),
                "win_rate": float(wins[place] / games[place]) if games[place] else None,
            }
        )
    rows.sort(key=lambda row: -(row["value"] if row["value"] is not None else -math.inf))
    one = next(iter(rated.values()))
    return {
        "by": name,
        "method": one.method,
        "level": one.level,
        "note": one.note,
        "anchor": None if anchor is None else {anchor[0]: anchor[1]},
        "rows": rows,
    }


def _ranks(rated: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the ranks each may have: the measure's own, else by intervals that do not overlap."""
    found = {}
    for name, each in rated.items():
        own = each.details
        if "rank_low" in own and "rank_high" in own:
            found[name] = (int(own["rank_low"]), int(own["rank_high"]))
            continue
        others = [other for other in rated.values() if other is not each]
        low = each.value if math.isnan(each.low) else each.low
        high = each.value if math.isnan(each.high) else each.high
        ahead = sum((o.value if math.isnan(o.low) else o.low) > high for o in others)
        behind = sum((o.value if math.isnan(o.high) else o.high) < low for o in others)
        found[name] = (1 + ahead, len(rated) - behind)
    return found


def _about(met: Comparisons) -> str:
    known = len(set(met.prompt.tolist())) if met.prompt is not None else 0
    on = f" on {known:,} prompts" if known else ""
    ties = float((met.score == 0.5).mean())
    return f"{len(met):,} comparisons of {len(met.models)} models{on}; {ties:.0%} are ties."


def _write_csv(tables: Sequence[Mapping[str, Any]], path: Path) -> None:
    import csv

    from equipoise.core import UsageError

    columns = ("by", *(key for key in tables[0]["rows"][0]))
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            for table in tables:
                writer.writerows({"by": table["by"], **row} for row in table["rows"])
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def _as_json(tables: Sequence[Mapping[str, Any]], file: str, met: Comparisons) -> dict[str, Any]:
    return {
        "file": file,
        "models": len(met.models),
        "comparisons": len(met),
        "prompts": len(set(met.prompt.tolist())) if met.prompt is not None else None,
        "ratings": list(tables),
    }
