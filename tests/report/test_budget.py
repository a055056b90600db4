"""The budget in every report: what was saved, who leads, at what risk."""

import io
import json

import pytest
from rich.console import Console

from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.report import _budget, html, markdown, terminal
from equipoise.report.terminal import plan_table, result_page
from equipoise.store import Store
from equipoise.trial.engine import run
from equipoise.trial.planning import plan
from equipoise.trial.trial import Arm, Budget, Claim, Trial


def trial(**more):
    arms = {f"p{p}": Arm(Coin(p)) for p in (0.2, 0.5, 0.9)}
    claims = [Claim("p0.9", "beats", "p0.2", "toss")]
    more = {"budget": Budget(units=200), "allocate": "bandit", "claims": claims} | more
    return Trial("thrift", arms, {"toss": Tosses(200)}, **more)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "s.sqlite") as opened:
        yield opened


def printed(row):
    out = io.StringIO()
    result_page(row, Console(file=out, width=80, highlight=False, markup=False))
    return out.getvalue()


def test_every_report_says_what_was_saved_and_at_what_risk(store):
    row = run(trial(), store=store).as_json()
    pages = {
        "terminal": " ".join(printed(row).split()),
        "markdown": markdown.render(row),
        "html": " ".join(html.render(row, store).split()),
    }
    for page in pages.values():
        assert "200 of 600 outcomes (33.3%) were chosen" in page
        assert "Saved: 400 outcomes" in page
        assert "p0.9 leads with" in page
        assert "confidence no arm is better than it" in page
        assert "To confirm, run p0.9 against p0.2 without allocate" in page
        assert "Ended by the budget" in page or page is pages["markdown"]
    assert 'href="#budget"' in pages["html"]
    assert "confidence sequences for all arms at once" in pages["html"]
    assert "not corrected for the number of arms" not in pages["html"]


def test_a_trial_that_does_not_allocate_has_no_budget_section(store):
    row = run(trial(allocate=None, budget=Budget()), store=store).as_json()
    assert _budget.sentences(row) == []
    assert _budget.page(row) is None
    assert "h-budget" not in html.render(row, store)
    assert "Saved" not in printed(row)


def test_a_result_as_json_keeps_the_allocation(store):
    row = json.loads(json.dumps(run(trial(), store=store).as_json()))
    assert {"policy", "units", "of", "budget", "leader", "risk", "arms", "saved"} <= set(
        row["allocation"]
    )
    assert "p0.9 leads" in printed(row)


def spent(**more):
    arm = {"units": 5, "value": 0.5, "low": 0.2, "high": 0.8, "open": True}
    arms = [{**arm, "arm": f"a{i}", "value": 0.5 - i / 100} for i in range(30)]
    base = {
        "policy": "bandit", "units": 150, "of": 3000, "budget": 150, "decisions": 30, "batch": 5,
        "score": "correct", "higher_is_better": True, "level": 0.9, "leader": "a0", "risk": 0.6,
        "arms": arms, "saved": {"units": 2850, "seconds": 100, "tokens": 7e5, "dollars": 1.234},
    }  # fmt: skip
    return {"trial": "t", "allocation": base | more, "control": "a3"}


def test_saved_tokens_and_dollars_are_told():
    said = _budget.sentences(spent())
    assert "Saved: 2,850 outcomes, about 1 min 40 s, 700,000 tokens and 1.23 dollars" in said[1]
    assert "a1, a2, a3, a4, a5, a6 and 23 more" in said[2]
    assert "with 90 % confidence no arm is better than it by more than 0.600" in said[3]


def test_an_allocation_without_a_score_has_no_leader():
    assert _budget.sentences(spent(leader=None))[-1].startswith("Not one cell has a score")


def test_many_arms_are_folded_on_the_page_and_cut_in_the_terminal():
    page = _budget.page(spent())
    assert (len(page["lines"]), len(page["folded"])) == (20, 10)
    lines = _budget.table(spent()["allocation"])
    assert lines[0][0] == "a0"
    assert lines[0][-1] == "leads"


def test_the_best_comes_first_whichever_way_the_score_runs():
    low = spent(higher_is_better=False)["allocation"]
    assert _budget.ranked(low)[0]["arm"] == "a29"
    low["arms"][29]["value"] = None
    assert _budget.ranked(low)[0]["arm"] == "a28"
    assert _budget.ranked(low)[-1]["arm"] == "a29"


def test_names_of_arms_are_not_trusted(store):
    arms = {"<script>alert(1)</script>": Arm(Coin(0.9)), "b\x1b[31m": Arm(Coin(0.1))}
    hostile = Trial(
        "t", arms, {"toss": Tosses(50)}, allocate="bandit", budget=Budget(units=40)
    )  # fmt: skip
    row = run(hostile, store=store).as_json()
    page = html.render(row, store)
    assert "<script>" not in page
    assert "\x1b" not in page
    out = io.StringIO()
    terminal._allocation(row, Console(file=out, width=80, highlight=False, markup=False))
    assert "\x1b" not in out.getvalue()
    assert "&lt;script&gt;" in markdown.render(row)


def test_a_plan_says_how_much_would_run_at_most(store, tmp_path):
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False, markup=False)
    plan_table(plan(trial(), store=tmp_path / "none.sqlite"), console)
    assert "At most 200 of 600 units, as `allocate: bandit` chooses" in out.getvalue()
