"""`equipoise treat`: edit a language model and keep the edited one."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, QuietOption, StoreOption, console, print_json

if TYPE_CHECKING:
    from equipoise.trial.trial import Arm


def command(
    subject: Annotated[str, typer.Argument(help="The model: `smollm2`, `hf:FOLDER`, `hf:NAME`.")],
    treatments: Annotated[
        list[str],
        typer.Option("--with", help="A treatment, `name(parameter=value)`; repeat for more."),
    ],
    save: Annotated[Path, typer.Option("--save", help="The folder to write.")],
    seed: Annotated[int, typer.Option(help="As in a trial file.", min=0)] = 0,
    build: Annotated[int, typer.Option(help="Which of a trial's builds.", min=0)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that is there.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Edit a language model and write the edited one into a folder.

    The folder is one of transformers wherever the edit has a static form; an
    edit that acts while the model runs gives a folder that equipoise opens, and
    this says so. Either is read back before it is kept, and opens as
    `hf:FOLDER`. Its model card holds the treatments, and the verdicts of trials
    in the store that had this arm.

    Example: equipoise treat smollm2 --with 'round_to_nearest(weights=4)' --save small
    """
    from equipoise.cli._specs import parse_spec
    from equipoise.core import Subject, Treatment, UsageError
    from equipoise.kit.progress import listening
    from equipoise.report.terminal import progress
    from equipoise.report.words import size
    from equipoise.trial.build import BuildFault
    from equipoise.trial.build import build as build_part
    from equipoise.trial.treat import treat
    from equipoise.trial.trial import Arm

    try:
        bare: Any = build_part(parse_spec(subject), Subject)
        steps: Any = [build_part(parse_spec(each), Treatment) for each in treatments]
    except BuildFault as fault:
        raise UsageError("\n".join(message for _, message in fault.faults)) from fault
    arm = Arm(bare, tuple(steps))

    def describe(folder: Path, plain: bool, reason: str) -> None:
        text = _card(arm, seed, store, plain, reason)
        (folder / "README.md").write_text(text, encoding="utf-8")

    with progress(console(stderr=True), quiet=quiet or json) as watcher, listening(watcher.making):
        made = treat(bare, steps, save, seed=seed, build=build, replace=force, describe=describe)
    weight = sum(path.stat().st_size for path in made.folder.iterdir())
    if json:
        print_json(
            {
                "folder": str(made.folder),
                "plain": made.plain,
                "reason": made.reason or None,
                "difference": made.difference,
                "bytes": weight,
                "identity": arm.identity(seed),
            }
        )
        return
    screen = console()
    screen.print(f"{made.folder}: {size(weight)}.", soft_wrap=True)
    if made.plain:
        screen.print("It opens with transformers, and as hf:FOLDER in a trial.")
    else:
        screen.print(f"It opens with equipoise only, as hf:FOLDER in a trial. {made.reason}")
    same = "are identical" if not made.difference else f"differ by at most {made.difference:.1g}"
    screen.print(f"Read back, its log-probabilities {same}.")


def _card(arm: Arm, seed: int, store: str | None, plain: bool, reason: str) -> str:
    from equipoise.report.model_card import model_card
    from equipoise.trial.provenance import provenance

    recipe = arm.as_json()
    identity = arm.identity(seed)
    about = {
        "provenance": provenance(shlex.join(["equipoise", *sys.argv[1:]])),
        "seed": seed,
        "identity": identity,
    }
    return model_card(
        subject=recipe["subject"],
        treatments=recipe["treatments"],
        about=about,
        loads_plain=plain,
        reason=reason,
        trials=_trials(identity, store),
    )


def _trials(identity: str, place: str | None, most: int = 3) -> list[tuple[str, Any]]:
    """Return the latest results of trials that had this arm, with its label there."""
    from equipoise.store import Store, default_store, is_there

    where = place or default_store()
    if not is_there(where):
        return []
    found: dict[str, tuple[str, Any]] = {}
    with Store.open(where, readonly=True) as store:
        number, _ = store.find(identity, "")
        for run in sorted(store.runs(), key=lambda each: -each["id"]):
            if number is None or len(found) == most:
                break
            whole = store.run(run["id"])
            label = next((c["arm_label"] for c in whole["covers"] if c["arm"] == number), None)
            if label is not None and whole.get("result") and whole["trial"] not in found:
                found[whole["trial"]] = (label, whole["result"])
    return list(found.values())
