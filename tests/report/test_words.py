"""Verdicts in sentences."""

import pytest

from equipoise.report.words import headline, plainly, turning_points


def claim(relation="beats", other="a", verdict="supported", **more):
    base = {"claim": "", "arm": "b", "other": other, "relation": relation, "verdict": verdict}
    return base | {"on": "t", "n": 50, "estimate": 0.2, "low": 0.1, "high": 0.3} | more


@pytest.mark.parametrize(
    ("given", "points"),
    [
        (claim(), [0.0]),
        (claim(margin=0.1), [0.1]),
        (claim("no_worse_than", margin=0.1), [-0.1]),
        (claim("matches", margin=0.1), [-0.1, 0.1]),
        (claim("above", 0.5), [0.5]),
        (claim("below", 2), [2.0]),
    ],
)
def test_turning_points_are_those_of_the_verdict_rules(given, points):
    from equipoise.trial.trial import Claim
    from equipoise.trial.verdict import bounds

    assert turning_points(given) == points
    made = Claim("b", given["relation"], given["other"], "t", given.get("margin", 0.0))
    assert bounds(made) == points


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (claim(), "b did 0.200 better than a. Anything from 0.100 to 0.300 fits the data: "
                  "all of it above 0."),
        (claim(verdict="refuted", estimate=-0.2, low=-0.3, high=-0.1),
         "b did 0.200 worse than a. Anything from −0.300 to −0.100 fits the data: "
         "all of it below 0."),
        (claim(verdict="inconclusive", low=-0.1),
         "b did 0.200 better than a. Anything from −0.100 to 0.300 fits the data, "
         "on both sides of 0."),
        (claim(verdict="inconclusive"),
         "b did 0.200 better than a. Anything from 0.100 to 0.300 fits the data: "
         "all of it above 0, but the verdict is withheld."),
        (claim("matches", margin=0.5),
         "b did 0.200 better than a. Anything from 0.100 to 0.300 fits the data: "
         "all of it between −0.5 and 0.5."),
        (claim("matches", margin=0.05, verdict="refuted"),
         "b did 0.200 better than a. Anything from 0.100 to 0.300 fits the data: "
         "all of it outside −0.05 and 0.05."),
        (claim("matches", margin=0.2, verdict="inconclusive"),
         "b did 0.200 better than a. Anything from 0.100 to 0.300 fits the data, "
         "both inside and outside of −0.2 and 0.2."),
        (claim("above", 0.05), "b came to 0.200. Anything from 0.100 to 0.300 fits the data: "
                               "all of it above 0.05."),
        (claim(estimate=0.0, verdict="inconclusive", low=None, high=None),
         "b did as well as a. Without an interval there is no verdict."),
        (claim(low=0.1, high=None), "b did 0.200 better than a. Anything above 0.100 fits the "
                                    "data: all of it above 0."),
        (claim(estimate=None), "There is no estimate, and so no verdict."),
    ],
)  # fmt: skip
def test_a_claim_is_said_plainly(given, said):
    assert plainly(given) == said


def test_the_unit_goes_with_the_number():
    assert plainly(claim(), "nats").startswith("b did 0.200 nats better than a.")


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([], "No claims were stated beforehand: this describes, it does not test."),
        (["refuted"], "The claim is refuted."),
        (["supported"] * 2, "Both claims are supported."),
        (["inconclusive"] * 3, "All 3 claims are inconclusive."),
        (["supported", "refuted", "supported", "inconclusive"],
         "2 of 4 claims supported, 1 refuted, 1 inconclusive."),
    ],
)  # fmt: skip
def test_all_verdicts_are_said_in_one_sentence(verdicts, said):
    assert headline({"claims": [{"verdict": verdict} for verdict in verdicts]}) == said
