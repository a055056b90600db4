"""Answers that no key can score: a judge scores them, and people label a few of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    Generates,
    Judges,
    Measure,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    Subject,
    Talk,
    Unit,
    UnitError,
    UsageError,
    between,
    capability_names,
    setting,
)
from equipoise.kit.language.canned import Canned, Lookup, asked
from equipoise.kit.language.judging import Case, swaps, verdict_on
from equipoise.kit.language.questions import QuestionTask
from equipoise.methods.evaluation._labels import KEY, answer_key, read_labels

_ALWAYS = (
    ScoreSpec("judge", True, 0, 1),
    ScoreSpec("asked_again", False, low=0, unit="replies"),
    ScoreSpec("length", None, unit="characters"),
    ScoreSpec(KEY, None),
)
_PAIRS = (ScoreSpec("tie", None, 0, 1),)
_SWAPPED = (ScoreSpec("consistent", None, 0, 1),)


@dataclass(frozen=True)
class JudgedAnswers(QuestionTask):
    """Questions answered in free text and scored by a judge, with human labels of some answers.

    The score ``judge`` is the judge's, in [0, 1]: of the answer by a rubric, or with a
    ``baseline`` its share of the win against that answer. A judge who fails or gives no verdict
    is an error of kind ``judge``: such units are left out and not held against the arm. Beside it:
    ``asked_again``, replies of the judge that were off format; ``length`` of the answer in
    characters (with a baseline: by how much it is longer); ``tie`` and ``consistent``, whether
    both orders name the same answer; ``answer_key``, which ties human labels to the answer. The
    transcript holds the conversations with the judge too.

    Labels may come after the run: export it, have people fill in a column ``label`` for rows
    chosen at random, and name the file as ``human``. Nothing is run again; claims are then about
    `debiased_mean`, and every judged score stands with `verdict_report`.

    Parameters
    ----------
    data
        A path (``.jsonl``, ``.json``, ``.csv``, ``.parquet``),
        ``hf:NAME_OR_FOLDER`` or ``builtin:NAME``.
    rows
        The rows themselves, in place of ``data``.
    question, context
        Columns; the context (a passage) is optional.
    answer
        Column of an answer known to be right, which the judge is shown; empty for none.
    baseline
        Column of an answer to compare with; None scores the answer by itself.
    judge
        The subject that judges: `judge`, a reward model, or any other with `Judges`.
    human
        Table of human labels with the columns ``unit``, ``output`` (the answer) and ``label``.
    label
        Column of the labels.
    label_scale
        What a label of the worst and of the best answer is; with a baseline, of a loss and a win.
    id, cluster, stratum
        Columns; rows without an id are numbered.
    split
        ``train``, ``calibration`` or ``test`` for all rows, or the column that
        says it (``validation`` and ``dev`` count as calibration).
    template
        What is asked, with ``{question}``, ``{context}`` and any other column.
    system
        A system message, or text that goes before a plain prompt.
    chat
        Ask by a chat message; otherwise by plain text to be continued.
    max_tokens
        Most new tokens of an answer.
    stop
        Strings that end an answer.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned, Constant
    >>> from equipoise.kit.language.talk import converse
    >>> task = JudgedAnswers.tiny()
    >>> units = list(task.units(Rng(0)))
    >>> found = converse(task, Canned(Constant("It is Paris.")), units, Rng(0))
    >>> [outcome.scores["judge"] for outcome in found]
    [1.0, 0.0]
    """

    answer: str = ""
    baseline: str | None = None
    judge: Subject | None = None
    human: str | None = setting(None)
    label: str = setting("label")
    label_scale: tuple[float, float] = setting((0.0, 1.0))
    max_tokens: int = between(1, 1_000_000, default=256)
    stop: tuple[str, ...] = ()

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (*_ALWAYS, *_PAIRS, *_SWAPPED)

    @classmethod
    def tiny(cls) -> Self:
        """Return two questions and a judge who never errs."""
        from equipoise.methods.evaluation.erring_judge import ErringJudge

        return cls(
            rows=(
                {"question": "What is the capital of France?", "answer": "Paris"},
                {"question": "What is the capital of Italy?", "answer": "Rome"},
            ),
            answer="answer",
            judge=ErringJudge(sensitivity=1.0, specificity=1.0),
        )

    def check(self) -> None:
        super().check()
        if self.judge is None:
            raise UsageError(
                "JudgedAnswers: name the judge, such as judge: {judge: {model: smollm2}}."
            )
        if Judges not in self.judge.provides:
            has = ", ".join(capability_names(self.judge.provides)) or "nothing"
            raise UsageError(
                f"JudgedAnswers: judge must have Judges; this subject has {has}. A language model"
                " judges as judge: {judge: {model: NAME}}."
            )
        if self.baseline is None and getattr(self.judge, "kind", None) == "pairwise":
            raise UsageError(
                "JudgedAnswers: a judge of pairs needs a baseline, the column of answers to"
                " compare with; or take kind: rubric."
            )
        low, high = self.label_scale
        if not low < high:
            raise UsageError(f"JudgedAnswers: label_scale must rise, got {low:g} to {high:g}.")
        # Scores that never come would read as missing, so each setting declares its own.
        pairs = _PAIRS if self.baseline is not None else ()
        swapped = _SWAPPED if pairs and swaps(self.judge) else ()
        object.__setattr__(self, "scores", (*_ALWAYS, *pairs, *swapped))

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield a unit a row, in order; ``rng`` is not used."""
        if self.human is not None:  # a fault in the labels must show before the run
            read_labels(self.human, self.label, *self.label_scale)
        columns = [name for name in (self.answer, self.baseline) if name]
        for row, unit in self.read(columns):
            target = {
                "reference": str(row[self.answer]) if self.answer else None,
                "baseline": None if self.baseline is None else str(row[self.baseline]),
            }
            yield replace(unit, target=target)

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        assert self.judge is not None, "check() sees to it"
        reply = await talk.generate(
            Request(self.prompt(unit.content), max_tokens=self.max_tokens, stop=self.stop)
        )
        answer, other = reply.text, unit.target["baseline"]
        case = Case(self.text(unit.content), answer, other, unit.target["reference"])
        try:
            verdict = await verdict_on(_live(self.judge, rng.seed), case)
        except UnitError as error:
            return Outcome(
                unit.id, status="error", output=answer, error_kind="judge", error=str(error)
            )
        scores = {
            "judge": verdict.score,
            "asked_again": float(verdict.asked_again),
            "length": float(len(answer) - len(other or "")),
            KEY: answer_key(unit.id, answer),
        }
        if other is not None:
            scores["tie"] = float(verdict.score == 0.5)
        if verdict.consistent is not None:
            scores["consistent"] = float(verdict.consistent)
        return Outcome(
            unit.id,
            scores=scores,
            status="limit" if reply.finish[:1] == ("length",) else "ok",
            output=answer,
            transcript=[*talk.transcript, *verdict.transcript],
        )

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and the reference, or else the baseline, for demonstrations."""
        shown = unit.target["reference"] or unit.target["baseline"]
        if shown is None:
            raise UsageError("JudgedAnswers: there is no answer to show; name answer or baseline.")
        return self.text(unit.content), shown

    def measures(self) -> Sequence[Measure]:
        """Return the judge's report, and with human labels the mean they lead to."""
        from equipoise.methods.evaluation.verdict_report import VerdictReport

        claimed = self.claimed()
        if claimed is None:
            return (VerdictReport(),)
        low, high = self.label_scale
        return (claimed, VerdictReport(human=self.human, label=self.label, low=low, high=high))

    def claimed(self) -> Measure | None:
        """Return the debiased mean where there are human labels."""
        if self.human is None:
            return None
        from equipoise.methods.evaluation.verdict_report import DebiasedMean

        low, high = self.label_scale
        return DebiasedMean(human=self.human, label=self.label, low=low, high=high)

    def oracle(self) -> Canned:
        """Return a subject that gives the reference answers."""
        return Canned(
            Lookup(
                {
                    asked(self.prompt(unit.content)): self.example(unit)[1]
                    for unit in self.units(Rng(0))
                }
            )
        )


_judges: OrderedDict[tuple[str, str, int], Any] = OrderedDict()


def _live(judge: Subject, seed: int) -> Any:
    """Return the live judge, which all conversations under way share."""
    key = repr(judge), repr(judge.content()), seed
    if key not in _judges:
        while len(_judges) >= 2:  # they can be large
            _judges.popitem(last=False)
        _judges[key] = judge.load(Rng(seed).child("judge"))
    return _judges[key]
