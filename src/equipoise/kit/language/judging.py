r"""Language models as judges: of one answer by a rubric, or of two, asked in both orders.

A verdict is a score :math:`t \in [0, 1]`. With options :math:`o` of value :math:`v_o` (a scale
mapped to [0, 1]; 1, 0 and 1/2 for a win, a loss and a tie) it is the value of the option that was
named, or with a confidence the mean :math:`\sum_o p_o v_o`: :math:`p` is the model's own over the
options, or the confidence it states for the one it names and the rest spread over the others.
Two answers are asked about in both orders and the verdicts averaged, so that a judge who goes by
position says 1/2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from equipoise.core import (
    Generation,
    Message,
    Request,
    Rng,
    RunError,
    ScoresText,
    UnitError,
    Usage,
    UsageError,
)
from equipoise.kit.language._judge_options import Options
from equipoise.kit.language._judge_words import confidence_in, fill, score_in, winner_in
from equipoise.kit.language.canned import message_text
from equipoise.kit.language.loop import run
from equipoise.kit.language.shared import Ask, shared

OFF_FORMAT = "off_format"
"""Kind of error of a judge that was asked twice and gave no verdict."""

_AT_ONCE = 256  # cases under way, so that memory stays bounded


@dataclass(frozen=True, slots=True)
class Case:
    """What is put to a judge: an answer, or an answer and the one it is set against.

    Parameters
    ----------
    question
        What was asked.
    answer
        The answer on trial.
    other
        The answer that it is compared with; None for one answer by a rubric.
    reference
        An answer known to be right, where there is one.
    """

    question: str
    answer: str
    other: str | None = None
    reference: str | None = None


@dataclass(slots=True)
class Verdict:
    """What a judge said of a case.

    Parameters
    ----------
    score
        In [0, 1]: how good the answer is, or its share of the win.
    consistent
        Of two answers asked in both orders: whether both verdicts name the same one. None else.
    asked_again
        Replies that were off format, so that the judge was asked once more.
    transcript
        The conversations with the judge; every message carries the name ``judge``.
    usage
        What they cost.
    """

    score: float
    consistent: bool | None = None
    asked_again: int = 0
    transcript: list[Message] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)


@runtime_checkable
class GivesVerdicts(Protocol):
    """Judges cases one at a time, many at once, and says how sure its verdicts are."""

    async def verdict(self, case: Case) -> Verdict: ...


def swaps(judge: Any) -> bool:
    """Say whether a judge's recipe is asked about pairs in both orders."""
    pairs = getattr(judge, "kind", "pairwise") == "pairwise"
    return pairs and getattr(judge, "swap", True) and GivesVerdicts in judge.provides


def case_of(conversation: Sequence[Message]) -> Case:
    """Return the case of a conversation that ends with the assistant's answer.

    Examples
    --------
    >>> case_of([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}])
    Case(question='2+2?', answer='4', other=None, reference=None)
    """
    if not conversation or conversation[-1].get("role") != "assistant":
        raise UsageError("A conversation to judge must end with the assistant's answer.")
    before = list(conversation[:-1])
    if len(before) == 1:
        question = message_text(before[0])
    else:
        question = "\n\n".join(f"{each.get('role')}: {message_text(each)}" for each in before)
    return Case(question, message_text(conversation[-1]))


async def verdict_on(judge: Any, case: Case) -> Verdict:
    """Return the verdict of any judge, one with `Judges` alone as well.

    Such a one, a reward model say, scores each of two answers by itself; the higher score wins.
    """
    if isinstance(judge, GivesVerdicts):
        return await judge.verdict(case)
    asked = {"role": "user", "content": case.question}
    answers = [case.answer, *([] if case.other is None else [case.other])]
    scores = np.asarray(
        judge.judge([[asked, {"role": "assistant", "content": answer}] for answer in answers]),
        float,
    )
    if scores.shape != (len(answers),) or not np.isfinite(scores).all():
        raise UnitError("The judge gave no finite score.", OFF_FORMAT)
    if not ((scores >= 0) & (scores <= 1)).all():
        raise UnitError(f"The judge's score must be from 0 to 1, got {scores.max():g}.", "garbage")
    return Verdict(float(scores[0]) if case.other is None else share_of_win(*map(float, scores)))


def verdicts_on(judge: Any, cases: Sequence[Case]) -> list[Verdict | UnitError]:
    """Return a verdict or an error for each case, whatever becomes of the others."""

    async def one(case: Case) -> Verdict | UnitError:
        try:
            return await verdict_on(judge, case)
        except UnitError as error:
            return error

    async def some(few: Sequence[Case]) -> list[Verdict | UnitError]:
        return list(await asyncio.gather(*map(one, few)))

    found: list[Verdict | UnitError] = []
    for start in range(0, len(cases), _AT_ONCE):
        found += run(some(cases[start : start + _AT_ONCE]))
    return found


def scores_of(judge: GivesVerdicts, conversations: Sequence[Sequence[Message]]) -> np.ndarray:
    """Return a score in [0, 1] for each conversation, NaN where the judge gave no verdict."""
    found = verdicts_on(judge, [case_of(each) for each in conversations])
    return np.array([np.nan if isinstance(v, UnitError) else v.score for v in found])


def both_orders(first: Verdict, second: Verdict, agree: bool) -> Verdict:
    """Return the mean of a verdict and of that in the other order, told from the same side."""
    return Verdict(
        (first.score + second.score) / 2,
        agree,
        first.asked_again + second.asked_again,
        [*first.transcript, *second.transcript],
        first.usage + second.usage,
    )


def share_of_win(one: float, other: float) -> float:
    """Return 1 where one score is higher than the other, 0 where lower, 1/2 for a tie."""
    return 0.5 if one == other else float(one > other)


@dataclass(frozen=True)
class Style:
    """How a model is asked to judge.

    Parameters
    ----------
    template
        From `template_of`.
    pairs
        Whether it compares two answers.
    rubric
        What counts, in words.
    low, high
        Ends of the scale of a rubric.
    ties
        Whether it may call a tie.
    swap
        Whether it is asked in both orders; else in one that is drawn for each case.
    confidence
        ``verdict``, ``logprob`` or ``verbal``.
    max_tokens, temperature
        Of a reply.
    """

    template: str
    pairs: bool = False
    rubric: str = ""
    low: int = 1
    high: int = 10
    ties: bool = True
    swap: bool = True
    confidence: str = "verdict"
    max_tokens: int = 256
    temperature: float = 0.0

    def values(self) -> dict[str, float]:
        """Return what each option is worth."""
        if self.pairs:
            return {"A": 1.0, "B": 0.0} | ({"C": 0.5} if self.ties else {})
        span = self.high - self.low
        return {str(n): (n - self.low) / span for n in range(self.low, self.high + 1)}

    def read(self, text: str) -> str | None:
        """Return the option that a reply names, or None."""
        if self.pairs:
            return winner_in(text, self.ties)
        return score_in(text, self.low, self.high)

    def reply(self) -> str:
        """Return how the judge is to reply."""
        if self.pairs:
            options = "A, B, or C for a tie" if self.ties else "A or B"
            line = f"Verdict: X` where X is {options}"
        else:
            options = f"a whole number from {self.low} (worst) to {self.high} (best)"
            line = f"Score: N` where N is {options}"
        if self.confidence == "logprob":
            return f"Reply with nothing but {options}."
        if self.confidence == "verbal":
            return f"End with `{line}, and `Confidence: P%`, how sure you are that it is right."
        return f"End with `{line}."


class JudgeModel:
    """A language model that judges: a live subject with `Judges` and `GivesVerdicts`.

    A reply that is off format is answered once with what is wanted; after the second the case is
    a `UnitError` of kind ``off_format``. Each request has a seed of its own, by what it asks.

    Parameters
    ----------
    subject
        A live subject that generates; with ``confidence="logprob"`` one that scores text gives
        the probability of every option, any other that of what it said.
    style
        How it is asked.
    rng
        Stream of the seeds.

    Examples
    --------
    >>> from equipoise.kit.language._judge_words import RUBRIC_PROMPT
    >>> from equipoise.kit.language.canned import Canned
    >>> judge = JudgeModel(Canned(lambda request: "Score: 7"), Style(RUBRIC_PROMPT), Rng(0))
    >>> asked = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    >>> judge.judge([asked]).round(3)
    array([0.667])
    """

    def __init__(self, subject: Any, style: Style, rng: Rng) -> None:
        self.subject = subject
        self.style = style
        self.rng = rng
        self._values = style.values()
        self._scored = style.confidence == "logprob" and isinstance(subject, ScoresText)
        self._asked = Options(subject, list(self._values)) if self._scored else subject
        tokenizer = getattr(subject, "tokenizer", None)
        self._special = tuple(getattr(tokenizer, "all_special_tokens", ()))
        self._asks: WeakKeyDictionary[Any, Ask] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return JudgeModel, (self.subject, self.style, self.rng)

    def judge(self, conversations: Sequence[Sequence[Message]]) -> np.ndarray:
        """Return a score in [0, 1] for each conversation, NaN where the judge gave no verdict."""
        if self.style.pairs:
            raise UsageError(
                "Judge: a judge of pairs cannot score one answer by itself; use kind: rubric."
            )
        return scores_of(self, conversations)

    async def verdict(self, case: Case) -> Verdict:
        """Return the verdict on a case.

        Raises
        ------
        UnitError
            If the model fails, or is off format twice.
        UsageError
            If a judge of pairs is given one answer.
        """
        if not self.style.pairs:
            if case.other is None:
                return (await self._one(case, {"answer": case.answer}))[0]
            one, two = [
                (await self._one(case, {"answer": answer}))[0]
                for answer in (case.answer, case.other)
            ]
            found = both_orders(one, two, True)
            found.score, found.consistent = share_of_win(one.score, two.score), None
            return found
        if case.other is None:
            raise UsageError(
                "Judge: a judge of pairs needs two answers; name a baseline, or use kind: rubric."
            )
        orders = [(case.answer, case.other), (case.other, case.answer)]
        if not self.style.swap:
            draw = self.rng.child("order", case.question, case.answer, case.other)
            turned = bool(draw.numpy().integers(2))
            found, _ = await self._pair(case, *orders[turned], turned)
            return found
        (first, said), (second, other) = await asyncio.gather(
            self._pair(case, *orders[0], False), self._pair(case, *orders[1], True)
        )
        return both_orders(first, second, said == other)

    async def _pair(self, case: Case, a: str, b: str, turned: bool) -> tuple[Verdict, float]:
        """Return the verdict from the side of the answer on trial, and the named option's worth."""
        found, value = await self._one(case, {"answer_a": a, "answer_b": b})
        if turned:
            return replace(found, score=1.0 - found.score), 1.0 - value
        return found, value

    async def _one(self, case: Case, answers: Mapping[str, str]) -> tuple[Verdict, float]:
        style = self.style
        given = {"question": case.question, "reference": case.reference, **answers}
        own = {"rubric": style.rubric, "format": style.reply()}
        text = fill(style.template, given, own, self._special)
        said: list[Message] = [{"role": "user", "content": text, "name": "judge"}]
        usage = Usage()
        for again in (0, 1):
            reply = await self._ask(said, text, again)
            usage += reply.usage
            option, score = self._read(reply)
            said.append({"role": "assistant", "content": reply.text, "name": "judge"})
            if option is not None:
                return Verdict(score, None, again, said, usage), self._values[option]
            if not again:
                fault = f"That has no verdict in the form asked for. {style.reply()}"
                said.append({"role": "user", "content": fault, "name": "judge"})
        short = " ".join(reply.text.split())
        short = short if len(short) <= 80 else short[:77] + "..."
        raise UnitError(f'The judge was asked twice and gave no verdict: "{short}".', OFF_FORMAT)

    async def _ask(self, said: Sequence[Message], text: str, again: int) -> Generation:
        loop = asyncio.get_running_loop()
        ask = self._asks.get(loop)
        if ask is None:
            ask = self._asks[loop] = shared(self._asked)
        plain = [{"role": each["role"], "content": each["content"]} for each in said]
        seed = self.rng.child("verdict", text, again).seed_for_request()
        request = Request(
            plain,
            max_tokens=self.style.max_tokens,
            temperature=self.style.temperature,
            seed=seed,
            log_probs=self.style.confidence == "logprob" and not self._scored,
        )
        try:
            return await ask(request)
        except (RunError, UnitError, UsageError):
            raise
        except Exception as error:
            raise UnitError(f"The judge failed: {error}", type(error).__name__) from error

    def _read(self, reply: Generation) -> tuple[str | None, float]:
        """Return the option that a reply names, None if it is off format, and its mean value."""
        option = self.style.read(reply.text)
        if option is None or self.style.confidence == "verdict":
            return option, self._values.get(option or "", np.nan)
        if self._scored:
            return option, float(reply.log_probs[0] @ np.array(list(self._values.values())))
        if self.style.confidence == "verbal":
            sure = confidence_in(reply.text)
        else:
            sure = float(np.exp(reply.log_probs[0].sum())) if reply.log_probs else None
        if sure is None or not np.isfinite(sure):
            return None, np.nan
        value = self._values[option]
        others = (sum(self._values.values()) - value) / (len(self._values) - 1)
        return option, sure * value + (1 - sure) * others
