"""Trials to report on: coins, and a quiz whose every text is hostile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, NamedTuple

import pytest

from equipoise.core import Outcome, Rng, ScoreSpec, Subject, Task, Unit, UnitError, between
from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.store import Store
from equipoise.trial.engine import run
from equipoise.trial.trial import Arm, Claim, Trial

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "<svg/onload=alert(1)>",
    "</code></pre></details><iframe src=https://evil.example></iframe>",
    "{{ 7 * 7 }} {% raw %} {# x #}",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; &#60;script&#62;",
    "]]> <!-- --> <![CDATA[ x ]]>",
    "right \u202e to left \u2066 isolate",
    "bell \x07 nul \x00 escape \x1b[31m red, c1 \x9b",
    "half \ud800 of a character \udfff",
    "zero\u200bwidth \ufeff mark \ufffe noncharacter",
    "pipe | tick ` star * under_score [link](http://evil.example) @someone #1 www.evil.example",
    "# heading\n\n- list\n\n| a | b |\n| - | - |",
    "صباح الخير 日本語 👩‍🔬",
    "x" * 5_000,
)  # fmt: skip


@dataclass(frozen=True)
class Parrot(Subject):
    """Says hostile things, ``offset`` of them further on."""

    offset: int = 0

    def load(self, rng: Rng) -> Parrot:
        return self


@dataclass(frozen=True)
class Quiz(Task):
    """One hostile question a unit; some units fail, with hostile messages."""

    fails: int = between(0, 1000, default=0)

    scores = (
        ScoreSpec("cor<b>rect", low=0, high=1),
        ScoreSpec("loss", higher_is_better=False, unit="na<i>ts"),
    )

    def units(self, rng: Rng) -> Iterator[Unit]:
        for i in range(2 * len(HOSTILE)):
            text = HOSTILE[i % len(HOSTILE)]
            yield Unit(
                f"{i} {text[:200]}", {"question": text}, target=text, cluster=text, stratum=text
            )

    def perform(self, subject: Parrot, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        return [self._answer(subject, unit) for unit in units]

    def _answer(self, subject: Parrot, unit: Unit) -> Outcome:
        i = int(unit.id.split()[0])
        text = HOSTILE[(i + subject.offset) % len(HOSTILE)]
        if i < self.fails:
            raise UnitError(text, kind=text[:100])
        right = float((i + subject.offset) % 3 == 0)
        return Outcome(unit.id, {"cor<b>rect": right, "loss": i / 7}, output=text)


class Case(NamedTuple):
    """A result's JSON, the store it is in, and a parser for pages."""

    row: dict[str, Any]
    store: Store

    @staticmethod
    def parse(text: str) -> Page:
        return Page(text)


@pytest.fixture
def case(tmp_path):
    """Return a function that runs a trial and gives its result and its store."""
    stores = []

    def carry_out(trial: Trial) -> Case:
        store = Store.open(tmp_path / f"{len(stores)}.sqlite")
        stores.append(store)
        return Case(run(trial, store=store, command="equipoise run trial.yaml").as_json(), store)

    yield carry_out
    for store in stores:
        store.close()


def _coins(*, claims: Any = None, arms: Any = None, tasks: Any = None, **more: Any) -> Trial:
    arms = arms or {"fair": 0.5, "loaded": 0.8, "worn": 0.45}
    if claims is None:
        claims = [
            Claim("loaded", "beats", "fair", "toss"),
            Claim("worn", "beats", "loaded", "toss"),
            Claim("worn", "no_worse_than", "fair", "toss", 0.05),
            Claim("worn", "matches", "fair", "toss", 0.4),
            Claim("loaded", "above", 0.7, "toss"),
            Claim("loaded", "below", 0.9, "toss", score="loss"),
        ]
    return Trial(
        "coins",
        {label: Arm(Coin(p)) for label, p in arms.items()},
        tasks or {"toss": Tosses(200, fails=0.02)},
        claims,
        question="Is it fair?",
        **more,
    )


def _hostile(**more: Any) -> Trial:
    a, b, task = "arm <b>|a</b>\u202e", "b\" onload='x' @me", "t&lt;ask</style>\x07"
    return Trial(
        "<script>alert('trial')</script>",
        {a: Arm(Parrot()), b: Arm(Parrot(1))},
        {task: Quiz(fails=9)},
        [Claim(b, "beats", a, task), Claim(a, "above", 0.1, task, score="loss")],
        question="Is </title><script>alert(1)</script> safe? \ud800",
        differs="<img src=x onerror=alert(1)> | @you",
        text="trial: </pre><script>alert(1)</script>\x00\n",
        **more,
    )


VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Parses a page strictly: tags must balance; text and attributes are kept."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(text)
        self.close()
        assert not self.stack, f"not closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] != "style":
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())

    def ids(self) -> list[str]:
        return [found for _, attrs in self.tags if (found := attrs.get("id"))]

    def count(self, tag: str, cls: str = "") -> int:
        return sum(
            name == tag and set(cls.split()) <= set((attrs.get("class") or "").split())
            for name, attrs in self.tags
        )


@pytest.fixture(params=HOSTILE, ids=range(len(HOSTILE)))
def hostile_text(request):
    """Each hostile text in turn."""
    return request.param


@pytest.fixture
def coins():
    """Return a function that makes a trial of coins."""
    return _coins


@pytest.fixture
def hostile():
    """Return a function that makes a trial whose every text is hostile."""
    return _hostile
