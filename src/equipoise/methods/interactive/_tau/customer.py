"""A customer of the generated shop who answers by rules what the agent asks."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from equipoise.methods.interactive._tau.checking import checked_call, same_call
from equipoise.methods.interactive._tau.errands import Errand

_ENDS = re.compile(
    r"anything else|is done|(has|have) been|successfully|completed|cannot|can't|can not|unable"
    r"|not able|not possible|not allowed|leave (it|everything)"
)
_CONFIRMS = re.compile(
    r"yes or no|yes/no|\(yes\)|confirm|go ahead|proceed|shall i|should i|do you want me"
    r"|(is|are) (that|this|these|everything) (right|correct|okay|ok)"
)
_OPEN = re.compile(r"\b(what|which|why|where)\b")
_SUBJECTS = {
    "reason": r"\bwhy\b|reason",
    "payment": r"payment|\bpay\b|refund|card|method",
    "address": r"address",
}
_PATIENCE = 3


class Customer:
    """Wants some errands done, one after the other, and tells only what is asked.

    They leave when all errands are done or declined, or when the agent makes no sense three times.

    Parameters
    ----------
    email, name_zip
        What they answer when asked who they are.
    errands
        What they want, in order.
    attention
        Chance that they notice a call that is not what they want when it is shown to them.
    draws
        What attention is drawn from.
    """

    def __init__(
        self,
        email: str,
        name_zip: str,
        errands: Sequence[Errand],
        attention: float,
        draws: random.Random,
    ) -> None:
        self._email, self._name_zip = email, name_zip
        self._errands = list(errands)
        self._attention, self._draws = attention, draws
        self._patience = _PATIENCE
        self._greeted = False

    async def reply(self, said: str) -> str | None:
        if not self._greeted:
            self._greeted = True
            return f"Hello. {self._errands[0].ask}"
        errand, low = self._errands[0], said.lower()
        call = checked_call(said)
        if call is not None:
            return self._checked(errand, call)
        if "?" in said and "anything else" not in low:
            known, open_ = self._known(errand, low), _OPEN.search(low) is not None
            if known is not None and (open_ or re.search(r"\b(may|could|can)\b", low)):
                return known
            if _CONFIRMS.search(low) and not open_:
                return "Yes." if errand.consents else "No. On reflection, leave it as it is."
        if _ENDS.search(low):
            self._errands.pop(0)
            self._patience = _PATIENCE
            return self._errands[0].ask if self._errands else None
        known = self._known(errand, low)
        if known is None:
            self._patience -= 1
            return errand.ask if self._patience else None
        return known

    def _known(self, errand: Errand, low: str) -> str | None:
        """Return what is asked for, None if it is nothing that the customer knows."""
        if "email" in low or "e-mail" in low:
            return self._email
        if re.search(r"\bzip\b|full name|your name", low) and "address" not in low:
            return self._name_zip
        for subject, words in _SUBJECTS.items():
            if subject in errand.answers and re.search(words, low):
                return errand.answers[subject]
        return None

    def _checked(self, errand: Errand, call: tuple[str, dict[str, object]]) -> str:
        if not errand.consents:
            return "No. Leave it as it is."
        wanted = errand.wanted is not None and same_call(call, errand.wanted)
        if wanted or self._draws.random() >= self._attention:
            return "Yes, that is right."
        return f"No, that is not right. {' '.join([errand.ask, *errand.answers.values()])}"
