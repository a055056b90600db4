"""The generator against oracles that are not itself: arithmetic, linear algebra, rejection."""

import re
from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from equipoise.core import Rng, UsageError
from equipoise.methods.reasoning import generate, infer
from equipoise.methods.reasoning._mathgap import numbers, words
from equipoise.methods.reasoning._mathgap.forms import (
    Comp,
    CompEq,
    Cont,
    Node,
    PartWhole,
    Thing,
    Transfer,
    agents_of,
)
from equipoise.methods.reasoning._mathgap.problems import Problem
from equipoise.methods.reasoning._mathgap.reading import answer

APPLES = Thing("apples")
SHAPES = ["linear_comparison", "linear_transfer", "linear_mixed", "part_whole", "nonlinear"]

specifications = st.builds(
    lambda shape, depth, width, surface, seed: (
        shape,
        None if shape == "part_whole" else min(depth, 4) if shape == "nonlinear" else depth,
        width if shape == "part_whole" else None,
        "mixed" if shape == "part_whole" and surface == "unit" else surface,
        seed,
    ),
    st.sampled_from(SHAPES),
    st.integers(1, 8),
    st.integers(2, 9),
    st.sampled_from(["mixed", "plain", "attribute", "unit"]),
    st.integers(0, 10_000),
)


def made(specification, **more):
    shape, depth, width, surface, seed = specification
    return generate(shape, depth, width, surface=surface, rng=Rng(seed), **more)


def solved(problem):
    """Solve what the leaves state as simultaneous linear equations."""
    places, rows, right, now = {}, [], [], {}

    def at(agent):
        return places.setdefault((agent, now.get(agent, 0)), len(places))

    def equation(terms, value):
        rows.append(terms)
        right.append(value)

    for leaf in problem.leaves:
        match leaf.form:
            case Cont(a, q):
                equation({at(a): 1}, q)
            case Comp(a, b, q, "more"):
                equation({at(a): 1, at(b): -1}, q)
            case Comp(a, b, q, "less"):
                equation({at(b): 1, at(a): -1}, q)
            case Comp(a, b, q, "times"):
                equation({at(a): 1, at(b): -q}, 0)
            case Comp(a, b, q, "fraction"):
                equation({at(a): q, at(b): -1}, 0)
            case Transfer(to, by, q):
                for agent, sign in ((to, 1), (by, -1)):
                    before = at(agent)
                    now[agent] = now.get(agent, 0) + 1
                    equation({at(agent): 1, before: -1}, sign * q)
            case CompEq(a, b, c, d):
                # The difference is stated without a sign; the proof says which of the two has more.
                more = next(
                    node.form.kind == "more"
                    for node in problem.nodes
                    if isinstance(node.form, Comp) and node.premises and node.form.agent == c
                )
                sign = 1 if more else -1
                equation({at(a): 1, at(b): -1, at(c): -sign, at(d): sign}, 0)
    matrix = np.zeros((len(rows), len(places)))
    for row, terms in zip(matrix, rows, strict=True):
        for place, factor in terms.items():
            row[place] += factor
    found, *_ = np.linalg.lstsq(matrix, np.array(right, float), rcond=None)
    form = problem.root.form
    if isinstance(form, PartWhole):
        return found.sum()
    return found[at(form.agent)]


@settings(max_examples=200, deadline=None)
@given(specifications)
def test_answer_solves_the_linear_equations_of_the_leaves(specification):
    problem = made(specification)
    assert solved(problem) == pytest.approx(problem.answer, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(specifications)
def test_products_and_quotients_solve_their_equations_too(specification):
    problem = made(specification, comparisons=("more", "less", "times", "fraction"))
    assert solved(problem) == pytest.approx(problem.answer, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(specifications)
def test_every_equation_in_the_trace_holds_and_the_last_one_answers(specification):
    problem = made(specification, comparisons=("more", "less", "times", "fraction"))
    equations = re.findall(r"(\d+(?: [-+*/] \d+)+) = (\d+)", problem.trace)
    steps = [node for node in problem.nodes if node.premises]
    assert len(equations) == len(steps) == problem.trace.count(" = ")
    for (left, right), node in zip(equations, steps, strict=True):
        assert eval(left) == int(right) == node.form.quantity
        assert 2 <= int(right) <= 10_000
    assert int(equations[-1][1]) == problem.answer
    assert re.findall(r"\d+", problem.trace)[-1] == str(problem.answer)


@settings(max_examples=200, deadline=None)
@given(specifications)
def test_every_step_is_one_of_the_six_rules(specification):
    problem = made(specification)
    for node in problem.nodes:
        if not node.premises:
            assert 2 <= getattr(node.form, "quantity", 2) <= 20
            continue
        whole = isinstance(node.form, PartWhole)
        found = infer([each.form for each in node.premises], "all" if whole else None)
        if whole:
            assert (found.agents, found.quantity) == (node.form.agents, node.form.quantity)
        elif isinstance(found, Comp) and found.quantity == 0:
            pytest.fail("a difference of nothing")
        else:
            assert found == node.form


@settings(max_examples=200, deadline=None)
@given(specifications)
def test_solver_that_reads_the_text_finds_the_answer(specification):
    problem = made(specification, comparisons=("more", "less", "times", "fraction"))
    assert answer(problem.text) == problem.answer
    assert not set(re.findall(r"[A-Za-z]+|[.,?=+*/-]", problem.text + problem.trace)) - set(
        re.findall(r"[A-Za-z]+|[.,?=+*/-]", " ".join(words.vocabulary()))
    )


@settings(max_examples=200, deadline=None)
@given(specifications, st.data())
def test_order_names_and_things_leave_the_answer(specification, data):
    problem = made(specification)
    agents = sorted({a for leaf in problem.leaves for a in agents_of(leaf.form)})
    others = words.names(len(agents), Random(1))
    again = problem.renamed(dict(zip(agents, others, strict=True)), Thing("pearls", "tiny"))
    assert "tiny pearls" in again.text
    assert problem.root.form.thing.entity not in again.text
    if problem.shape in ("linear_transfer", "linear_mixed"):
        shuffled = again
    else:
        order = data.draw(st.permutations(range(problem.width)))
        shuffled = again.reordered(order)
        assert list(shuffled.forms) == [again.forms[at] for at in order]
    assert answer(shuffled.text) == shuffled.answer == problem.answer
    assert shuffled.body.count(".") == problem.width


@pytest.mark.parametrize("depth", [1, 2, 5, 10, 40])
@pytest.mark.parametrize("shape", ["linear_comparison", "linear_transfer", "linear_mixed"])
def test_linear_width_is_depth_and_one(shape, depth):
    problem = generate(shape, depth, rng=Rng(depth))
    assert (problem.depth, problem.width) == (depth, depth + 1)
    for node in problem.nodes:
        assert sum(bool(each.premises) for each in node.premises) <= 1


def test_nonlinear_widths_are_those_of_the_official_generator():
    # 5 at depth 2 and 10 at depth 3, as its CSV files say; then the same recurrence.
    widths = {d: generate("nonlinear", d, rng=Rng(d)).width for d in range(1, 9)}
    assert widths == {1: 2, 2: 5, 3: 10, 4: 21, 5: 42, 6: 85, 7: 170, 8: 341}
    problem = generate("nonlinear", 3, rng=Rng(0))
    assert any(sum(bool(e.premises) for e in node.premises) >= 2 for node in problem.nodes)


@pytest.mark.parametrize("width", [2, 3, 11, 100])
def test_part_whole_has_depth_one_and_as_many_leaves_as_parts(width):
    problem = generate("part_whole", width=width, rng=Rng(0))
    assert (problem.depth, problem.width) == (1, width)


def test_comparison_by_hand():
    five, three = Cont("Ann", 5, APPLES), Comp("Bo", "Ann", 3, "more", APPLES)
    assert infer([five, three]) == Cont("Bo", 8, APPLES)
    root = Node(Cont("Bo", 8, APPLES), (Node(five), Node(three)), "5 + 3 = 8")
    problem = Problem("linear_comparison", root, (0, 1))
    assert problem.text == (
        "Ann has 5 apples. Bo has 3 more apples than Ann. How many apples does Bo have?"
    )
    assert problem.trace.endswith("So Bo has 5 + 3 = 8 apples.")
    assert problem.answer == answer(problem.text) == 8


def test_nonlinear_problem_of_the_paper_by_hand():
    lucy = Node(
        Cont("Lucy", 27, APPLES),
        (
            Node(Cont("Isabella", 17, APPLES)),
            Node(Comp("Lucy", "Isabella", 10, "more", APPLES)),
        ),
        "17 + 10 = 27",
    )
    gap = Node(
        Comp("John", "Emily", 8, "less", APPLES),
        (Node(Cont("John", 11, APPLES)), Node(Cont("Emily", 19, APPLES))),
        "19 - 11 = 8",
    )
    equal = Node(CompEq("Lucy", "Sam", "John", "Emily", APPLES))
    root = Node(Cont("Sam", 19, APPLES), (lucy, gap, equal), "27 - 8 = 19")
    problem = Problem("nonlinear", root, tuple(range(5)))
    assert (problem.depth, problem.width, problem.answer) == (2, 5, 19)
    assert infer([lucy.form, gap.form, equal.form]) == root.form
    assert infer([each.form for each in gap.premises]) == gap.form
    assert re.findall(r"\d+ [-+] \d+ = \d+", problem.trace) == [
        "17 + 10 = 27",
        "19 - 11 = 8",
        "27 - 8 = 19",
    ]
    assert answer(problem.text) == answer(problem.moved(4).text) == 19


@pytest.mark.parametrize(
    ("premises", "result"),
    [
        ([Cont("A", 12, APPLES), Comp("B", "A", 4, "less", APPLES)], Cont("B", 8, APPLES)),
        ([Cont("A", 12, APPLES), Comp("B", "A", 4, "times", APPLES)], Cont("B", 48, APPLES)),
        ([Cont("A", 12, APPLES), Comp("B", "A", 4, "fraction", APPLES)], Cont("B", 3, APPLES)),
        ([Cont("A", 12, APPLES), Comp("A", "B", 4, "more", APPLES)], Cont("B", 8, APPLES)),
        ([Cont("A", 12, APPLES), Comp("A", "B", 4, "less", APPLES)], Cont("B", 16, APPLES)),
        ([Cont("A", 12, APPLES), Comp("A", "B", 4, "times", APPLES)], Cont("B", 3, APPLES)),
        ([Cont("A", 12, APPLES), Comp("A", "B", 4, "fraction", APPLES)], Cont("B", 48, APPLES)),
        ([Cont("A", 12, APPLES), Transfer("A", "B", 4, APPLES)], Cont("A", 16, APPLES)),
        ([Cont("A", 12, APPLES), Transfer("B", "A", 4, APPLES)], Cont("A", 8, APPLES)),
        ([Cont("A", 12, APPLES), Cont("B", 4, APPLES)], Comp("A", "B", 8, "more", APPLES)),
        (
            [
                Cont("A", 12, APPLES),
                Comp("C", "D", 4, "more", APPLES),
                CompEq("B", "A", "C", "D", APPLES),
            ],
            Cont("B", 16, APPLES),
        ),
    ],
)
def test_rules_by_hand(premises, result):
    assert infer(premises) == result


def test_rules_refuse_what_does_not_follow():
    with pytest.raises(ValueError, match="no rule fits"):
        infer([Cont("A", 12, APPLES), Comp("B", "C", 4, "more", APPLES)])
    with pytest.raises(ValueError, match="not a whole number"):
        infer([Cont("A", 13, APPLES), Comp("B", "A", 4, "fraction", APPLES)])


RECIPES = {
    "sum": ("+", None, None),
    "difference": ("-", None, None),
    "product": ("*", None, None),
    "quotient": ("/", None, None),
    "chain": ("-", ("+", None, None), None),
    "joined": ("-", ("+", None, None), ("-", None, None)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_numbers_are_uniform_over_all_that_fit(name):
    """Against a list of every assignment within limits, by a chi-squared test."""
    recipe, leaf, inner = RECIPES[name], (2, 6), (2, 9)

    def leaves(recipe):
        return 1 if recipe is None else leaves(recipe[1]) + leaves(recipe[2])

    def value(recipe, given):
        if recipe is None:
            return given.pop(0)
        left, right = value(recipe[1], given), value(recipe[2], given)
        if left is None or right is None or (recipe[0] == "/" and left % right):
            return None
        found = {
            "+": left + right,
            "-": left - right,
            "*": left * right,
            "/": left // max(right, 1),
        }[recipe[0]]
        return found if inner[0] <= found <= inner[1] else None

    def flat(drawn):
        return [drawn] if isinstance(drawn, int) else flat(drawn[1]) + flat(drawn[2])

    everything = product(range(leaf[0], leaf[1] + 1), repeat=leaves(recipe))
    possible = [each for each in everything if value(recipe, list(each)) is not None]
    random, draws = Random(5), 200 * len(possible)
    seen = Counter(tuple(flat(numbers.draw(recipe, leaf, inner, random))) for _ in range(draws))
    assert set(seen) == set(possible)
    assert stats.chisquare([seen[each] for each in possible]).pvalue > 1e-4


def test_numbers_say_when_nothing_fits():
    assert numbers.draw(("-", None, None), (2, 3), (2, 9), Random(0)) is None


def test_impossible_limits_are_refused_in_one_sentence():
    with pytest.raises(UsageError, match="no numbers from 2 to 3 fit") as error:
        generate(depth=1, leaf=(2, 3), inner=(50, 60), rng=Rng(0))
    assert str(error.value).count(". ") == 0


def test_directions_are_even_and_surfaces_too():
    problems = [generate(depth=1, rng=Rng(1).child(n)) for n in range(2_000)]
    comparisons = [problem.forms[1] for problem in problems]
    asked = [problem.root.form.agent for problem in problems]
    subject = sum(form.agent == who for form, who in zip(comparisons, asked, strict=True))
    assert abs(subject - 1_000) < 4 * np.sqrt(500)
    assert abs(sum(form.kind == "more" for form in comparisons) - 1_000) < 4 * np.sqrt(500)
    things = [problem.root.form.thing for problem in problems]
    for count in (
        sum(thing.unit is not None for thing in things),
        sum(thing.attribute is not None for thing in things),
    ):
        assert abs(count - 2_000 / 3) < 4 * np.sqrt(2_000 * 2 / 9)
    assert not any(thing.unit and thing.attribute for thing in things)


def test_transfers_stay_in_time():
    problem = generate("linear_transfer", 3, rng=Rng(0))
    with pytest.raises(UsageError, match="keep transfers in time"):
        problem.moved(2)
    assert problem.moved(0) == problem


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.data())
def test_orders_allowed_with_transfers_keep_the_answer(seed, data):
    problem = generate("linear_mixed", 4, rng=Rng(seed))
    order = data.draw(st.permutations(range(5)))
    try:
        moved = problem.reordered(order)
    except UsageError:
        return
    assert answer(moved.text) == problem.answer


def test_movement_puts_one_sentence_first_and_keeps_the_rest():
    problem = generate(depth=4, rng=Rng(2))
    assert [problem.moved(i).order for i in (0, 2, 4)] == [
        (0, 1, 2, 3, 4),
        (2, 0, 1, 3, 4),
        (4, 0, 1, 2, 3),
    ]
    assert problem.moved(2).trace == problem.trace
    with pytest.raises(UsageError, match="movement must be from 0 to 4 here, got 5"):
        problem.moved(5)


def test_halves_never_meet_and_do_not_depend_on_order_or_wording():
    train = [generate(depth=1, rng=Rng(n), split="train") for n in range(300)]
    test = [generate(depth=1, rng=Rng(n), split="test") for n in range(300)]
    assert not {p.text for p in train} & {p.text for p in test}
    assert {p.split for p in train} == {"train"}
    assert all(p.moved(1).split == p.split for p in test)
    free = [generate(depth=1, rng=Rng(n)).split for n in range(1_000)]
    assert abs(free.count("train") - 500) < 4 * np.sqrt(250)


def test_problems_can_share_a_tree():
    def directions(problem):
        return [
            (type(n.form), getattr(n.form, "kind", ""), n.equation.split(" ")[1:2])
            for n in problem.nodes
        ]

    same = [generate(depth=6, rng=Rng(n), tree=Rng(77)) for n in range(20)]
    assert len({str(directions(each)) for each in same}) == 1
    assert len({each.text for each in same}) == 20
    other = [generate(depth=6, rng=Rng(n)) for n in range(20)]
    assert len({str(directions(each)) for each in other}) > 10


def test_deep_trees_do_not_abort():
    for depth in (20, 100):
        problem = generate(depth=depth, rng=Rng(depth))
        assert solved(problem) == pytest.approx(problem.answer)
    problem = generate("nonlinear", 8, rng=Rng(8))
    assert answer(problem.text) == problem.answer
    assert len({a for leaf in problem.leaves for a in agents_of(leaf.form)}) > len(words.NAMES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shape": "linear"}, 'no shape "linear". Nearest: '),
        ({"depth": 0}, "depth of a linear_comparison proof is from 1 to 100, got 0."),
        ({"shape": "nonlinear", "depth": 9}, "depth of a nonlinear proof is from 1 to 8, got 9."),
        ({"depth": 3, "width": 7}, "has width 4, got 7; leave width out."),
        ({"shape": "part_whole", "depth": 2}, "part_whole proofs have depth 1, got 2; set width."),
        ({"shape": "part_whole", "width": 1}, "width must be from 2 to"),
        ({"shape": "part_whole", "surface": "unit"}, "part_whole problems have no units"),
        ({"surface": "green"}, "surface must be mixed, plain, attribute or unit, got 'green'."),
        ({"leaf": (9, 2)}, "leaf must be two numbers from 1 up, the least first, got 9, 2."),
        ({"comparisons": ("most",)}, "comparisons must be some of more, less, times, fraction"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence):
    with pytest.raises(UsageError) as error:
        generate(rng=Rng(0), **arguments)
    assert sentence in str(error.value)


def test_same_stream_same_problem():
    assert generate(depth=4, rng=Rng(3)).text == generate(depth=4, rng=Rng(3)).text
    assert generate(depth=4, rng=Rng(3)).text != generate(depth=4, rng=Rng(4)).text
