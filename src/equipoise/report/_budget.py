"""How a trial with ``allocate`` spent its budget: in sentences, and arm by arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.report import words

Row = Mapping[str, Any]

POLICIES = {"bandit": "UCB-E", "low_rank": "UCB-E-LRF"}
NAMED = 6
"""Arms listed by name in a sentence."""


def sentences(row: Row) -> list[str]:
    """Return what was run and saved, who leads, at what risk, and how to confirm it.

    ``row`` is a result's JSON; without an ``allocation`` there is nothing to say.
    """
    spent = row.get("allocation")
    if not spent:
        return []
    found = [_ran(spent), _saved(spent)]
    if spent["leader"] is None:
        return [*found, "Not one cell has a score, so no arm leads."]
    leader = next(each for each in spent["arms"] if each["arm"] == spent["leader"])
    value = f"{words.number(leader['value'])} {words.interval(leader)}"
    if "model" in leader:
        model = words.number(leader["model"])
        found.append(
            f"{leader['arm']} leads in the low-rank model, with {model} ({spent['score']}). The "
            f"mean of its units drawn at random is {value}. {_rivals(spent, leader)}"
        )
    else:
        found.append(
            f"{leader['arm']} leads with {value} ({spent['score']}). {_rivals(spent, leader)}"
        )
    sure = f"With {100 * spent['level']:.4g} % confidence"
    if spent["risk"]:
        risk = words.number(spent["risk"])
        found.append(f"Risk: {sure.lower()} no arm is better than it by more than {risk}.")
    else:
        found.append(f"{sure} no arm is better than it.")
    found.append(_confirm(row, spent, leader))
    return [each for each in found if each]


def _ran(spent: Row) -> str:
    name = POLICIES.get(spent["policy"], spent["policy"])
    share = spent["units"] / spent["of"] if spent["of"] else 0.0
    return (
        f"{spent['units']:,} of {spent['of']:,} outcomes ({share:.1%}) were chosen, in "
        f"{spent['decisions']:,} decisions by {name}."
    )


def _saved(spent: Row) -> str:
    saved = spent["saved"]
    if not saved["units"]:
        return "Nothing was left to save: every arm did every unit."
    costs = [f"about {words.seconds(saved['seconds'])}"]
    if saved["tokens"]:
        costs.append(f"{saved['tokens']:,.0f} tokens")
    if saved["dollars"]:
        costs.append(f"{saved['dollars']:,.2f} dollars")
    listed = costs[0] if len(costs) == 1 else f"{', '.join(costs[:-1])} and {costs[-1]}"
    return f"Saved: {saved['units']:,} outcomes, {listed} by what the arms cost so far."


def _rivals(spent: Row, leader: Row) -> str:
    others = [each["arm"] for each in ranked(spent) if each["open"] and each is not leader]
    if not others:
        return "Every other arm is ruled out as the best."
    count = len(spent["arms"]) - 1
    listed = ", ".join(others[:NAMED])
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    if len(others) == count:
        return f"No other arm is ruled out as the best: {listed}{more}."
    return f"Of {count} others {len(others)} may be the best as well: {listed}{more}."


def _confirm(row: Row, spent: Row, leader: Row) -> str:
    order = [each["arm"] for each in ranked(spent) if _rank(each) is not None]
    second = next((arm for arm in order if arm != leader["arm"]), None)
    control = row.get("control")
    other = second if control in (None, leader["arm"]) else control
    bias = "The mean of an arm that was chosen because it did well is probably too high."
    if spent["policy"] == "low_rank":
        bias = (
            "The model's numbers rank arms and are no means: they are drawn towards the worst "
            "value where few cells are known. Intervals rest on the units drawn at random before "
            "the choice began."
        )
    if other is None:
        return bias
    return (
        f"{bias} To confirm, run {leader['arm']} against {other} without allocate on other units: "
        "another seed where the task makes its units up, or other data."
    )


def ranked(spent: Row) -> list[Row]:
    """Return the arms, the best estimate first and those without one last."""
    sign = -1.0 if spent["higher_is_better"] else 1.0
    return sorted(spent["arms"], key=lambda arm: (_rank(arm) is None, sign * (_rank(arm) or 0.0)))


def _rank(arm: Row) -> float | None:
    """Return the estimate that the policy ranks by."""
    found: float | None = arm.get("model", arm["value"])
    return found


def ended(row: Row) -> str:
    """Return how the run ended, in a sentence, or nothing where it ran to the end."""
    if row.get("status") == "early":
        what = "every claim was decided" if row.get("claims") else "the best arm was decided"
        return f"Ended early: {what}, by intervals that allow looking at every moment."
    if row.get("status") == "budget":
        return "Ended by the budget, on the cells that were chosen."
    return ""


def table(spent: Row) -> list[tuple[str, str, str, str, str]]:
    """Return arm, outcomes, share of the budget, estimate and whether it may be the best."""
    return [
        (
            each["arm"],
            f"{each['units']:,}",
            f"{each['units'] / max(1, spent['units']):.1%}",
            f"{words.number(each['value'])} {words.interval(each)}",
            "leads" if each["arm"] == spent["leader"] else "" if each["open"] else "ruled out",
        )
        for each in ranked(spent)
    ]


def _modelled(arm: Row) -> str:
    return f"model {words.number(arm['model'])}" if "model" in arm else ""


HEAD: Sequence[str] = ("arm", "outcomes", "share", "estimate", "")


def page(row: Row) -> dict[str, Any] | None:
    """Return the page's section, or None where nothing was allocated."""
    from equipoise.report import charts, svg

    spent = row.get("allocation")
    if not spent:
        return None
    most = max(1, *(each["units"] for each in spent["arms"]))
    scale = charts.Scale.over(
        [v for each in spent["arms"] for v in (each["value"], each["low"], each["high"])]
    )
    lines = []
    for each, said in zip(ranked(spent), table(spent), strict=True):
        tone = "good" if each["arm"] == spent["leader"] else "mark" if each["open"] else "open"
        width = svg.percent(100 * each["units"] / most)
        label = f"{said[1]} outcomes, {said[2]} of the budget"
        bar = [svg.tag("rect", x=0, y=9, width=width, height=12, cls="column s0")]
        lines.append(
            {
                "arm": each["arm"],
                "tone": tone,
                "outcomes": said[1],
                "share": said[2],
                "said": ", ".join(filter(None, (said[4], _modelled(each)))),
                "value": words.number(each["value"]),
                "interval": words.interval(each),
                "bar": svg.picture(bar, 30, label, "chart"),
                "chart": charts.interval(each, scale, tone=tone, label=said[3]),
            }
        )
    better = ("← worse", "better →") if spent["higher_is_better"] else ("← better", "worse →")
    return {
        "sentences": sentences(row),
        "lines": lines[:SHOWN],
        "folded": lines[SHOWN:],
        "axis": charts.axis(scale, *better),
        "score": spent["score"],
    }


SHOWN = 20
"""Arms shown at once; the others are folded away."""
