"""A problem as people meet it: text, question, chain of thought, answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from equipoise.core import Rng, UsageError
from equipoise.core.errors import nearest
from equipoise.methods.reasoning._mathgap import trees, words
from equipoise.methods.reasoning._mathgap.forms import (
    Comp,
    CompEq,
    Cont,
    Form,
    Node,
    PartWhole,
    Thing,
    Transfer,
    agents_of,
)

_TRIES = 10_000


@dataclass(frozen=True)
class Problem:
    """An arithmetic word problem with its proof.

    Parameters
    ----------
    shape
        One of `SHAPES`.
    root
        The proof tree; its leaves are stated, its root is asked for.
    order
        Positions of the leaves in the text; leaves count from left to right.
    variant
        Picks the wording of the question.
    """

    shape: str
    root: Node
    order: tuple[int, ...]
    variant: int = 0

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in post-order."""
        return tuple(self.root.walk())

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The axioms, from left to right."""
        return tuple(node for node in self.nodes if not node.premises)

    @property
    def forms(self) -> tuple[Form, ...]:
        """What is stated, as logical forms, in the order of the text."""
        return tuple(self.leaves[at].form for at in self.order)

    @property
    def depth(self) -> int:
        """Edges from the root to its farthest leaf."""
        return self.root.depth

    @property
    def width(self) -> int:
        """Number of leaves."""
        return len(self.leaves)

    @property
    def movement(self) -> int:
        """Which leaf stands first, 0 in the canonical order."""
        return self.order[0]

    @property
    def answer(self) -> int:
        """The number asked for."""
        assert isinstance(self.root.form, Cont | PartWhole)
        return self.root.form.quantity

    @cached_property
    def body(self) -> str:
        """The sentences before the question."""
        leaves = (self.leaves[at] for at in self.order)
        return " ".join(words.state(leaf.form, leaf.variant) for leaf in leaves)

    @property
    def question(self) -> str:
        """What is asked."""
        return words.ask(self.root.form, self.variant)

    @property
    def text(self) -> str:
        """Sentences and question."""
        return f"{self.body} {self.question}"

    @property
    def trace(self) -> str:
        """The chain of thought: leaves restated where needed, a sentence for each step."""
        return " ".join(
            words.derive(node.form, node.equation)
            if node.premises
            else words.state(node.form, node.variant)
            for node in self.nodes
        )

    @property
    def answer_text(self) -> str:
        """The answer as a sentence."""
        return words.state(self.root.form)

    def reordered(self, order: Sequence[int]) -> Problem:
        """Return the problem with its sentences in another order.

        Raises
        ------
        UsageError
            If an order breaks time: what touches an agent before a transfer
            must not come after it.
        """
        if sorted(order) != list(range(self.width)):
            raise UsageError(f"Problem: order must rearrange 0 to {self.width - 1}, got {order!r}.")
        place = {leaf: at for at, leaf in enumerate(order)}
        for early, late in self._timed:
            if place[early] > place[late]:
                raise UsageError(
                    "Problem: order must keep transfers in time, but it puts sentence "
                    f"{late} before sentence {early}."
                )
        return replace(self, order=tuple(order))

    def moved(self, leaf: int) -> Problem:
        """Return the problem with one leaf moved to the front, the rest as it was."""
        if not 0 <= leaf < self.width:
            raise UsageError(
                f"Problem: movement must be from 0 to {self.width - 1} here, got {leaf}."
            )
        rest = [at for at in range(self.width) if at != leaf]
        return self.reordered([leaf, *rest])

    def renamed(self, names: Mapping[str, str], thing: Thing | None = None) -> Problem:
        """Return the problem about other people, and other things if ``thing`` is given."""
        agents = {agent for leaf in self.leaves for agent in agents_of(leaf.form)}
        after = [names.get(agent, agent) for agent in agents]
        if len(set(after)) < len(agents):
            raise UsageError("Problem: names must give different people different names.")
        return replace(self, root=_renamed(self.root, names, thing))

    @cached_property
    def split(self) -> Literal["train", "test"]:
        """The half of all problems it belongs to, whatever its order and wording."""
        text = "\n".join(words.state(leaf.form) for leaf in self.leaves)
        digest = hashlib.blake2b(text.encode(), digest_size=1).digest()
        return "train" if digest[0] & 1 else "test"

    @cached_property
    def _timed(self) -> tuple[tuple[int, int], ...]:
        """Pairs of leaves whose order in time is fixed."""
        found = []
        for late, leaf in enumerate(self.leaves):
            for early in range(late):
                one, two = self.leaves[early].form, leaf.form
                if (isinstance(one, Transfer) or isinstance(two, Transfer)) and set(
                    agents_of(one)
                ) & set(agents_of(two)):
                    found.append((early, late))
        return tuple(found)


def _renamed(node: Node, names: Mapping[str, str], thing: Thing | None) -> Node:
    def new(agent: str) -> str:
        return names.get(agent, agent)

    form = node.form
    about = thing or form.thing
    renamed: Form
    match form:
        case Cont(a, q):
            renamed = Cont(new(a), q, about)
        case Comp(a, b, q, kind):
            renamed = Comp(new(a), new(b), q, kind, about)
        case Transfer(a, b, q):
            renamed = Transfer(new(a), new(b), q, about)
        case PartWhole(agents, q):
            renamed = PartWhole(tuple(map(new, agents)), q, about)
        case CompEq(a, b, c, d):
            renamed = CompEq(new(a), new(b), new(c), new(d), about)
    premises = tuple(_renamed(each, names, thing) for each in node.premises)
    return replace(node, form=renamed, premises=premises)


def generate(
    shape: str = "linear_comparison",
    depth: int | None = None,
    width: int | None = None,
    *,
    rng: Rng,
    surface: str = "mixed",
    movement: int = 0,
    leaf: tuple[int, int] = (2, 20),
    inner: tuple[int, int] = (2, 10_000),
    comparisons: Sequence[str] = ("more", "less"),
    split: Literal["train", "test"] | None = None,
    tree: Rng | None = None,
    who: str = "generate",
) -> Problem:
    r"""Return a new arithmetic word problem whose proof has the complexity asked for.

    The tree is grown by applying inference rules backwards from what is asked.
    Directions are drawn first; numbers are then uniform over all assignments
    within the limits (see `numbers`).

    Parameters
    ----------
    shape
        ``linear_comparison``: each step compares two people; a proof of depth
        $d$ has $d + 1$ leaves. ``linear_transfer``: things change hands.
        ``linear_mixed``: both. ``part_whole``: a total over ``width`` people,
        one step deep. ``nonlinear``: steps that join several derived facts;
        leaves more than double with each level (2, 5, 10, 21, 42, ...).
    depth
        Steps from what is asked to the farthest leaf; 2 unless given.
    width
        People in a ``part_whole`` problem, 3 unless given; for the other
        shapes it follows from the depth.
    rng
        The stream to draw from; the same stream gives the same problem.
    surface
        How things are called: ``plain`` (keys), ``attribute`` (green keys),
        ``unit`` (litres of oil), or ``mixed``, one of them at random.
    movement
        The leaf to move to the front of the text, counted from 0.
    leaf, inner
        Least and greatest quantity that is stated, and that is derived.
    comparisons
        Kinds to draw from: ``more``, ``less``, ``times``, ``fraction``.
    split
        Draw from one half of all problems only, so that what is learnt from
        is never what is asked, whatever the seeds.
    tree
        A stream of its own for the steps and directions of the proof, so that
        several problems share one tree and differ in numbers, names and words.
    who
        Named in complaints.

    Raises
    ------
    UsageError
        If the specification can't be met.

    Examples
    --------
    >>> problem = generate(depth=1, rng=Rng(3))
    >>> print(problem.body)
    Heidi has 16 old maps. Heidi has 6 more old maps than Ruben.
    >>> print(problem.question)
    What number of old maps does Ruben have?
    >>> print(problem.trace)
    Heidi has 16 old maps. Heidi has 6 more old maps than Ruben. So Ruben has 16 - 6 = 10 old maps.
    """
    depth, width = complexity(shape, depth, width, who)
    limits = trees.Limits(tuple(leaf), tuple(inner), tuple(comparisons))  # type: ignore[arg-type]
    check_limits(who, shape, surface, limits)
    random = rng.python()
    shared = tree.python() if tree else None
    for _ in range(_TRIES):
        directions = shared.getstate() if shared else None
        root = trees.grow(shape, depth, width, surface, limits, random, shared or random)
        if root is None:
            continue
        leaves = sum(1 for node in root.walk() if not node.premises)
        problem = Problem(shape, root, tuple(range(leaves)), random.randrange(words.VARIANTS))
        if split in (None, problem.split):
            return problem.moved(movement) if movement else problem
        if shared and directions:  # these directions are possible, so stay with them
            shared.setstate(directions)
    raise UsageError(
        f"{who}: no numbers from {leaf[0]} to {leaf[1]} fit a {shape} proof of depth {depth}"
        f" whose values stay from {inner[0]} to {inner[1]}; widen leaf or inner."
    )


def complexity(
    shape: str, depth: int | None, width: int | None, who: str = "generate"
) -> tuple[int, int]:
    """Return depth and width in full, or raise `UsageError` when they don't fit the shape."""
    if shape not in trees.SHAPES:
        known = ", ".join(trees.SHAPES)
        raise UsageError(
            f'{who}: no shape "{shape}".{nearest(shape, trees.SHAPES)} There are: {known}.'
        )
    if shape == "part_whole":
        if depth not in (None, 1):
            raise UsageError(f"{who}: part_whole proofs have depth 1, got {depth}; set width.")
        if width is not None and not 2 <= width <= len(words.NAMES):
            raise UsageError(f"{who}: width must be from 2 to {len(words.NAMES)}, got {width}.")
        return 1, 3 if width is None else width
    depth = 2 if depth is None else depth
    most = 8 if shape == "nonlinear" else 100
    if not 1 <= depth <= most:
        raise UsageError(f"{who}: depth of a {shape} proof is from 1 to {most}, got {depth}.")
    leaves = depth + 1
    if shape == "nonlinear":
        before, leaves = 1, 2
        for _ in range(depth - 1):
            before, leaves = leaves, leaves + 2 * before + 1
    if width not in (None, leaves):
        raise UsageError(
            f"{who}: a {shape} proof of depth {depth} has width {leaves}, got {width};"
            " leave width out."
        )
    return depth, leaves


def check_limits(who: str, shape: str, surface: str, limits: trees.Limits) -> None:
    """Raise `UsageError` when quantities or the surface can't be had."""
    for name, (low, high) in (("leaf", limits.leaf), ("inner", limits.inner)):
        if not 1 <= low <= high:
            raise UsageError(
                f"{who}: {name} must be two numbers from 1 up, the least first, got {low}, {high}."
            )
    if surface not in ("mixed", "plain", "attribute", "unit"):
        raise UsageError(
            f"{who}: surface must be mixed, plain, attribute or unit, got {surface!r}."
        )
    if shape == "part_whole" and surface == "unit":
        raise UsageError(f"{who}: part_whole problems have no units; use plain or attribute.")
    unknown = set(limits.comparisons) - {"more", "less", "times", "fraction"}
    if unknown or not limits.comparisons:
        raise UsageError(
            f"{who}: comparisons must be some of more, less, times, fraction,"
            f" got {', '.join(sorted(unknown)) or 'none'}."
        )
