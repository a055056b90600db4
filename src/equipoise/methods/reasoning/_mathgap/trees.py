"""Grows proof trees from the root: rules in reverse until every branch is deep enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from equipoise.methods.reasoning._mathgap import numbers, words
from equipoise.methods.reasoning._mathgap.forms import (
    Comp,
    Comparison,
    CompEq,
    Cont,
    Form,
    Node,
    PartWhole,
    Thing,
    Transfer,
    object_sign,
    subject_sign,
)

SHAPES = ("linear_comparison", "linear_transfer", "linear_mixed", "part_whole", "nonlinear")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tree is grown within: the quantities and the kinds of comparison allowed."""

    leaf: tuple[int, int] = (2, 20)
    inner: tuple[int, int] = (2, 10_000)
    comparisons: tuple[Comparison, ...] = ("more", "less")


@dataclass(slots=True)
class _Sketch:
    """A node without numbers or names: how to make its form, and from what."""

    make: Callable[[int], Form]
    recipe: numbers.Recipe = None
    premises: tuple[_Sketch, ...] = ()
    swapped: bool = False
    counted: bool = True


class _Grower:
    """One tree in the making. Agents are numbers until all are known."""

    def __init__(
        self, shape: str, thing: Thing, limits: Limits, random: Random, directions: Random
    ) -> None:
        self.shape, self.thing, self.limits = shape, thing, limits
        self.random, self.directions = random, directions
        self.people: list[str] = []
        self.agents = 0

    def agent(self) -> int:
        self.agents += 1
        return self.agents - 1

    def container(self, who: int, depth: int) -> _Sketch:
        """Return a sketch of who has how many, ``depth`` steps deep."""

        def make(q: int) -> Form:
            return Cont(self.people[who], q, self.thing)

        if depth == 0:
            return _Sketch(make)
        if self.shape == "nonlinear" and depth > 1:
            return self._by_equality(make, who, depth)
        if self.shape == "linear_transfer" or (
            self.shape == "linear_mixed" and self.directions.random() < 0.5
        ):
            return self._by_transfer(make, who, depth)
        return self._by_comparison(make, who, depth)

    def _by_comparison(self, make: Callable[[int], Form], who: int, depth: int) -> _Sketch:
        """Rules 1 and 2: the container's agent is the comparison's subject or its object."""
        other = self.agent()
        kind = self.directions.choice(self.limits.comparisons)
        subject = self.directions.random() < 0.5
        sign = subject_sign(kind) if subject else object_sign(kind)
        first, second = (who, other) if subject else (other, who)

        def compare(q: int) -> Form:
            return Comp(self.people[first], self.people[second], q, kind, self.thing)

        known = self.container(other, depth - 1)
        return _Sketch(make, (sign, known.recipe, None), (known, _Sketch(compare)))

    def _by_transfer(self, make: Callable[[int], Form], who: int, depth: int) -> _Sketch:
        """Rule 3: the state before, then the event."""
        other = self.agent()
        receives = self.directions.random() < 0.5
        receiver, sender = (who, other) if receives else (other, who)

        def give(q: int) -> Form:
            return Transfer(self.people[receiver], self.people[sender], q, self.thing)

        before = self.container(who, depth - 1)
        recipe = ("+" if receives else "-", before.recipe, None)
        return _Sketch(make, recipe, (before, _Sketch(give)))

    def _by_equality(self, make: Callable[[int], Form], who: int, depth: int) -> _Sketch:
        """Rule 6, whose comparison comes of rule 4."""
        other, third, fourth = self.agent(), self.agent(), self.agent()
        subject = self.directions.random() < 0.5
        first, second = (who, other) if subject else (other, who)

        def equal(_: int) -> Form:
            people = self.people
            return CompEq(people[first], people[second], people[third], people[fourth], self.thing)

        known = self.container(other, depth - 1)
        difference = self._difference(third, fourth, depth - 1)
        recipe = ("+" if subject else "-", known.recipe, difference.recipe)
        premises = (known, difference, _Sketch(equal, counted=False))
        return _Sketch(make, recipe, premises)

    def _difference(self, third: int, fourth: int, depth: int) -> _Sketch:
        """Rule 4; which of the two has more is drawn, so the difference is positive."""
        kind: Comparison = self.directions.choice(("more", "less"))

        def compare(q: int) -> Form:
            return Comp(self.people[third], self.people[fourth], q, kind, self.thing)

        one, two = self.container(third, depth - 1), self.container(fourth, depth - 1)
        swapped = kind == "less"
        left, right = (two, one) if swapped else (one, two)
        return _Sketch(compare, ("-", left.recipe, right.recipe), (one, two), swapped=swapped)

    def whole(self, things: list[Thing]) -> _Sketch:
        """Rule 5: a total over as many agents as there are things."""
        members = [self.agent() for _ in things]

        def make(q: int) -> Form:
            return PartWhole(tuple(self.people), q, self.thing)

        def part(who: int, thing: Thing) -> _Sketch:
            return _Sketch(lambda q: Cont(self.people[who], q, thing))

        recipe: numbers.Recipe = None
        for _ in members[1:]:
            recipe = ("+", recipe, None)
        return _Sketch(make, recipe, tuple(map(part, members, things)))

    def fill(self, sketch: _Sketch, drawn: numbers.Drawn) -> Node:
        """Return the node with its numbers in."""
        if not sketch.premises:
            quantity = drawn if sketch.counted else 0
            return Node(sketch.make(quantity), variant=self.random.randrange(words.VARIANTS))
        values = self._operands(sketch, drawn)
        sign = f" {sketch.recipe[0]} "
        shown = sign.join(str(numbers.value(each)) for each in values)
        counted = values[::-1] if sketch.swapped else values
        parts = [*counted, None][: len(sketch.premises)]
        total = numbers.value(drawn)
        return Node(
            sketch.make(total),
            tuple(map(self.fill, sketch.premises, parts)),
            f"{shown} = {total}",
        )

    def _operands(self, sketch: _Sketch, drawn: numbers.Drawn) -> list[numbers.Drawn]:
        if all(each.recipe is None for each in sketch.premises) and len(sketch.premises) > 2:
            found = []
            for _ in sketch.premises[1:]:
                _, drawn, last = drawn
                found.append(last)
            return [drawn, *found[::-1]]
        return [drawn[1], drawn[2]]


def grow(
    shape: str,
    depth: int,
    width: int,
    surface: str,
    limits: Limits,
    random: Random,
    directions: Random,
) -> Node | None:
    """Return a proof tree, or None when the directions drawn leave no numbers within limits.

    ``width`` counts only for ``part_whole``, ``depth`` only for the others.
    ``directions`` draws rules and who is compared with whom, ``random`` the rest.
    """
    if shape == "part_whole":
        thing, things = words.parts(width, surface, random)
        grower = _Grower(shape, thing, limits, random, directions)
        sketch = grower.whole(things)
    else:
        grower = _Grower(shape, words.thing(surface, random), limits, random, directions)
        sketch = grower.container(grower.agent(), depth)
    drawn = numbers.draw(sketch.recipe, limits.leaf, limits.inner, random)
    if drawn is None:
        return None
    grower.people += words.names(grower.agents, random)
    return grower.fill(sketch, drawn)
