"""Plans from pilots: what they say, and that the trial they plan has the power."""

import math

import numpy as np
import pytest

from equipoise.kit.statistics import PairedDesign
from equipoise.store.sheets import read_sheet, score_specs
from equipoise.trial.power import plan_claims
from equipoise.trial.sides import file_side
from equipoise.trial.trial import Claim
from equipoise.trial.verdict import decide


def pilot(tmp_path, rows, header="arm,unit,x"):
    path = tmp_path / "pilot.csv"
    path.write_text(header + "\n" + "\n".join(",".join(map(str, row)) for row in rows))
    sheet = read_sheet(path)
    return file_side(sheet, score_specs([sheet.file], "imported", (), ()))


def beats(**more):
    return Claim("b", "beats", "a", "imported", **more)


def binary(tmp_path, n=400, seed=0, better=0.08, worse=0.04):
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=[better, worse, 1 - better - worse])
    a = np.where(kind == 2, rng.integers(0, 2, n), kind == 1).astype(int)
    b = np.where(kind == 2, a, kind == 0).astype(int)
    rows = [(arm, i, v[i]) for arm, v in (("a", a), ("b", b)) for i in range(n)]
    return pilot(tmp_path, rows), float((a != b).mean()), float((b - a).mean())


def test_binary_pairs_are_planned_by_what_differs(tmp_path):
    side, psi, effect = binary(tmp_path)
    (row,) = plan_claims(side, [beats()], assumed=0.05)
    wanted = PairedDesign(discordant=psi)
    assert row["pilot"]["discordant"] == pytest.approx(psi)
    assert row["pilot"]["effect"] == pytest.approx(effect)
    assert [need["units"] for need in row["needs"]] == [
        wanted.units(0.05, power=power) for power in (0.8, 0.9)
    ]
    first = row["needs"][0]
    assert first["units_low"] < first["units"] < first["units_high"]
    assert row["now"]["power"] == pytest.approx(wanted.power(400, 0.05))
    assert "clusters" not in first
    (same,) = plan_claims(side, [beats()])
    assert (same["assumed"], same["assumed_from"]) == (pytest.approx(effect), "pilot")
    assert "power" not in same["now"]  # the p-value again, in other words
    assert "smallest effect that matters" in " ".join(same["notes"])


def test_several_claims_share_the_error(tmp_path):
    side, psi, _ = binary(tmp_path)
    claims = [beats(), Claim("b", "matches", "a", "imported", 0.05),
              Claim("b", "no_worse_than", "a", "imported", 0.03)]  # fmt: skip
    one, two, three = plan_claims(side, claims, assumed=None)
    assert one["level"] == pytest.approx(1 - 0.05 / 3)
    assert two["level"] == pytest.approx(1 - 0.1 / 3)
    assert (two["assumed"], three["assumed_from"]) == (0.0, "no difference")
    design = PairedDesign(discordant=psi)
    assert two["needs"][0]["units"] == design.units(0, within=0.05, level=1 - 0.1 / 3)
    assert three["needs"][0]["units"] == design.units(0, above=-0.03, level=1 - 0.05 / 3)
    (alone,) = plan_claims(side, claims[2:], family=3)
    assert alone["needs"] == three["needs"]


def test_a_plan_with_clusters_repeats_and_costs(tmp_path):
    rng = np.random.default_rng(1)
    clusters, size, repeats = 40, 5, 2
    level, own = rng.normal(0, 1, clusters), rng.normal(0, 0.5, clusters * size)
    rows = []
    for arm, shift in (("a", 0.0), ("b", 0.3)):
        for i in range(clusters * size):
            d = level[i // size] + own[i] + shift if arm == "b" else 0.0
            for r in range(repeats):
                rows.append((arm, i, d + rng.normal(0, 0.5), r, i // size, 2.0, 10, 5, 0.01))
    header = "arm,unit,x,repeat,cluster,seconds,input_tokens,output_tokens,dollars"
    side = pilot(tmp_path, rows, header)
    (row,) = plan_claims(side, [beats()], assumed=0.3, planned={"imported": 100})
    first = row["needs"][0]
    # Variance of a cluster's mean difference: 1 + 0.25 / 5 + (0.5 / 2) / 5.
    wanted = PairedDesign(sd=math.sqrt(5 * 1.1), clusters_per_unit=1 / 5).units(0.3)
    assert first["units"] == pytest.approx(wanted, rel=0.45)
    assert first["units_low"] < wanted < first["units_high"]
    assert first["clusters"] == math.ceil(first["units"] / 5)
    assert row["pilot"]["design_effect"] == pytest.approx(5.5 / 1.5, rel=0.25)
    assert first["tokens"] == first["units"] * 2 * 2 * 15
    assert first["seconds"] == pytest.approx(first["units"] * 2 * 2 * 2.0)
    assert first["dollars"] == pytest.approx(first["units"] * 2 * 2 * 0.01)
    assert row["repeats"]["share_within"] == pytest.approx(0.5 / 1.75, abs=0.1)
    needed = [each["units"] for each in row["repeats"]["options"]]
    assert needed == sorted(needed, reverse=True)
    answers = [each["outcomes"] for each in row["repeats"]["options"]]
    assert answers == sorted(answers)  # more units are the better buy
    assert row["planned"]["power"] < 0.8
    assert "too few" in " ".join(row["notes"])
    assert row["curve"][-1][1] > 0.9
    for times, wanted in zip((1, 2, 4), needed, strict=False):  # for a trial that asks so often
        (other,) = plan_claims(side, [beats()], assumed=0.3, repeats=times)
        assert other["needs"][0]["units"] == wanted
        assert other["needs"][0]["tokens"] == wanted * 2 * times * 15
        assert other["now"] == row["now"]


def test_a_planned_trial_has_the_power_it_was_planned_for(tmp_path):
    """The pilot's design, run many times at the size it gave."""
    from equipoise.kit.statistics import paired_difference

    side, psi, _ = binary(tmp_path, n=3_000, better=0.13, worse=0.07)
    (row,) = plan_claims(side, [beats()], assumed=0.06)
    n = row["needs"][0]["units"]
    rng, runs, hits = np.random.default_rng(2), 1_000, 0
    for _ in range(runs):
        kind = rng.choice(3, n, p=[(psi + 0.06) / 2, (psi - 0.06) / 2, 1 - psi])
        found = paired_difference((kind == 0).astype(float), (kind == 1).astype(float))
        hits += decide("beats", found.low, found.high, 0.0) == "supported"
    assert hits / runs == pytest.approx(0.8, abs=0.045)


def test_one_arm_against_a_number(tmp_path):
    side, _, _ = binary(tmp_path)
    above, below = plan_claims(
        side,
        [Claim("a", "above", 0.4, "imported"), Claim("a", "below", 0.6, "imported")],
        assumed=0.5,
    )
    assert above["needs"][0]["units"] == pytest.approx(below["needs"][0]["units"], abs=1)
    exact = PairedDesign(sd=0.5).units(0.5, above=0.4, level=0.975)
    assert above["needs"][0]["units"] == pytest.approx(exact, rel=0.05)


def test_small_pilots_wrong_sides_and_missing_arms_are_said(tmp_path):
    side, _, _ = binary(tmp_path, n=30)
    (row,) = plan_claims(side, [beats()], assumed=-0.05)
    said = " ".join(row["notes"])
    assert row["needs"][0]["units"] is None
    assert "wrong side" in said
    assert "A pilot of 30 units says little" in said
    (row,) = plan_claims(side, [Claim("c", "beats", "a", "imported")])
    assert row["notes"] == ["the pilot has no outcomes of c on imported"]
    (row,) = plan_claims(pilot(tmp_path, [("a", 1, 0), ("b", 1, 1)]), [beats()])
    assert "fewer than two units" in row["notes"][0]


def test_arms_that_never_differ_still_leave_a_plan(tmp_path):
    rows = [(arm, i, i % 2) for arm in "ab" for i in range(50)]
    (row,) = plan_claims(pilot(tmp_path, rows), [beats()], assumed=0.02)
    assert row["pilot"]["discordant"] == 0
    assert row["needs"][0]["units"] > 50
