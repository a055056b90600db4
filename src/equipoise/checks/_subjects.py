"""What every subject must do."""

from __future__ import annotations

from typing import Any

import numpy as np

from equipoise.checks._probe import RNG, WORDS, questions, ready, requests, rows
from equipoise.checks._run import Case
from equipoise.core import Generates, ScoresText, capability_names


def check_capabilities_exist(case: Case) -> None:
    """The live subject has every capability that is declared."""
    part = case.part
    live = part.load(RNG)
    missing = [each for each in part.provides if not isinstance(live, each)]
    case.need(not missing, f"declares {capability_names(missing)}, which it does not have")


def check_one_at_a_time_equals_batched(case: Case) -> None:
    """Asking one at a time gives what asking all at once gives."""
    for ask, inputs in _questions(case):
        together = ask(inputs)
        alone = [ask(inputs[i : i + 1])[0] for i in range(len(inputs))]
        case.need(_same(together, alone), "a batch gives other answers than single requests")


def check_order_is_irrelevant(case: Case) -> None:
    """Reordering inputs reorders outputs."""
    for ask, inputs in _questions(case):
        forward, backward = ask(inputs), ask(inputs[::-1])
        case.need(_same(forward, backward[::-1]), "answers depend on the order of requests")


def check_empty_input_works(case: Case) -> None:
    """No inputs give no outputs."""
    for ask, inputs in _questions(case):
        case.need(len(ask(inputs[:0])) == 0, "no requests do not give no answers")


def _questions(case: Case) -> list[tuple[Any, Any]]:
    live = ready(case.part.load(RNG), case.cls)
    found: list[tuple[Any, Any]] = []
    if isinstance(live, Generates):
        found.append((lambda asked: [g.texts for g in live.generate(asked)], requests()))
    if isinstance(live, ScoresText):
        pairs = [(word, " again") for word in WORDS]
        found.append((lambda asked: [s.log_probs for s in live.log_likelihood(asked)], pairs))
    found += [(ask, rows(live)) for ask in questions(live).values()]
    return found


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, (str, tuple)):
        return bool(one == two)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if np.asarray(one).dtype.kind in "biufc":
        return bool(np.allclose(one, two, atol=1e-4))
    return bool(np.array_equal(one, two))
