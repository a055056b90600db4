"""JUnit XML: valid whatever the text, and a test case a claim."""

from xml.etree import ElementTree as ET

from equipoise.kit.worlds.coins import Tosses
from equipoise.report import junit


def suite_of(row, tmp_path):
    path = tmp_path / "reports" / "junit.xml"
    junit.write(row, path)
    root = ET.fromstring(path.read_bytes())
    assert root.tag == "testsuites"
    (suite,) = root
    assert (
        root.attrib.items() >= {k: suite.get(k) for k in ("tests", "failures", "skipped")}.items()
    )
    return suite


def test_a_verdict_is_a_pass_a_failure_or_a_skip(case, tmp_path, coins):
    found = case(coins())
    suite = suite_of(found.row, tmp_path)
    kinds = {"supported": None, "refuted": "failure", "inconclusive": "skipped"}
    cases = suite.findall("testcase")
    assert [each.get("name") for each in cases] == [c["claim"] for c in found.row["claims"]]
    verdicts = [claim["verdict"] for claim in found.row["claims"]]
    assert set(verdicts) == set(kinds)
    for each, verdict in zip(cases, verdicts, strict=True):
        tags = [child.tag for child in each if child.tag != "system-out"]
        assert tags == ([kinds[verdict]] if kinds[verdict] else [])
        assert each.get("classname") == "coins.toss"
    assert int(suite.get("failures")) == verdicts.count("refuted")
    assert int(suite.get("skipped")) == verdicts.count("inconclusive")
    assert suite.get("errors") == "0"
    refuted = suite.find("testcase/failure")
    assert refuted.get("message").startswith("effect")
    said = suite.find("system-out").text
    errors = [cost["errors"] for cost in found.row["costs"] if cost["errors"]]
    assert f"{found.row['errors']} errors" in said
    assert all(f"{n} of 200 failed" in said for n in errors)
    properties = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert properties["verdict"] == "refuted"
    assert properties["level"] == "0.95"


def test_hostile_text_comes_through_as_it_is_shown(case, tmp_path, hostile):
    suite = suite_of(case(hostile()).row, tmp_path)
    assert suite.get("name") == "<script>alert('trial')</script>"
    assert "arm <b>|a</b>⟨U+202E⟩" in suite.find("testcase").get("name")


def test_any_text_makes_valid_xml(case, tmp_path, hostile_text, coins):
    text = hostile_text
    row = case(coins(tasks={"toss": Tosses(20)})).row
    claims = [claim | {"claim": text, "reason": text, "on": text} for claim in row["claims"]]
    suite_of(row | {"trial": text, "claims": claims, "notices": [text], "control": text}, tmp_path)


def test_no_claims_and_no_numbers_are_valid_too(case, tmp_path, coins):
    row = case(coins(tasks={"toss": Tosses(20)})).row
    empty = [c | {"estimate": None, "low": None, "high": None} for c in row["claims"]]
    suite_of(row | {"claims": empty}, tmp_path)
    suite = suite_of(
        {"trial": "t", "claims": [], "units": 0, "errors": 0, "seconds": 0.0}, tmp_path
    )
    assert suite.get("tests") == "0"
