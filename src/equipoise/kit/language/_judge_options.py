"""The probabilities of a judge's options, from the log-likelihoods of a model that scores text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from equipoise.core import Generation, Message, Request, ScoresText, Usage
from equipoise.kit.language.canned import message_text


class Options:
    """A subject that says the most probable of some options, by their log-likelihood.

    Seen as one with `Generates`, so that what waits is asked together; ``log_probs`` hold the
    options' probabilities instead, which sum to 1.
    """

    def __init__(self, subject: ScoresText, options: Sequence[str]) -> None:
        self.subject = subject
        self.options = list(options)
        tokens = [tuple(subject.tokenize(each)) for each in self.options]
        # "1" begins "10": what the model means by "1" is the mass of "1" that does not go on.
        self._longer = [
            [j for j, more in enumerate(tokens) if len(more) > len(t) and more[: len(t)] == t]
            for t in tokens
        ]
        self._order = sorted(range(len(tokens)), key=lambda place: -len(tokens[place]))

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        pairs = [(each.prompt, option) for each in requests for option in self.options]
        scores = self.subject.log_likelihood(pairs)
        size = len(self.options)
        found = []
        for place, request in enumerate(requests):
            few = scores[place * size : (place + 1) * size]
            total = np.array([each.total for each in few])
            mass = np.exp(total - total.max())
            for option in self._order:
                mass[option] -= sum(mass[longer] for longer in self._longer[option])
                mass[option] = max(mass[option], 0.0)
            mass /= mass.sum()
            tokens = sum(len(self.subject.tokenize(text)) for text in _texts(request.prompt))
            found.append(
                Generation(
                    (self.options[int(mass.argmax())],),
                    ("stop",),
                    log_probs=(mass,),
                    usage=Usage(tokens, 0),
                )
            )
        return found


def _texts(prompt: str | Sequence[Message]) -> list[str]:
    return [prompt] if isinstance(prompt, str) else [message_text(each) for each in prompt]
