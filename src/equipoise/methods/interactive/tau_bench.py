r"""tau-bench: an agent with tools serves a customer, and the database tells whether it was right.

The customer has a hidden instruction; the agent has a policy, tools and a database. When the
dialogue ends, the database must equal the one that the annotated actions lead to, and what the
customer must be told must have been told:

.. math:: r = r_{action} \cdot r_{output} \in \{0, 1\}.

An agent that must be relied on is right every time: pass^k is the chance that all of :math:`k`
independent dialogues about one task succeed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    Json,
    Rng,
    ScoreSpec,
    Subject,
    Treatment,
    Unit,
    UsageError,
    between,
    capability_names,
    one_of,
    setting,
)
from equipoise.kit.language.environment import ModelUser, User
from equipoise.kit.language.episodes import EnvironmentTask
from equipoise.kit.language.shared import Ask, shared
from equipoise.methods.interactive._tau.airline import Airline
from equipoise.methods.interactive._tau.customer import Customer
from equipoise.methods.interactive._tau.errands import POLICY, Errand
from equipoise.methods.interactive._tau.official import SOURCE, SPLITS, Folder
from equipoise.methods.interactive._tau.retail import Retail
from equipoise.methods.interactive._tau.service import Case, Service
from equipoise.methods.interactive._tau.staff import Clerk, confirming
from equipoise.methods.interactive._tau.units import generated, released, shop

_LACKS = "ToolAgentUser: domain {} needs {}; {}, or choose domain shop, which needs nothing."


@dataclass(frozen=True)
class ToolAgentUser(EnvironmentTask):
    r"""Dialogues between an agent with tools and a simulated customer of a shop or an airline.

    An episode ends when the customer is satisfied, when the agent hands over to a human, or at
    ``steps``; then the reward is 0. A failing write changes nothing. Scores: ``reward``, the
    product of ``database`` (it equals the one that the annotated actions lead to, in canonical
    form) and ``output`` (all that the customer must be told was told); ``tool_faults``, calls that
    were malformed, unknown, of wrong types or refused; ``steps`` of the agent.

    Units that ask for no change are the stratum ``unchanged``: an agent that does nothing gets
    their database right. A customer who fails is an error of kind ``user``: such
    units are left out and not held against the agent.

    Parameters
    ----------
    domain
        ``shop`` is generated and needs nothing. ``retail`` and ``airline`` are the released ones.
    data
        For ``retail`` and ``airline``: a checkout of the released repository, or its
        ``tau_bench/envs``. Its task files are read, never run.
    split
        Of the released tasks: ``test``, or for retail also ``train`` and ``dev``. They become
        units of the split test, train or calibration.
    user
        A subject that plays the customer, from the instruction. None for the rules of the
        generated shop; the released domains need one.
    tasks
        Generated tasks.
    customers
        Customers of the generated shop; they have about three orders each.
    errands
        Most errands of a generated task, of 1 to 6; each may be a trap.
    traps
        Share of errands that the policy forbids or that the customer thinks better of, though the
        tools would do them.
    attention
        Chance that a generated customer notices when they are shown a call that is not what they
        want.
    steps
        Most answers of the agent, tool calls and messages alike.
    max_tokens
        Most new tokens in an answer of the agent.
    temperature
        Of the agent; the customer's is 1.
    released_search
        Keep a fault of the released one-stop search: seats and prices of a second leg on the next
        day are those of the first day.

    Raises
    ------
    UsageError
        If files are missing or of another version, or a released domain lacks data or a user.

    References
    ----------
    Yao et al., "τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains",
    ICLR 2025.

    Examples
    --------
    >>> task = ToolAgentUser(tasks=4)
    >>> unit = next(task.units(Rng(0)))
    >>> unit.content["instruction"][:19]
    'You are a customer.'
    >>> from equipoise.kit.language.talk import converse
    >>> converse(task, task.oracle(), [unit], Rng(0))[0].scores["reward"]
    1.0
    """

    domain: str = one_of("shop", "retail", "airline", default="shop")
    data: str | None = setting(None)
    split: str = one_of("test", "train", "dev", default="test")
    user: Subject | None = None
    tasks: int = between(1, 10_000, default=100)
    customers: int = between(10, 100_000, default=100)
    errands: int = between(1, 6, default=3)
    traps: float = between(0.0, 1.0, default=0.2)
    attention: float = between(0.0, 1.0, default=0.9)
    released_search: bool = True

    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("reward", low=0, high=1),
        ScoreSpec("database", low=0, high=1),
        ScoreSpec("output", low=0, high=1),
        ScoreSpec("tool_faults", higher_is_better=False, low=0, unit="calls"),
        ScoreSpec("steps", higher_is_better=None, low=0),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls(tasks=8, customers=20)

    def check(self) -> None:
        if self.user is not None and not {Generates, GeneratesAsync} & set(self.user.provides):
            has = ", ".join(capability_names(self.user.provides)) or "nothing"
            raise UsageError(f"ToolAgentUser: user must generate text; this subject has {has}.")
        if self.domain == "shop":
            if self.data is not None or self.split != "test":
                raise UsageError(
                    "ToolAgentUser: domain shop is generated; leave data and split out."
                )
            return
        if self.data is None:
            mend = f"set it to tau_bench/envs of a checkout of {SOURCE}"
            raise UsageError(_LACKS.format(self.domain, "data", mend))
        if self.user is None:
            mend = "name a subject that plays the customer"
            raise UsageError(_LACKS.format(self.domain, "a user", mend))
        if self.split not in SPLITS[self.domain]:
            there = ", ".join(SPLITS[self.domain])
            raise UsageError(
                f"ToolAgentUser: domain {self.domain} has no split {self.split}; it has {there}."
            )

    def content(self) -> Json:
        return None if self.domain == "shop" else self._folder().digest(self.split)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield generated tasks, or the released ones in order."""
        if self.domain == "shop":
            yield from generated(rng, self.tasks, self.customers, self.errands, self.traps)
            return
        folder = self._folder()
        yield from released(folder.cases(self.split), self._desk(), self.domain, self.split)

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what the customer wants and the annotated actions."""
        calls = [f"{name}({json.dumps(given)})" for name, given in unit.target["actions"]]
        return unit.content["instruction"], "\n".join(calls)

    def oracle(self) -> Any:
        return ScriptedClerk(slip=0.0).load(Rng(0))

    def _folder(self) -> Folder:
        assert self.data is not None, "check() sees to it"
        return Folder(self.data, self.domain, type(self).__name__)

    def episode(self, unit: Unit) -> Service:
        case = Case(
            unit.content["user_id"], unit.content["instruction"],
            [(name, given) for name, given in unit.target["actions"]], unit.target["outputs"],
        )  # fmt: skip
        if self.domain == "shop":
            episode: Service = Retail(shop(unit.content["shop"], self.customers), POLICY)
        else:
            episode = self._desk()
        episode.case = case
        return episode

    def _desk(self) -> Service:
        folder = self._folder()
        if self.domain == "retail":
            return Retail(folder.records(), folder.policy())
        return Airline(folder.records(), folder.policy(), self.released_search)

    def simulated_user(self, unit: Unit, rng: Rng) -> User:
        if self.user is not None:
            return ModelUser(_ask(self.user, rng.seed), unit.content["instruction"], rng)
        return Customer(
            unit.content["email"], unit.content["name_zip"],
            [Errand.from_json(each) for each in unit.content["errands"]],
            self.attention, rng.child("customer").python(),
        )  # fmt: skip


@dataclass(frozen=True)
class ScriptedClerk(Subject):
    r"""An agent that serves the generated shop by rules and errs with a known chance.

    Every errand has one decision that matters: what is written, told or declined. It goes wrong
    with chance ``slip``, the same for all tasks; or, with ``concentration`` :math:`c`, with a
    chance :math:`s` of each task's own, from :math:`Beta(c \cdot slip, c (1 - slip))`. A task with
    :math:`d` errands succeeds with chance :math:`(1 - s)^d`, and pass^k is the mean of
    :math:`E (1 - s)^{dk}` over tasks: see `expected_pass_hat_k`.

    It reads the conversation alone, and knows the words of the generated customers only.

    Parameters
    ----------
    slip
        Chance that a decision goes wrong, on average over tasks.
    concentration
        None for the same chance everywhere; small numbers for tasks that differ much.

    Examples
    --------
    >>> from equipoise.core import Request
    >>> clerk = ScriptedClerk().load(Rng(0))
    >>> clerk.generate([Request([{"role": "user", "content": "Hello"}])])[0].text
    'What can I do for you?'
    """

    slip: float = between(0.0, 1.0, default=0.1)
    concentration: float | None = between(0.01, 1e6, default=None)

    provides: ClassVar[frozenset[Capability]] = frozenset({Generates})

    def load(self, rng: Rng) -> Clerk:
        # A task's own chance hangs on the trial's seed alone, so that arms can be compared.
        return Clerk(self.slip, self.concentration, Rng(rng.seed).child("scripted clerk"))


@dataclass(frozen=True)
class ConfirmWrites(Treatment):
    """Show the customer every write word for word, and make it only after a yes.

    When the subject wants to call a tool that writes, the customer is asked instead whether the
    call is right, arguments and all. After a yes that very call is made; after anything else the
    subject is asked again. It catches slips that a customer can see. It does not catch what the
    customer wants and may not have, nor a write that is left out.

    Parameters
    ----------
    prefixes
        How the names of tools begin that write; none changes nothing.

    Examples
    --------
    >>> from equipoise.core import Generation, Request
    >>> from equipoise.kit.language.canned import Canned
    >>> class Hasty(Canned):
    ...     def generate(self, requests):
    ...         call = {"function": {"name": "cancel_pending_order", "arguments": "{}"}}
    ...         return [Generation(("",), tool_calls=((call,),)) for _ in requests]
    >>> agent = ConfirmWrites().apply(Hasty(lambda request: ""), Rng(0))
    >>> print(agent.generate([Request("Cancel it.")])[0].text)
    Before I do this, please check: cancel_pending_order {}
    Is that right (yes or no)?
    """

    prefixes: tuple[str, ...] = (
        "cancel_", "modify_", "exchange_", "return_", "book_", "update_", "send_",
    )  # fmt: skip

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})

    @classmethod
    def null(cls) -> ConfirmWrites:
        """Return the setting that shows nothing."""
        return cls(prefixes=())

    def apply(self, subject: Any, rng: Rng) -> Any:
        return confirming(subject, self.prefixes)


def expected_pass_hat_k(
    decisions: Any, k: int, slip: float, concentration: float | None = None
) -> float:
    r"""Chance that a `ScriptedClerk` succeeds in all of ``k`` dialogues about a task.

    The mean over tasks of :math:`E (1 - s)^{dk}`: with one slip :math:`s` for all it is
    :math:`(1 - s)^{dk}`; with :math:`1 - s \sim Beta(a, b)` it is
    :math:`B(a + dk, b) / B(a, b)`.

    Parameters
    ----------
    decisions
        Errands of each task, shape ``(tasks,)``.
    k
        Dialogues.
    slip, concentration
        As for `ScriptedClerk`.

    Raises
    ------
    UsageError
        If there are no tasks, or a number is out of range.

    Examples
    --------
    >>> round(expected_pass_hat_k([1, 2], 1, 0.5), 6)
    0.375
    >>> expected_pass_hat_k([1], 2, 0.5, 2.0)  # uniform: E (1 - s)^2 = 1/3
    0.3333333333333333
    """
    import numpy as np
    from scipy.special import betaln

    if not (len(decisions) and min(decisions) >= 1 and k >= 1 and 0 <= slip <= 1):
        raise UsageError(
            "expected_pass_hat_k: decisions must be one or more tasks with 1 or more each, k at"
            f" least 1 and slip from 0 to 1, got {len(decisions)} tasks, k {k}, slip {slip}."
        )
    powers = np.asarray(decisions, float) * k
    if concentration is None or slip in (0.0, 1.0):
        return float(((1 - slip) ** powers).mean())
    a, b = concentration * (1 - slip), concentration * slip
    return float(np.exp(betaln(a + powers, b) - betaln(a, b)).mean())


_live: dict[tuple[str, int], Any] = {}
_asks: WeakKeyDictionary[Any, tuple[Any, Ask]] = WeakKeyDictionary()


def _ask(user: Subject, seed: int) -> Ask:
    """Return what asks the simulated user; all dialogues under way share one."""
    key = repr(user), seed
    if key not in _live:
        _live.clear()  # one model at a time: they can be large
        _live[key] = user.load(Rng(seed).child("simulated user"))
    loop = asyncio.get_running_loop()
    if loop not in _asks or _asks[loop][0] is not _live[key]:
        _asks[loop] = _live[key], shared(_live[key])
    return _asks[loop][1]
