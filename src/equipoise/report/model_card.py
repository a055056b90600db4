"""The model card of a treated model: what was done, with what, and how it fared on trial."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.report import words
from equipoise.report._about import part, provenance
from equipoise.report._edits import COLUMNS, edits
from equipoise.report.markdown import plain


def model_card(
    *,
    subject: Any,
    treatments: Sequence[Any],
    about: Mapping[str, Any],
    loads_plain: bool,
    reason: str = "",
    notes: Sequence[str] = (),
    trials: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> str:
    """Return a model card in Markdown with a YAML head, as model hubs read it.

    Parameters
    ----------
    subject, treatments
        Recipes.
    about
        Seed, identity, versions and command.
    loads_plain
        Whether plain transformers opens the folder.
    reason
        Why it does not.
    notes
        What the making of the model had to say.
    trials
        Pairs of the arm's label and the result of a trial that had it, latest
        first.
    """
    name = part(subject)
    head = {
        "library_name": "transformers" if loads_plain else "equipoise",
        "base_model": name,
        "tags": ["equipoise", *(part(each).partition("(")[0] for each in treatments)],
    }
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", ""]
    lines += [f"# {plain(name)}, treated", "", "Made by equipoise from"]
    lines[-1] += f" {_code(name)}, by these treatments in order:"
    lines += ["", *(f"1. {_code(part(each))}" for each in treatments), "", "## Loading", ""]
    if loads_plain:
        lines.append("`transformers.AutoModelForCausalLM.from_pretrained(FOLDER)`, or `hf:FOLDER`")
        lines[-1] += " as the subject of a trial."
    else:
        lines.append("Only with equipoise, as `hf:FOLDER` in a trial.")
        lines[-1] += f" {plain(reason)}"
    lines += ["", *(f"> **Note:** {plain(note)}" for note in notes)]
    for label, result in trials:
        lines += ["", f"## On trial: {plain(result['trial'])}, arm {plain(label)}", ""]
        lines += _trial(label, result)
    lines += ["", "## Provenance", ""]
    lines += [f"- {key}: {plain(value)}" for key, value in provenance({"trial": "", **about})[1:]]
    lines += [f"- Seed: {about['seed']}", f"- Identity: {_code(about['identity'])}", ""]
    return "\n".join(lines)


def _trial(label: str, result: Mapping[str, Any]) -> list[str]:
    claims = [
        claim for claim in result["claims"] if label in (claim.get("arm"), claim.get("other"))
    ]
    found = ["| Verdict | Claim | Evidence |", "| --- | --- | --- |"] if claims else []
    found += [
        f"| {words.MARKS[each['verdict']]} **{each['verdict']}** | {plain(each['claim'])} |"
        f" {plain(words.evidence(each))} |"
        for each in claims
    ]
    mine = [line for line in edits(result) if line["arm"] == label]
    if mine:
        shown = [(name, mine[0][key]) for key, name in COLUMNS]
        found += ["", *(f"- {name}: {plain(value)}" for name, value in shown)]
    if result.get("provenance", {}).get("date"):
        found += ["", f"Run on {result['provenance']['date'][:10]}."]
    return found or ["No claim was about this arm."]


def _code(text: str) -> str:
    """Return text as code that no backtick in it ends."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"
