"""The schema of trial files, as pydantic models; editors complete from its JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from equipoise.trial.trial import Relation

PartFile = str | dict[str, Any]
"""A part in a file: ``id``, ``id:value`` for its first parameter, or ``{id: {parameters}}``."""

_RELATIONS: tuple[Relation, ...] = ("beats", "no_worse_than", "matches", "above", "below")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class ArmFile(_Strict):
    """An arm with a subject of its own, or one that does some of the tasks only."""

    subject: PartFile | None = Field(default=None, description="A subject other than the trial's.")
    treatments: list[PartFile] = Field(default=[], description="What is done to it, in order.")
    tasks: list[str] | None = Field(default=None, description="Its tasks; all if absent.")


class ClaimFile(_Strict):
    """A claim stated beforehand: one of beats, no_worse_than, matches, above, below."""

    arm: str = Field(description="The arm the claim is about.")
    on: str = Field(description="The task.")
    beats: str | None = Field(default=None, description="The arm it is better than (by a margin).")
    no_worse_than: str | None = Field(default=None, description="The arm it loses little against.")
    matches: str | None = Field(default=None, description="The arm it is equivalent to.")
    above: float | None = Field(default=None, description="A number the value is above.")
    below: float | None = Field(default=None, description="A number the value is below.")
    by: Annotated[float, Field(ge=0)] | None = Field(default=None, description="Margin of beats.")
    within: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Margin of no_worse_than and matches, in units of the score."
    )
    score: str | None = Field(default=None, description="A score other than the task's first.")
    measure: PartFile | None = Field(default=None, description="A measure other than the mean.")

    @model_validator(mode="after")
    def _one_relation(self) -> ClaimFile:
        given = [name for name in _RELATIONS if getattr(self, name) is not None]
        if len(given) != 1:
            has = " and ".join(given) or "none"
            raise ValueError(f"a claim takes one of {', '.join(_RELATIONS)}; this has {has}")
        if given[0] in ("no_worse_than", "matches") and self.within is None:
            raise ValueError(f"{given[0]} needs a margin, as in `within: 0.05`")
        if self.by is not None and given[0] != "beats":
            raise ValueError("`by` goes with beats; the others take `within`")
        if self.within is not None and given[0] not in ("no_worse_than", "matches"):
            raise ValueError("`within` goes with no_worse_than and matches")
        return self

    def relation(self) -> tuple[Relation, str | float]:
        """Return the relation and what it relates to."""
        return next((n, getattr(self, n)) for n in _RELATIONS if getattr(self, n) is not None)


class BudgetFile(_Strict):
    """Most a run may spend; what runs out first ends it cleanly."""

    units: Annotated[int, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    dollars: Annotated[float, Field(gt=0)] | None = None


class EditReportFile(_Strict):
    """Settings of the task ``edit``, which is added where an arm edits a language model."""

    windows: Annotated[int, Field(ge=1)] | None = Field(default=None, description="How many.")
    length: Annotated[int, Field(ge=2)] | None = Field(default=None, description="Tokens in one.")
    data: str | None = Field(default=None, description="Prose.")


class TrialFile(_Strict):
    """A trial file. Parts are written ``id``, ``id:value`` or ``{id: {parameter: value}}``."""

    trial: Annotated[str, Field(pattern=r"^[\w][\w .-]*$")] = Field(description="A short name.")
    question: str = Field(default="", description="What the trial is to answer, in a sentence.")
    subject: PartFile | None = Field(default=None, description="The thing on trial.")
    arms: dict[str, list[PartFile] | ArmFile | None] = Field(
        description="Label to treatments; the first arm is the control.", min_length=1
    )
    tasks: dict[str, PartFile] = Field(description="Label to task.", min_length=1)
    measures: dict[str, list[PartFile]] = Field(
        default={}, description="Task label to measures reported beside the mean."
    )
    claims: list[ClaimFile] = Field(default=[], description="What the verdicts are about.")
    seed: Annotated[int, Field(ge=0)] = 0
    repeats: Annotated[int, Field(ge=1)] = Field(default=1, description="Times each unit is asked.")
    builds: Annotated[int, Field(ge=1)] = Field(
        default=1, description="How often an arm with random treatments is made."
    )
    units: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Most units a task."
    )
    level: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    errors: Literal["worst", "exclude"] = "worst"
    stop: Literal["early"] | None = Field(default=None, description="End when all is decided.")
    budget: BudgetFile = BudgetFile()
    allocate: Literal["bandit", "low_rank"] | None = Field(
        default=None, description="Choose which arm runs which units next, to find the best arm."
    )
    edit_report: bool | EditReportFile = Field(
        default=True, description="How far edited language models are from their reference."
    )
    paper: str | None = None
    quick: dict[str, Any] = Field(default={}, description="Overrides by dotted path, for --quick.")
    differs: str = ""
