"""A language model as a judge: of answers by a rubric, or of pairs of answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    Json,
    Judges,
    Rng,
    Subject,
    UsageError,
    between,
    capability_names,
    one_of,
    setting,
)
from equipoise.kit.language._judge_words import PAIR_PROMPT, RUBRIC_PROMPT, template_of
from equipoise.kit.language.judging import GivesVerdicts, JudgeModel, Style

_WHAT_COUNTS = "Correctness first, then helpfulness. Length is no merit."
_MOST_OPTIONS = 101


@dataclass(frozen=True)
class Judge(Subject):
    r"""Any language model as a judge, with scores in [0, 1].

    By a ``rubric`` it scores one answer on a scale of whole numbers. Of a ``pair`` it says which
    answer is better, asked in both orders; the score is the mean of both verdicts, so that a
    judge who goes by position gives 1/2. A reply that is off format is answered once with what is
    wanted; after the second there is no verdict. Answers are fenced by tags that they cannot
    forge, and control tokens of chat templates in them are broken up; what they say may still
    sway the model.

    With ``confidence`` the score is a mean over options :math:`o` of value :math:`v_o`,

    .. math:: t = \sum_o p_o v_o .

    Parameters
    ----------
    model
        The subject that is asked; it must generate text.
    kind
        ``rubric`` or ``pairwise``.
    prompt
        A text file with the prompt; results follow its content. Places: ``{question}``, and
        ``{answer}`` or ``{answer_a}`` and ``{answer_b}``; where wanted ``{reference}``,
        ``{rubric}`` and ``{format}``, how to reply, which else comes last. A paragraph whose
        reference or rubric is missing is left out.
    rubric
        What counts, in words.
    scale
        Worst and best score, whole numbers at most 100 apart.
    ties
        Whether a tie may be called.
    swap
        Ask about pairs in both orders; otherwise once, in an order drawn for each pair.
    confidence
        ``verdict`` takes the option that is named. ``logprob`` takes :math:`p_o` from the model:
        of all options where it scores text, else of its reply, the rest spread over the other
        options. ``verbal`` asks for a confidence in percent and spreads the rest in the same way.
    max_tokens
        Most new tokens of a reply.
    temperature
        0 is greedy decoding.

    Examples
    --------
    >>> judge = Judge.tiny().load(Rng(0))
    >>> asked = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    >>> judge.judge([asked]).round(2)
    array([0.67])
    """

    model: Subject | None = None
    kind: str = one_of("rubric", "pairwise", default="rubric")
    prompt: str | None = setting(None)
    rubric: str = _WHAT_COUNTS
    scale: tuple[int, int] = (1, 10)
    ties: bool = True
    swap: bool = True
    confidence: str = one_of("verdict", "logprob", "verbal", default="verdict")
    max_tokens: int = between(1, 1_000_000, default=256)
    temperature: float = between(0, 10, default=0.0)

    provides: ClassVar[frozenset[Capability]] = frozenset({Judges, GivesVerdicts})

    @classmethod
    def tiny(cls) -> Self:
        """Return a judge who always says the same."""
        from equipoise.methods.language.scripted import Scripted

        return cls(model=Scripted(constant="Score: 7"))

    def check(self) -> None:
        if self.model is None:
            raise UsageError("Judge: name the model that judges, such as model: smollm2.")
        if not {Generates, GeneratesAsync} & set(self.model.provides):
            has = ", ".join(capability_names(self.model.provides)) or "nothing"
            raise UsageError(f"Judge: model must generate text; this subject has {has}.")
        low, high = self.scale
        if not 0 < high - low < _MOST_OPTIONS:
            raise UsageError(
                f"Judge: scale must rise by 1 to {_MOST_OPTIONS - 1} whole numbers, got"
                f" {low} to {high}."
            )

    def content(self) -> Json:
        return hashlib.sha256(self._template().encode()).hexdigest()

    def notice(self) -> str:
        """Return what the model's own reports must say."""
        return "" if self.model is None else self.model.notice()

    def load(self, rng: Rng) -> JudgeModel:
        """Return the live judge."""
        assert self.model is not None, "check() sees to it"
        live: Any = self.model.load(rng.child("model"))
        style = Style(
            template=self._template(),
            pairs=self.kind == "pairwise",
            rubric=self.rubric,
            low=self.scale[0],
            high=self.scale[1],
            ties=self.ties,
            swap=self.swap,
            confidence=self.confidence,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )
        # Seeds hang on the trial's seed alone, so that arms meet the same judge.
        return JudgeModel(live, style, Rng(rng.seed).child("judge"))

    def _template(self) -> str:
        pairs = self.kind == "pairwise"
        if self.prompt is None:
            return PAIR_PROMPT if pairs else RUBRIC_PROMPT
        try:
            text = Path(self.prompt).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"Judge: {self.prompt} cannot be read: {why}.") from error
        return template_of(text, pairs, f"Judge: {self.prompt}")
