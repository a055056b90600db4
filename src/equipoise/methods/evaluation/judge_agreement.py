r"""Judges on trial: recorded answers or pairs with gold labels, and how well a judge knows them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    Json,
    Judges,
    Measure,
    Outcome,
    Rng,
    ScoreSpec,
    Task,
    Unit,
    UnitError,
    UsageError,
    setting,
)
from equipoise.kit.data import content_hash, read_rows, unit_id
from equipoise.kit.language.judging import Case, Verdict, verdicts_on

_WINNERS = {"a": 1.0, "b": 0.0, "c": 0.5, "tie": 0.5}


@dataclass(frozen=True)
class JudgeAgreement(Task):
    r"""Recorded answers, or pairs of them, with gold labels: the subject on trial is the judge.

    The score ``agreement`` is :math:`1 - |t - s|` for the verdict :math:`t` and the gold label
    :math:`s`, both in [0, 1]; the share of right verdicts where both are 0 or 1. A judge without
    a verdict fails the unit. Beside it ``gold``, ``judge``, ``asked_again`` and ``length``, and of
    pairs ``tie`` and ``consistent``, whether both orders name the same answer; `verdict_report`
    sums them up.

    Parameters
    ----------
    data
        A path (``.jsonl``, ``.json``, ``.csv``, ``.parquet``) or ``hf:NAME_OR_FOLDER``.
    rows
        The rows themselves, in place of ``data``.
    pairs
        Whether rows hold two answers.
    question
        Column of what was asked.
    answer
        Column of the answer, of rows that hold one.
    answer_a, answer_b
        Columns of the answers, of rows that hold two.
    gold
        Column of the label: a number in ``gold_scale``; of pairs ``A``, ``B`` or ``tie``, or a
        number that is high where A is better.
    gold_scale
        What the label of the worst and of the best answer is.
    reference
        Column of an answer known to be right, which the judge is shown; None for none.
    id, cluster, stratum
        Columns; rows without an id are numbered.

    Examples
    --------
    >>> from equipoise.methods.evaluation.erring_judge import ErringJudge
    >>> task = JudgeAgreement.tiny()
    >>> judge = ErringJudge(sensitivity=1.0, specificity=1.0).load(Rng(0))
    >>> found = task.perform(judge, list(task.units(Rng(0))), Rng(0))
    >>> [outcome.scores["agreement"] for outcome in found]
    [1.0, 1.0, 1.0]
    """

    data: str | None = setting(None)
    rows: tuple[dict[str, Any], ...] = ()
    pairs: bool = False
    question: str = "question"
    answer: str = "answer"
    answer_a: str = "answer_a"
    answer_b: str = "answer_b"
    gold: str = "gold"
    gold_scale: tuple[float, float] = (0.0, 1.0)
    reference: str | None = None
    id: str = "id"
    cluster: str | None = None
    stratum: str | None = None

    needs: ClassVar[frozenset[Capability]] = frozenset({Judges})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("agreement", True, 0, 1),
        # No bounds: a verdict that failed has no gold label of the worst kind.
        ScoreSpec("gold", None),
        ScoreSpec("judge", None),
        ScoreSpec("asked_again", False, low=0, unit="replies"),
        ScoreSpec("length", None, unit="characters"),
        ScoreSpec("tie", None, 0, 1),
        ScoreSpec("consistent", None, 0, 1),
    )

    @classmethod
    def tiny(cls) -> Self:
        """Return three pairs."""
        return cls(
            rows=tuple(
                {"question": f"{n}+{n}?", "answer_a": a, "answer_b": b, "gold": gold, "key": right}
                for n, (a, b, gold, right) in enumerate(
                    [("2", "3", "A", "2"), ("5", "4", "B", "4"), ("6", "6", "tie", "6")], 1
                )
            ),
            pairs=True,
            reference="key",
        )

    def check(self) -> None:
        if (self.data is None) == (not self.rows):
            raise UsageError("JudgeAgreement: give either data (a file or hf:) or rows.")
        low, high = self.gold_scale
        if not low < high:
            raise UsageError(f"JudgeAgreement: gold_scale must rise, got {low:g} to {high:g}.")
        if not self.pairs:
            kept = tuple(s for s in type(self).scores if s.name not in ("tie", "consistent"))
            object.__setattr__(self, "scores", kept)

    def content(self) -> Json:
        return None if self.data is None else content_hash(self.data)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield a unit a row, in order; ``rng`` is not used."""
        sides = [self.answer_a, self.answer_b] if self.pairs else [self.answer]
        further = [c for c in (self.reference, self.cluster, self.stratum) if c is not None]
        columns = [self.question, *sides, self.gold, *further]
        rows = self.rows if self.data is None else read_rows(self.data, columns=columns)
        seen: set[str] = set()
        for index, row in enumerate(rows):
            for column in columns:
                if row.get(column) is None:
                    raise self._wrong(index, f'there is no "{column}"')
            name = unit_id({"id": row.get(self.id)}, index)
            if name in seen:
                raise self._wrong(index, f'the id "{name}" is already that of another row')
            seen.add(name)
            yield Unit(
                name,
                content={
                    "question": str(row[self.question]),
                    "answer": str(row[sides[0]]),
                    "other": str(row[sides[1]]) if self.pairs else None,
                    "reference": None if self.reference is None else str(row[self.reference]),
                },
                target=self._label(row[self.gold], index),
                cluster=None if self.cluster is None else str(row[self.cluster]),
                stratum=None if self.stratum is None else str(row[self.stratum]),
            )

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Ask the judge about each unit; ``rng`` is not used, a judge has seeds of its own."""
        found = verdicts_on(subject, [Case(**unit.content) for unit in units])
        return [
            Outcome(unit.id, status="error", error_kind=verdict.kind, error=str(verdict))
            if isinstance(verdict, UnitError)
            else self._outcome(unit, verdict)
            for unit, verdict in zip(units, found, strict=True)
        ]

    def measures(self) -> Sequence[Measure]:
        """Return the report on the judge."""
        from equipoise.methods.evaluation.verdict_report import VerdictReport

        return (VerdictReport(),)

    def oracle(self) -> Any:
        """Return a judge who knows the labels."""
        return _Knows({_key(unit.content): unit.target for unit in self.units(Rng(0))})

    def constant(self) -> Any:
        """Return a judge who finds everything good."""
        return _Knows({})

    def _outcome(self, unit: Unit, verdict: Verdict) -> Outcome:
        case, gold = unit.content, unit.target
        scores = {
            "agreement": 1.0 - abs(verdict.score - gold),
            "gold": gold,
            "judge": verdict.score,
            "asked_again": float(verdict.asked_again),
            "length": float(len(case["answer"]) - len(case["other"] or "")),
        }
        if self.pairs:
            scores["tie"] = float(verdict.score == 0.5)
            if verdict.consistent is not None:
                scores["consistent"] = float(verdict.consistent)
        return Outcome(
            unit.id,
            scores=scores,
            output=verdict.score,
            transcript=verdict.transcript,
            usage=verdict.usage,
        )

    def _label(self, given: Any, index: int) -> float:
        low, high = self.gold_scale
        word = str(given).strip().lower()
        if self.pairs and word in _WINNERS:
            return _WINNERS[word]
        try:
            value = (float(word) - low) / (high - low)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            words = "A, B, tie or " if self.pairs else ""
            raise self._wrong(
                index,
                f'"{self.gold}" must be {words}a number from {low:g} to {high:g}, got {given!r}',
            )
        return value

    def _wrong(self, index: int, fault: str) -> UsageError:
        return UsageError(f"JudgeAgreement: {self.data or 'rows'}, row {index + 1}: {fault}.")


def _key(content: Mapping[str, Any]) -> tuple[Any, ...]:
    return content["question"], content["answer"], content["other"]


@dataclass(frozen=True)
class _Knows:
    labels: Mapping[tuple[Any, ...], float]

    def judge(self, conversations: Sequence[Any]) -> Any:
        raise UsageError("JudgeAgreement: this judge knows cases, not conversations.")

    async def verdict(self, case: Case) -> Verdict:
        return Verdict(self.labels.get((case.question, case.answer, case.other), 1.0), True)
