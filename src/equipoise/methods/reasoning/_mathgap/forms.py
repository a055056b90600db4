"""Logical forms and the six inference rules.

A proof tree is a `Node`; its leaves are what a problem states, its root is what
the problem asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Comparison = Literal["more", "less", "times", "fraction"]


@dataclass(frozen=True, slots=True)
class Thing:
    """What is counted: an entity, with an attribute or a unit but never both.

    Examples
    --------
    >>> print(Thing("oil", unit="litres"), Thing("keys", attribute="green"))
    litres of oil green keys
    """

    entity: str
    attribute: str | None = None
    unit: str | None = None

    def __str__(self) -> str:
        if self.unit:
            return f"{self.unit} of {self.entity}"
        return f"{self.attribute} {self.entity}" if self.attribute else self.entity


@dataclass(frozen=True, slots=True)
class Cont:
    """``agent`` has ``quantity`` of ``thing``."""

    agent: str
    quantity: int
    thing: Thing


@dataclass(frozen=True, slots=True)
class Comp:
    """``agent`` has ``quantity`` more (less, times, a fraction) of ``thing`` than ``other``."""

    agent: str
    other: str
    quantity: int
    kind: Comparison
    thing: Thing


@dataclass(frozen=True, slots=True)
class Transfer:
    """``sender`` gives ``receiver`` a ``quantity`` of ``thing``."""

    receiver: str
    sender: str
    quantity: int
    thing: Thing


@dataclass(frozen=True, slots=True)
class PartWhole:
    """What all ``agents`` have, counted as ``thing``, is ``quantity``."""

    agents: tuple[str, ...]
    quantity: int
    thing: Thing


@dataclass(frozen=True, slots=True)
class CompEq:
    """``agent`` has as much more than ``other`` as ``third`` and ``fourth`` differ by."""

    agent: str
    other: str
    third: str
    fourth: str
    thing: Thing


Form = Cont | Comp | Transfer | PartWhole | CompEq


@dataclass(frozen=True, slots=True)
class Node:
    """A logical form and the premises it follows from; none for an axiom.

    ``equation`` reads ``x op y = z`` in a derived node; ``variant`` picks one
    of the wordings of a leaf.
    """

    form: Form
    premises: tuple[Node, ...] = ()
    equation: str = ""
    variant: int = 0

    def walk(self) -> Iterator[Node]:
        """Yield nodes in post-order: premises from left to right, then what follows."""
        for premise in self.premises:
            yield from premise.walk()
        yield self

    @property
    def depth(self) -> int:
        """Edges on the longest way to a leaf."""
        return 1 + max(each.depth for each in self.premises) if self.premises else 0


def agents_of(form: Form) -> tuple[str, ...]:
    """Return the agents a form names, in its order."""
    match form:
        case Cont(agent=a):
            return (a,)
        case Comp(agent=a, other=b):
            return (a, b)
        case Transfer(receiver=a, sender=b):
            return (a, b)
        case CompEq(agent=a, other=b, third=c, fourth=d):
            return (a, b, c, d)
        case PartWhole(agents=agents):
            return agents


def infer(premises: Sequence[Form], agent: str | None = None) -> Form:
    """Return what follows from premises by the rule that fits their kinds.

    Parameters
    ----------
    premises
        Forms in the order of the rule (a state before the event that changes it).
    agent
        Whose container is wanted after a transfer of which both sides are
        known; it is the container's own agent otherwise.

    Returns
    -------
    Form
        1, 2. container, comparison: container of the other agent.
        3. container, transfer: container afterwards.
        4. container, container: comparison, stated so that its quantity is positive.
        5. containers of several agents, when ``agent`` is ``"all"``: part-whole.
        6. container, comparison, equality of comparisons: container of the other agent.

    Raises
    ------
    ValueError
        If no rule fits.

    Examples
    --------
    >>> apples = Thing("apples")
    >>> infer([Cont("Ann", 5, apples), Comp("Bo", "Ann", 3, "more", apples)])
    Cont(agent='Bo', quantity=8, thing=Thing(entity='apples', attribute=None, unit=None))
    """
    if agent == "all" and premises and all(isinstance(each, Cont) for each in premises):
        parts = [each for each in premises if isinstance(each, Cont)]
        total = sum(each.quantity for each in parts)
        return PartWhole(tuple(each.agent for each in parts), total, parts[0].thing)
    match premises:
        case [Cont(a, q, thing), Comp(b, c, k, kind)] if a == c:
            return Cont(b, apply(subject_sign(kind), q, k), thing)
        case [Cont(a, q, thing), Comp(b, c, k, kind)] if a == b:
            return Cont(c, apply(_INVERSE[subject_sign(kind)], q, k), thing)
        case [Cont(a, q, thing), Transfer(receiver, sender, k)] if a in (receiver, sender):
            return Cont(a, apply("+" if a == receiver else "-", q, k), thing)
        case [Cont(a, p, thing), Cont(b, q)] if p >= q:
            return Comp(a, b, p - q, "more", thing)
        case [Cont(a, p, thing), Cont(b, q)]:
            return Comp(a, b, q - p, "less", thing)
        case [Cont(a, q, thing), Comp(quantity=k), CompEq(b, c)] if a == b:
            return Cont(c, q - k, thing)
        case [Cont(a, q, thing), Comp(quantity=k), CompEq(b, c)] if a == c:
            return Cont(b, q + k, thing)
    raise ValueError(f"no rule fits {premises!r}")


_SIGN = {"more": "+", "less": "-", "times": "*", "fraction": "/"}
_INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}


def subject_sign(kind: Comparison) -> str:
    """Return the operation that takes the object's quantity to the subject's."""
    return _SIGN[kind]


def object_sign(kind: Comparison) -> str:
    """Return the operation that takes the subject's quantity to the object's."""
    return _INVERSE[_SIGN[kind]]


def apply(sign: str, left: int, right: int) -> int:
    """Return ``left sign right``; a quotient must be whole."""
    if sign == "/":
        if left % right:
            raise ValueError(f"{left} / {right} is not a whole number")
        return left // right
    return left + right if sign == "+" else left - right if sign == "-" else left * right
