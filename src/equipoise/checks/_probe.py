"""Puts a part to work in a small way and boils what comes of it down to JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from equipoise.catalog import Entry, digest
from equipoise.core import (
    Generates,
    HasModule,
    Predicts,
    PredictsInterval,
    PredictsProba,
    PredictsQuantiles,
    PredictsSet,
    PredictsSurvival,
    Request,
    Rng,
    ScoresText,
    Screens,
    Subject,
    Trains,
    UsageError,
)

RNG = Rng(20250424)
WORDS = ("two and two", "a river", "red", "the quick brown fox")


def work(entry: Entry, part: Any) -> Any:
    """Return what a part does with a fixed stream, as JSON with rounded numbers."""
    if entry.kind == "subject":
        return probe(part.load(RNG), type(part))
    if entry.kind == "treatment":
        return probe(part.apply(stock_subject(type(part)), RNG), type(part))
    if entry.kind == "task":
        units = list(some_units(part))
        found: list[Any] = [
            [u.id, u.content, u.target, u.split, u.cluster, u.stratum] for u in units
        ]
        if not part.converses():
            found.append([o.scores for o in perform(part, part.oracle(), units)])
        return plain(found)
    outcomes, _ = part.simulate(RNG)
    return plain(part.measure(outcomes, RNG.child("measure")))


def some_units(task: Any, most: int = 24) -> list[Any]:
    """Return the first test units of a task."""
    found = []
    for unit in task.units(RNG.child("units")):
        if unit.split == "test":
            found.append(unit)
        if len(found) == most:
            break
    return found


def perform(task: Any, subject: Any, units: Sequence[Any]) -> list[Any]:
    """Return the outcomes of some units, whether the task converses or not."""
    rng = RNG.child("perform")
    if task.converses():
        from equipoise.kit.language.loop import run
        from equipoise.kit.language.talk import hold

        return run(hold(task, subject, units, lambda unit: rng.child(unit.id)))
    if task.contrasts():
        return list(task.contrast(subject, task.reference.load(RNG), units, rng))
    return list(task.perform(subject, units, rng))


def stock_subject(treatment: type[Any]) -> Any:
    """Return a small live subject that has what a treatment needs."""
    own = treatment.tiny_subject()
    if own is not None:
        return own
    if treatment.needs <= {Generates}:
        from equipoise.kit.language.canned import Canned

        return Canned(_echo)
    from equipoise.kit.language.tiny import tiny_model

    return tiny_model()


def _echo(request: Request) -> str:
    """Answer with what was asked and how, so that a treatment shows."""
    prompt = request.prompt
    text = prompt if isinstance(prompt, str) else json.dumps(list(prompt), sort_keys=True)
    return f"{text} {request.temperature} {request.top_p} {request.max_tokens} {request.n}"


def probe(live: Any, cls: type[Any] = Subject) -> Any:
    """Return what a live subject answers to fixed questions; ``cls`` is of what part."""
    live = ready(live, cls)
    found: dict[str, Any] = {}
    if isinstance(live, Generates):
        found["texts"] = [generation.texts for generation in live.generate(requests())]
    if isinstance(live, ScoresText):
        pairs = [(word, " again") for word in WORDS]
        found["log_probs"] = [score.log_probs for score in live.log_likelihood(pairs)]
    for name, ask in questions(live).items():
        found[name] = ask(rows(live))
    if isinstance(live, PredictsInterval):
        found["intervals"] = live.predict_interval(rows(live), 0.2)
    if isinstance(live, Screens):
        found["screened"] = _screened(live)
    if not found and isinstance(live, HasModule):
        found["state"] = {k: v.double().sum().item() for k, v in live.module.state_dict().items()}
    if not found:
        found["repr"] = type(live).__name__
    return plain(found)


def questions(live: Any) -> dict[str, Callable[[np.ndarray], Any]]:
    """Return the predictions of a live subject that are made row by row."""
    found: dict[str, Callable[[np.ndarray], Any]] = {}
    if isinstance(live, Predicts):
        found["predictions"] = live.predict
    if isinstance(live, PredictsProba):
        found["probabilities"] = live.predict_proba
    if isinstance(live, PredictsQuantiles):
        found["quantiles"] = lambda inputs: live.predict_quantiles(inputs, (0.1, 0.5, 0.9))
    if isinstance(live, PredictsSurvival):
        found["survival"] = lambda inputs: live.predict_survival(inputs, np.array([0.5, 1.0, 2.0]))
    if isinstance(live, PredictsSet):
        found["sets"] = lambda inputs: live.predict_set(inputs, 0.2)
    return found


def ready(live: Any, cls: type[Any]) -> Any:
    """Return a learner that has yet to learn as one that has learned, all others as they are."""
    if not isinstance(live, Trains):
        return live
    try:
        for ask in questions(live).values():
            ask(rows(live))
        if isinstance(live, PredictsInterval):
            live.predict_interval(rows(live), 0.2)
        if isinstance(live, Screens):
            _screened(live)
    except UsageError:  # as learners refuse that have not been trained
        data = cls.tiny_examples()
        return live.fit(_stock_examples() if data is None else data, RNG)
    return live


def _screened(live: Any) -> Any:
    """Return decisions about rows: of labels, or of rows whose targets are given."""
    asked = rows(live, 20)
    try:
        return live.screen(asked, None, 0.2, RNG)
    except UsageError:
        return live.screen(asked, asked.sum(axis=1), 0.2, RNG)


def _stock_examples() -> Any:
    from equipoise.kit.arrays import Examples

    draw = RNG.child("examples").numpy()
    inputs = draw.normal(size=(120, 4))
    split = np.where(np.arange(120) < 60, "train", "calibration")
    return Examples(inputs, inputs.sum(axis=1) + draw.normal(size=120), split)


def requests() -> list[Request]:
    """Return requests a text subject must answer, greedy and sampled."""
    chats = [[{"role": "user", "content": word}] for word in WORDS]
    return [
        Request(chat, max_tokens=4, temperature=0.7 * (i % 2), seed=i)
        for i, chat in enumerate(chats)
    ]


def rows(live: Any, n: int = 7) -> np.ndarray:
    """Return rows of numbers as wide as a predictor takes."""
    return RNG.child("rows").numpy().normal(size=(n, _width(live))).astype(np.float64)


def _width(live: Any) -> int:
    for holder in (live, getattr(live, "estimator", None), getattr(live, "module", None)):
        for name in ("n_features_in_", "in_features", "inputs"):
            width = getattr(holder, name, None)
            if isinstance(width, int):
                return width
    module = getattr(live, "module", None)
    for layer in module.modules() if module is not None else ():
        if isinstance(getattr(layer, "in_features", None), int):
            return int(layer.in_features)
    return 4


def plain(value: Any) -> Any:
    """Return JSON; numbers keep six significant digits, so that float noise does not count."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else repr(value)
    return value


def fingerprint(entry: Entry) -> str:
    """Return the hash of what a part's smallest instance does."""
    return digest(work(entry, entry.load().tiny()))
