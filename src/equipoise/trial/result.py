"""What a run ends with: verdicts, estimates, effects, costs. Its JSON is a contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from equipoise.core import Estimate

Verdict = Literal["supported", "refuted", "inconclusive"]
Status = Literal["finished", "early", "budget", "interrupted"]

EXIT_CODES: Mapping[str, int] = {"supported": 0, "refuted": 1, "inconclusive": 3}


@dataclass(frozen=True)
class ClaimResult:
    """A claim and what became of it.

    Parameters
    ----------
    claim
        The claim in words.
    verdict
        Supported, refuted or inconclusive.
    estimate
        The effect (how much better the arm is) or the value, with the
        interval the verdict was read from.
    parts
        The claim's fields, for machines.
    p_adjusted
        The p-value after Holm's correction over the trial's claims.
    reason
        Why a verdict was withheld, or what to keep in mind.
    more_units
        How many more units would probably settle it, where that can be said.
    """

    claim: str
    verdict: Verdict
    estimate: Estimate
    parts: Mapping[str, Any]
    p_adjusted: float | None = None
    reason: str = ""
    more_units: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON contract of a claim."""
        estimate = self.estimate.as_json()
        optional = {
            **self.parts,
            "p_adjusted": self.p_adjusted,
            "reason": self.reason or None,
            "more_units": self.more_units,
        }
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "estimate": estimate.pop("value"),
            **estimate,
            **{name: value for name, value in optional.items() if value is not None},
        }


@dataclass(frozen=True)
class Row:
    """One estimate: of an arm on a task, or of an effect against ``versus``."""

    arm: str
    task: str
    name: str
    estimate: Estimate
    versus: str | None = None
    higher_is_better: bool | None = True
    unit: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        found: dict[str, Any] = {
            "arm": self.arm,
            "task": self.task,
            "name": self.name,
            "versus": self.versus,
            "higher_is_better": self.higher_is_better,
            "unit": self.unit or None,
        }
        return {k: v for k, v in found.items() if v is not None} | self.estimate.as_json()


@dataclass(frozen=True)
class Result:
    """Everything a report needs but the units themselves, which stay in the store."""

    trial: str
    status: Status
    units: int
    errors: int
    seconds: float
    claims: Sequence[ClaimResult]
    estimates: Sequence[Row]
    effects: Sequence[Row]
    control: str = ""
    first_error: str = ""
    question: str = ""
    paper: str | None = None
    differs: str = ""
    reused: int = 0
    arms: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    costs: Sequence[Mapping[str, Any]] = ()
    edits: Sequence[Mapping[str, Any]] = ()
    figures: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()
    sequences: Sequence[Mapping[str, Any]] = ()
    allocation: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    level: float = 0.95
    policy: Literal["worst", "exclude"] = "worst"
    run: int | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Refuted if any claim is, else inconclusive if any is, else supported."""
        verdicts = {claim.verdict for claim in self.claims}
        order: tuple[Verdict, ...] = ("refuted", "inconclusive", "supported")
        return next((each for each in order if each in verdicts), None)

    @property
    def exit_code(self) -> int:
        """What the command line returns.

        A trial without claims that ran returns 0, one whose every unit failed 4.
        """
        if self.units and self.errors == self.units:
            return 4
        return EXIT_CODES[self.verdict] if self.verdict else 0

    def as_json(self) -> dict[str, Any]:
        """Return the JSON contract of ``run --json`` and ``replicate --json``."""
        found = {
            "trial": self.trial,
            "paper": self.paper,
            "question": self.question or None,
            "status": self.status,
            "verdict": self.verdict,
            "units": self.units,
            "errors": self.errors,
            "first_error": self.first_error or None,
            "reused": self.reused,
            "seconds": round(self.seconds, 3),
            "level": self.level,
            "policy": self.policy,
            "control": self.control,
            "claims": [claim.as_json() for claim in self.claims],
            "estimates": [row.as_json() for row in self.estimates],
            "effects": [row.as_json() for row in self.effects],
            "arms": self.arms,
            "tasks": self.tasks,
            "costs": list(self.costs),
            "edits": list(self.edits) or None,
            "figures": list(self.figures) or None,
            "notices": list(self.notices),
            "sequences": list(self.sequences) or None,
            "allocation": self.allocation,
            "differs": self.differs or None,
            "provenance": self.provenance,
            "run": self.run,
        }
        return {name: value for name, value in found.items() if value is not None}
