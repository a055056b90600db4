"""ToolDial: when to ask, suggest, look for a tool, call it or answer, in dialogues of many turns.

`make_world` and `make_dialogue` of `equipoise.kit.worlds.api_dialogues` generate interfaces and
dialogues; `api_graph` holds the graph of interfaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Generates,
    Generation,
    Json,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    ScoresText,
    Split,
    Subject,
    Task,
    Unit,
    UnitError,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.data import content_hash
from equipoise.kit.language.canned import Canned, CannedScores, Constant, Lookup, asked
from equipoise.kit.language.talk import each, error_outcome, generate_each
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS, Dialogue, make_dialogue, make_world
from equipoise.methods.interactive import _tooldial_parts as parts
from equipoise.methods.interactive._tooldial_data import read_dialogues
from equipoise.methods.interactive._tooldial_rules import rule_action
from equipoise.methods.interactive._tooldial_text import (
    JUDGE,
    normal_state,
    read_action,
    read_state,
    same_state,
    state_error,
)

__all__ = [
    "ToolDial",
    "normal_state",
    "read_action",
    "read_state",
    "same_state",
    "state_error",
]


@dataclass(frozen=True)
class ToolDial(Task):
    r"""Dialogues in which an assistant finds, fills, calls and chains interfaces.

    A dialogue alternates a user's eight actions with the system's eight: request, response,
    clarify, suggest, response_fail, system_bye, call, retriever_call. A retriever scores
    interfaces: at 0.6 or more the best is confirmed, from 0.5 to 0.6 it is suggested, below that
    the user has to clarify. A user who does not know a parameter makes the system look for an
    interface that supplies it. Sub-tasks: ``action_prediction``, the next action at every turn of
    the system; ``dialogue_state_tracking``, interface and parameters known so far, compared in
    lower case, letters and digits only; ``faithful_response``, a reply that tells what calls
    returned and invents no figure; ``overall``, all states and actions between a user's turn and
    the reply, results injected on the way.

    Scores: ``correct``; ``parameters``, whether names and values of parameters are right, of a
    reply the share of values it tells; ``error``, a class of error (`ERRORS` in order, 0 is right);
    ``label`` and ``predicted``, actions as codes; ``with_gt``, the setting. Turns of a dialogue
    are a cluster. Generated dialogues of train, calibration and test are about different things.

    Parameters
    ----------
    data
        A released file, ``train.json``, ``val.json`` or ``test.json``, in place of generated
        dialogues.
    sub_task
        ``action_prediction``, ``dialogue_state_tracking``, ``faithful_response`` or ``overall``.
    history
        ``with_gt`` shows the right states, thoughts and actions of the turns before, and the
        state when an action is asked for; ``without_gt`` what was said and what tools returned;
        ``both`` asks each turn in both ways.
    answer
        ``generate`` reads the answer from text; ``choose`` takes the most likely of the eight
        actions, by log-likelihood, for ``action_prediction``.
    normalise
        When it chooses, divide log-likelihoods by ``tokens``, or by nothing (``none``): names of
        several tokens, such as ``retriever_call``, are at a disadvantage or, where their first
        letters are what a model would say anyway, at an advantage.
    dialogues, train, calibration
        Generated dialogues of each split, test first.
    apis
        Generated interfaces.
    split
        What all dialogues of a file are: ``train``, ``calibration`` or ``test``.
    judge
        A subject that says True or False about replies, in place of comparing figures.
    max_tokens
        New tokens in an answer.

    References
    ----------
    "ToolDial: Multi-turn Dialogue Generation Method for Tool-Augmented Language Models", ICLR 2025.

    Examples
    --------
    >>> task = ToolDial(dialogues=2, train=0)
    >>> first = next(iter(task.units(Rng(0))))
    >>> first.target
    {'action': 'retriever_call'}
    >>> task.perform(task.oracle(), [first], Rng(0))[0].scores["correct"]
    1.0
    """

    data: str | None = setting(None)
    sub_task: str = one_of(*parts.SUB_TASKS, default="action_prediction")
    history: str = one_of("with_gt", "without_gt", "both", default="with_gt")
    answer: str = one_of("generate", "choose", default="generate")
    normalise: str = one_of("none", "tokens", default="none")
    dialogues: int = between(1, 100_000, default=100)
    train: int = between(0, 100_000, default=200)
    calibration: int = between(0, 100_000, default=0)
    apis: int = between(24, 400, default=120)
    split: str = one_of("train", "calibration", "test", default="test")
    judge: Subject | None = None
    max_tokens: int = between(1, 100_000, default=256)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = parts.SCORES["action_prediction"]

    @classmethod
    def tiny(cls) -> Self:
        return cls(dialogues=4, train=2, calibration=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scores", parts.SCORES[self.sub_task])
        if self.answer == "choose":
            object.__setattr__(self, "needs", frozenset({ScoresText}))

    def check(self) -> None:
        if self.answer == "choose" and self.sub_task != "action_prediction":
            raise UsageError(
                "ToolDial: answer: choose is for action_prediction; the other sub-tasks generate."
            )
        if self.judge is not None:
            if self.sub_task != "faithful_response":
                raise UsageError("ToolDial: judge is for sub_task: faithful_response.")
            if Generates not in self.judge.provides:
                name = type(self.judge).__name__
                raise UsageError(f"ToolDial: judge must generate text, and {name} does not.")
        if self.data is not None and not Path(self.data).expanduser().exists():
            read_dialogues(self.data)  # says what is missing, and where it is

    def content(self) -> Json:
        if self.data is None:
            return None
        return content_hash(self.data)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield units dialogue by dialogue; the files' are the same whatever ``rng``."""
        settings = ("with_gt", "without_gt") if self.history == "both" else (self.history,)
        for dialogue, split in self._dialogues(rng.child("tooldial")):
            yield from parts.units_of(dialogue, self.sub_task, settings, split)

    def _dialogues(self, rng: Rng) -> Iterator[tuple[Dialogue, Split]]:
        if self.data is not None:
            split: Any = self.split
            for dialogue in read_dialogues(self.data):
                yield dialogue, split
            return
        world = make_world(self.apis, rng)
        amounts: dict[Split, int] = {
            "test": self.dialogues, "calibration": self.calibration, "train": self.train,
        }  # fmt: skip
        for split, amount in amounts.items():
            for number in range(amount):
                name = f"{world.seed:08x}-{split}-{number}"
                yield make_dialogue(world, name, split, rng.child(split, number)), split

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        if self.answer == "choose":
            found = each(lambda some: self._chosen(subject, some), units)
            return [
                error_outcome(unit, one) if isinstance(one, UnitError) else one
                for unit, one in zip(units, found, strict=True)
            ]

        def ask(some: Sequence[tuple[Unit, str]]) -> list[Generation | UnitError]:
            return generate_each(subject, [self._request(unit, text, rng) for unit, text in some])

        if self.sub_task == "overall":
            return parts.overall(units, ask)
        answers = ask([(unit, unit.content["history"]) for unit in units])
        verdicts = self._verdicts(units, answers, rng)
        return [
            error_outcome(unit, fault)
            if (fault := _fault(answer, verdict)) is not None
            else self._scored(unit, answer, verdict)
            for unit, answer, verdict in zip(units, answers, verdicts, strict=True)
        ]

    def _request(self, unit: Unit, text: str, rng: Rng) -> Request:
        return Request(
            parts.messages(self.sub_task, text),
            max_tokens=self.max_tokens,
            seed=rng.child(unit.id).seed_for_request(),
        )

    def _scored(self, unit: Unit, answer: Any, verdict: Any) -> Outcome:
        text, others = answer.text, {"output": answer.text, "usage": answer.usage}
        if self.sub_task == "action_prediction":
            return parts.action_outcome(unit, read_action(text), **others)
        if self.sub_task == "dialogue_state_tracking":
            return parts.state_outcome(unit, text, **others)
        return parts.response_outcome(unit, text, verdict, **others)

    def _chosen(self, subject: Any, units: Sequence[Unit]) -> list[Outcome]:
        pairs = []
        for unit in units:
            prompt = parts.messages(self.sub_task, unit.content["history"])  # shared by all eight
            pairs += [(prompt, action) for action in SYSTEM_ACTIONS]
        scores = subject.log_likelihood(pairs)
        sizes = [len(one.log_probs) if self.normalise == "tokens" else 1 for one in scores]
        totals = np.divide([one.total for one in scores], sizes)
        if not np.isfinite(totals).all():
            raise UnitError("The subject gave a log-likelihood that is not finite.", "garbage")
        table = totals.reshape(len(units), len(SYSTEM_ACTIONS))
        return [
            parts.action_outcome(unit, int(line.argmax()), output=SYSTEM_ACTIONS[line.argmax()])
            for unit, line in zip(units, table, strict=True)
        ]

    def _verdicts(
        self, units: Sequence[Unit], answers: Sequence[Any], rng: Rng
    ) -> list[bool | UnitError | None]:
        """Ask the judge, where there is one, about every reply that came."""
        if self.judge is None:
            return [None] * len(units)
        told = [place for place, one in enumerate(answers) if not isinstance(one, UnitError)]
        requests = []
        for place in told:
            shown = f"Dialogue:\n{units[place].content['history']}\n- Message: "
            asked = [{"role": "user", "content": JUDGE + shown + answers[place].text}]
            seed = rng.child("judge", units[place].id).seed_for_request()
            requests.append(Request(asked, max_tokens=8, seed=seed))
        found: list[bool | UnitError | None] = [None] * len(units)
        said = generate_each(self.judge.load(rng.child("judge")), requests)
        for place, one in zip(told, said, strict=True):
            found[place] = _verdict(one)
        return found

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and a right answer, for demonstrations and training."""
        if self.sub_task == "overall":
            return next(parts.steps_of(unit))
        asked = parts.question(self.sub_task, unit.content["history"])
        return asked, parts.answer_of(self.sub_task, unit.target)

    def oracle(self) -> Any:
        """Return a subject that answers right.

        Actions with the right states before them follow from rules, whatever the stream; else
        it knows the units that ``Rng(0)`` draws.
        """
        told = (self.sub_task, self.history, self.answer)
        if self.data is None and told == ("action_prediction", "with_gt", "generate"):
            return Canned(_by_rule)
        table: dict[str, str] = {}
        for unit in self.units(Rng(0)):
            if self.sub_task == "overall":
                table |= dict(parts.steps_of(unit))
            else:
                table |= dict([self.example(unit)])
        if self.answer == "choose":
            return CannedScores(_Right(table))
        return Canned(Lookup(table))

    def constant(self) -> Any:
        """Return a subject that answers everything alike."""
        if self.answer == "choose":
            return CannedScores(_nothing, wrong=0.0)
        return Canned(Constant("call"))


def _by_rule(request: Request) -> str:
    return rule_action(asked(request.prompt))


def _nothing(prompt: Any) -> str:
    return ""


@dataclass(frozen=True)
class _Right:
    table: dict[str, str]

    def __call__(self, prompt: Any) -> str:
        return self.table[asked(prompt)]


def _fault(answer: Any, verdict: Any) -> UnitError | None:
    return next((one for one in (answer, verdict) if isinstance(one, UnitError)), None)


def _verdict(answer: Generation | UnitError) -> bool | UnitError:
    if isinstance(answer, UnitError):
        return UnitError(f"The judge failed: {answer}", "judge")
    words = answer.text.strip().lower().split()
    word = words[0].strip(".,:;*\"'") if words else ""
    if word not in ("true", "false"):
        return UnitError("The judge said neither True nor False.", "judge")
    return word == "true"
