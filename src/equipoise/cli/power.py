"""`equipoise power`: how many units a trial needs, before it runs."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, StoreOption, console, print_json
from equipoise.cli._sides import BoundsOption, LowerBetterOption, Relation, open_sides

LEVEL = 0.95


def command(
    file: Annotated[
        str | None,
        typer.Argument(help="A trial file; or a pilot: a file of outcomes of two arms, or a run."),
    ] = None,
    pilot: Annotated[
        str | None, typer.Option(help="With a trial file: a run or file to plan from.")
    ] = None,
    effect: Annotated[
        float | None, typer.Option(help="The true effect to plan for. Default: the pilot's.")
    ] = None,
    claim: Annotated[
        Relation, typer.Option(help="Without a trial file: what is to be shown.")
    ] = Relation.beats,
    margin: Annotated[float, typer.Option(help="Margin of the claim.", min=0)] = 0.0,
    claims: Annotated[
        int | None, typer.Option(help="How many claims share the error (Bonferroni).", min=1)
    ] = None,
    units: Annotated[int | None, typer.Option(help="Units planned.", min=2)] = None,
    arm: Annotated[str | None, typer.Option(help="The arm that is to be better.")] = None,
    score: Annotated[str | None, typer.Option(help="The score; default: the first.")] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = LEVEL,
    rate: Annotated[
        float | None, typer.Option(help="Without a pilot: how often the first arm is right.")
    ] = None,
    correlation: Annotated[
        float, typer.Option(help="With --rate: correlation of the arms' answers over units.")
    ] = 0.5,
    sd: Annotated[
        float | None,
        typer.Option(help="Without a pilot: standard deviation of a unit's difference.", min=0),
    ] = None,
    cluster_size: Annotated[
        float, typer.Option(help="With --rate or --sd: units a cluster.", min=1)
    ] = 1.0,
    icc: Annotated[
        float,
        typer.Option(help="With --cluster-size: correlation within clusters.", min=0, max=1),
    ] = 0.0,
    plot: Annotated[Path | None, typer.Option(help="Write the power curves here, as SVG.")] = None,
    lower_better: LowerBetterOption = None,
    bounds: BoundsOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Say how many units each claim needs, from a pilot or from rates.

    A trial file plans from what the store has of it, or from --pilot. Nothing
    runs. Clusters, repeats, several claims and costs are reckoned with, and the
    range says how far a small pilot may be off.
    """
    from equipoise.core.errors import UsageError
    from equipoise.report import power as report

    if not 0.5 < level < 1:
        raise UsageError(f"--level must be between 0.5 and 1, got {level:g}.")
    for name, number in (("effect", effect), ("sd", sd)):
        if number is not None and not isfinite(number):
            raise UsageError(f"--{name} must be a finite number, got {number:g}.")
    if claim is not Relation.beats and not margin:
        raise UsageError(f"{claim.value} needs a margin above 0, as in --margin 0.02.")
    files = (lower_better or (), bounds or ())
    if file is None:
        _unused("without a file the plan is from --rate or --sd", pilot=pilot, arm=arm, score=score,
                lower_better=lower_better, bounds=bounds)  # fmt: skip
        if icc and cluster_size == 1:
            raise UsageError("--icc needs --cluster-size, the units a cluster.")
        rows = _from_rates(
            rate, effect, correlation, sd, cluster_size, icc,
            (claim.value, margin, claims or 1, units, level),
        )  # fmt: skip
        found: dict[str, Any] = {"claims": rows}
    elif rate is not None or sd is not None:
        raise UsageError("Plan from a file or from --rate or --sd, not from both.")
    elif cluster_size > 1 or icc:
        raise UsageError("--cluster-size and --icc go with --rate or --sd; a pilot shows its own.")
    elif Path(file).suffix.lower() in (".yaml", ".yml"):
        _unused("the trial file says it", claim=claim is not Relation.beats, margin=margin,
                claims=claims, arm=arm, score=score, level=level != LEVEL)  # fmt: skip
        found = _from_trial(Path(file), pilot, effect, units, store, files)
    else:
        if pilot is not None:
            raise UsageError("--pilot goes with a trial file; here the file is the pilot.")
        found = _from_pilot(
            file, effect, (claim.value, margin, claims, units, level), arm, score, store, files
        )
    if plot is not None:
        if plot.suffix.lower() != ".svg":
            raise UsageError(f"--plot {plot}: the name must end in .svg.")
        report.sketch(found, plot)
    if json:
        print_json(found)
    else:
        report.terminal(found, console())


def _unused(why: str, **given: Any) -> None:
    """Refuse options that would not count."""
    from equipoise.core.errors import UsageError

    for name, value in given.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')} would not count here: {why}.")


def _from_trial(
    file: Path, pilot: str | None, effect: float | None, units: int | None, store: str | None,
    files: tuple[Any, Any],
) -> dict[str, Any]:  # fmt: skip
    from contextlib import ExitStack

    from equipoise.core.errors import UsageError
    from equipoise.store import Store, default_store, is_there
    from equipoise.trial import load
    from equipoise.trial.planning import sizes
    from equipoise.trial.power import pilot_of, plan_claims

    trial = load(file)
    if not trial.claims:
        raise UsageError(f"{file} states no claims, so there is nothing to plan for.")
    if units is not None:
        trial = trial.with_units(units)
    with ExitStack() as stack:
        if pilot is not None:
            side, _ = stack.enter_context(open_sides(pilot, None, store, *files))
        else:
            place = store or default_store()
            side = None
            if is_there(place):
                side = pilot_of(trial, stack.enter_context(Store.open(place, readonly=True)))
            if side is None or not side.arms:
                raise UsageError(
                    f"There are no outcomes of {trial.name} yet; `equipoise run {file} --units 30`"
                    " makes a pilot, or name a run or a file with --pilot."
                )
        rows = plan_claims(
            side,
            trial.claims,
            level=trial.level,
            planned=sizes(trial, list(dict.fromkeys(each.on for each in trial.claims))),
            repeats=trial.repeats,
            errors=trial.errors,
            assumed=effect,
        )
    notices = list(side.notices)
    if trial.stop == "early":
        notices.append(
            "The plan is for a trial of fixed size; one that may stop early ends sooner where the"
            " effect is large and needs more units where it is small."
        )
    return {"trial": trial.name, "claims": rows, "notices": notices}


def _from_pilot(
    file: str, effect: float | None, asked: tuple[Any, ...], arm: str | None, score: str | None,
    store: str | None, files: tuple[Any, Any],
) -> dict[str, Any]:  # fmt: skip
    from equipoise.core.errors import UsageError, nearest
    from equipoise.trial.power import plan_claims
    from equipoise.trial.trial import Claim

    relation, margin, family, units, level = asked
    with open_sides(file, None, store, *files) as (side, _):
        control, *others = side.arms
        if arm is not None:
            if arm not in others:
                raise UsageError(f'No arm "{arm}" beside {control}.{nearest(arm, others)}')
            others = [arm]
        if not others:
            raise UsageError(f"{side.name} has one arm; a plan needs a pilot of two.")
        stated = [
            Claim(other, relation, control, task, margin, score)
            for other in others
            for task in side.arms[other]
            if task in side.arms[control]
        ]
        if not stated:
            raise UsageError(f"The arms of {side.name} share no task.")
        planned = {} if units is None else dict.fromkeys(side.tasks, units)
        rows = plan_claims(
            side, stated, level=level, planned=planned, assumed=effect, family=family
        )
    return {"pilot": side.name, "claims": rows, "notices": list(side.notices)}


def _from_rates(
    rate: float | None, effect: float | None, correlation: float, sd: float | None,
    cluster_size: float, icc: float, asked: tuple[Any, ...],
) -> list[dict[str, Any]]:  # fmt: skip
    import math

    from equipoise.core.errors import UsageError
    from equipoise.kit.statistics.power import PairedDesign, discordance
    from equipoise.trial.power import Knowledge, plan_row
    from equipoise.trial.trial import Claim
    from equipoise.trial.verdict import claim_level

    relation, margin, family, units, level = asked
    if (rate is None) == (sd is None):
        raise UsageError(
            "Name a trial file or a pilot, or say --rate (of passes) or --sd (of differences)."
        )
    if effect is None and relation == "beats":
        raise UsageError("Without a pilot the effect must be given: --effect 0.03.")
    deff = 1 + (cluster_size - 1) * icc
    if rate is not None:
        share = discordance(rate, effect or 0.0, correlation)
        spread = math.sqrt(share - (effect or 0.0) ** 2)
        design = PairedDesign(discordant=share)
        said = f"arms right {rate:g} and {rate + (effect or 0.0):g} of the time, correlation"
        said += f" {correlation:g}: they differ on {share:.1%} of the units"
    else:
        spread, said = sd or 0.0, f"standard deviation of a difference {sd:g}"
        design = PairedDesign(sd=spread)
    if cluster_size > 1:
        design = PairedDesign(sd=spread * math.sqrt(deff), clusters_per_unit=1 / cluster_size)
        said += f"; clusters of {cluster_size:g} multiply the variance by {deff:.2f}"
    claim = Claim("second", relation, "first", "any task", margin)
    known = Knowledge(design, None, {}, None, {})
    row = plan_row(claim, known, claim_level(claim, level, family), assumed=effect, planned=units)
    row["notes"] = [f"Assumed: {said}.", *row["notes"]]
    return [row]
