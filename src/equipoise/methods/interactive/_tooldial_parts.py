"""The four sub-tasks: which turns they ask about, what is right, and how answers are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from equipoise.core import (
    Generation,
    Json,
    Message,
    Outcome,
    ScoreSpec,
    Split,
    Unit,
    UnitError,
    Usage,
)
from equipoise.kit.language.talk import error_outcome
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS, Dialogue, Turn
from equipoise.methods.interactive._tooldial_text import (
    ERRORS,
    INSTRUCTIONS,
    NONE,
    action_error,
    figures,
    history,
    leaves,
    observed,
    read_action,
    read_state,
    same_parameters,
    state_error,
)

SUB_TASKS = ("action_prediction", "dialogue_state_tracking", "faithful_response", "overall")
QUESTIONS = {
    "action_prediction": "Next action:",
    "dialogue_state_tracking": "Dialogue state:",
    "faithful_response": "Reply of the system:",
    "overall": "Next step:",
}
_TOOLS = ("call", "retriever_call")

_CORRECT = ScoreSpec("correct", True, 0, 1)
_PARAMETERS = ScoreSpec("parameters", True, 0, 1)
_ERROR = ScoreSpec("error", None, 0, len(ERRORS) - 1)
_WITH_GT = ScoreSpec("with_gt", None, 0, 1)
SCORES: dict[str, tuple[ScoreSpec, ...]] = {
    "action_prediction": (
        _CORRECT,
        _ERROR,
        ScoreSpec("label", None, 0, NONE - 1),
        ScoreSpec("predicted", None, 0, NONE),
        _WITH_GT,
    ),
    "dialogue_state_tracking": (_CORRECT, _PARAMETERS, _ERROR, _WITH_GT),
    "faithful_response": (_CORRECT, _PARAMETERS, _ERROR, _WITH_GT),
    "overall": (_CORRECT, _PARAMETERS, _ERROR, _WITH_GT),
}


def units_of(
    dialogue: Dialogue, sub_task: str, settings: Sequence[str], split: Split
) -> Iterator[Unit]:
    """Yield a unit a turn that the sub-task asks about, and setting."""
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker == "user" or not _asked(dialogue.turns, place, sub_task):
            continue
        for setting in settings:
            gold = setting == "with_gt"
            state = sub_task == "action_prediction"
            text = history(dialogue.turns, place, gold=gold, state=state)
            yield Unit(
                f"{dialogue.id}/{place}/{setting}",
                {"history": text, "setting": setting, "dialogue": dialogue.id},
                _target(dialogue.turns, place, sub_task),
                cluster=dialogue.id,
                stratum=setting if len(settings) > 1 else dialogue.category or None,
                split=split,
            )


def _asked(turns: Sequence[Turn], place: int, sub_task: str) -> bool:
    turn, before = turns[place], turns[place - 1] if place else None
    after_user = before is not None and before.speaker == "user"
    if sub_task == "dialogue_state_tracking":
        informed = after_user and before is not None and before.action == "inform"
        return turn.action not in _TOOLS or informed
    if sub_task == "faithful_response":
        return turn.action == "response"
    return after_user if sub_task == "overall" else True


def _target(turns: Sequence[Turn], place: int, sub_task: str) -> Json:
    turn = turns[place]
    if sub_task == "action_prediction":
        return {"action": turn.action}
    if sub_task == "dialogue_state_tracking":
        return {"state": _json(turn.state)}
    if sub_task == "faithful_response":
        called = [each for each in turns[:place] if each.results is not None]
        said = figures(turn.message) | set(turn.message.split())
        slots = [leaf for leaf in leaves(called[-1].results if called else None)
                 if leaf in said or (" " in leaf and leaf in turn.message)]  # fmt: skip
        return {"message": turn.message, "slots": sorted(set(slots)), "known": _known(turns, place)}
    steps = []
    for each in turns[place:]:
        if each.speaker == "user":
            break
        steps.append(
            {"action": each.action, "state": _json(each.state), "observed": observed(each)}
        )
    return {"steps": steps}


def _known(turns: Sequence[Turn], place: int) -> list[str]:
    """Return the numbers and identifiers that calls returned or the user said."""
    said = [leaf for turn in turns[:place] for leaf in leaves(turn.results)]
    said += [turn.message for turn in turns[:place] if turn.speaker == "user"]
    return sorted(set().union(*(figures(text) for text in said)))


def _json(state: Any) -> Any:
    return None if state is None else dict(state)


def messages(sub_task: str, text: str) -> list[Message]:
    """Return what a subject is asked about a history."""
    return [
        {"role": "system", "content": INSTRUCTIONS[sub_task]},
        {"role": "user", "content": question(sub_task, text)},
    ]


def question(sub_task: str, text: str) -> str:
    return f"Dialogue:\n{text}\n\n{QUESTIONS[sub_task]}"


def answer_of(sub_task: str, target: Any) -> str:
    """Return a right answer in words."""
    if sub_task == "action_prediction":
        return str(target["action"])
    if sub_task == "dialogue_state_tracking":
        return repr(target["state"])
    return str(target["message"])


def action_outcome(unit: Unit, predicted: int, **others: Any) -> Outcome:
    gold = SYSTEM_ACTIONS.index(unit.target["action"])
    scores = {
        "correct": float(predicted == gold),
        "error": float(ERRORS.index(action_error(predicted, gold))),
        "label": float(gold),
        "predicted": float(predicted),
    }
    return _outcome(unit, scores, **others)


def state_outcome(unit: Unit, text: str, **others: Any) -> Outcome:
    found, gold = read_state(text), unit.target["state"]
    return _outcome(unit, _state_scores(found, gold), **others)


def _state_scores(found: Any, gold: Any) -> dict[str, float]:
    error = state_error(found, gold)
    right = error == "right"
    told = right or (isinstance(found, dict) and same_parameters(found, gold))
    return {"correct": float(right), "parameters": float(told), "error": float(ERRORS.index(error))}


def response_outcome(unit: Unit, text: str, verdict: bool | None, **others: Any) -> Outcome:
    """Score a reply by the figures in it: all of them known, those that were asked among them.

    A judge's ``verdict`` takes the place of the comparison where there is one.
    """
    target = unit.target
    invented = figures(text) - set(target["known"])
    told = [slot for slot in target["slots"] if slot in text]
    share = len(told) / len(target["slots"]) if target["slots"] else 1.0
    error = "right" if told or not target["slots"] else "nothing_told"
    error = "unsupported_value" if invented else error
    if verdict is not None:
        error = "right" if verdict else "unsupported_value"
    scores = {"correct": float(error == "right"), "parameters": share}
    return _outcome(unit, scores | {"error": float(ERRORS.index(error))}, **others)


def _outcome(unit: Unit, scores: dict[str, float], **others: Any) -> Outcome:
    gold = float(unit.content["setting"] == "with_gt")
    return Outcome(unit.id, scores | {"with_gt": gold}, **others)


Ask = Callable[[Sequence[tuple[Unit, str]]], Sequence[Generation | UnitError]]


@dataclass(slots=True)
class _Chain:
    """A user turn under way: how far the system's steps were right."""

    unit: Unit
    text: str
    step: int = 0
    done: Outcome | None = None
    said: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)


def overall(units: Sequence[Unit], ask: Ask) -> list[Outcome]:
    """Ask step by step; what a tool gives back is injected while the steps are right.

    A unit ends at its first wrong step. The state counts in the first step and in the last.
    """
    chains = [_Chain(unit, unit.content["history"]) for unit in units]
    while waiting := [chain for chain in chains if chain.done is None]:
        answers = ask([(chain.unit, chain.text) for chain in waiting])
        for chain, answer in zip(waiting, answers, strict=True):
            if isinstance(answer, UnitError):
                chain.done = error_outcome(chain.unit, answer)
            else:
                _take(chain, answer)
    return [chain.done for chain in chains if chain.done is not None]


def _take(chain: _Chain, answer: Generation) -> None:
    steps = chain.unit.target["steps"]
    step, last = steps[chain.step], chain.step == len(steps) - 1
    chain.said, chain.usage = (*chain.said, answer.text), chain.usage + answer.usage
    scores = {"correct": 1.0, "parameters": 1.0, "error": 0.0}
    if chain.step == 0 or last:
        scores = _state_scores(read_state(answer.text), step["state"])
    predicted, gold = read_action(answer.text), SYSTEM_ACTIONS.index(step["action"])
    if scores["correct"] and predicted != gold:
        scores |= {"correct": 0.0, "error": float(ERRORS.index(action_error(predicted, gold)))}
    if last or not scores["correct"]:
        chain.done = _outcome(chain.unit, scores, output=list(chain.said), usage=chain.usage)
        return
    chain.text += "\n" + "\n".join([f"- Action: {step['action']}", *step["observed"]])
    chain.step += 1


def steps_of(unit: Unit) -> Iterator[tuple[str, str]]:
    """Yield the question of each step and its right answer."""
    chain = _Chain(unit, unit.content["history"])
    for step in unit.target["steps"]:
        right = f"- Dialogue state: {step['state']}\n- Action: {step['action']}"
        yield question("overall", chain.text), right
        chain.text += "\n" + "\n".join([f"- Action: {step['action']}", *step["observed"]])
