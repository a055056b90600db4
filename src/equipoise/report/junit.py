"""JUnit XML for CI: a test case a claim.

=============  =====================================================
verdict        test case
=============  =====================================================
supported      passed
refuted        failed; the message holds the evidence
inconclusive   skipped; the message says what would settle it
=============  =====================================================

A skipped case does not turn a build red: a pipeline that must not go on
without an answer looks at the exit code, which is 3. Failed units are no
failed test cases, they are counted in ``system-out``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from equipoise.report import words
from equipoise.report._text import visible, write_file


def write(row: Mapping[str, Any], path: Path) -> None:
    """Write a result as JUnit XML.

    Parameters
    ----------
    row
        A result's JSON.
    path
        Of the file; folders are made, an older file is replaced.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    write_file(path, render(row))


def render(row: Mapping[str, Any]) -> str:
    """Return a result as JUnit XML.

    Examples
    --------
    >>> print(render({"trial": "t", "claims": [], "units": 2, "errors": 0, "seconds": 1.5}))
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites name="equipoise" tests="0" failures="0" errors="0" skipped="0" time="1.500">
      <testsuite name="t" tests="0" failures="0" errors="0" skipped="0" time="1.500">
        <system-out>2 units, 0 errors, 1.5 s.</system-out>
      </testsuite>
    </testsuites>
    """
    claims = row["claims"]
    counts = {
        "tests": len(claims),
        "failures": sum(claim["verdict"] == "refuted" for claim in claims),
        "errors": 0,
        "skipped": sum(claim["verdict"] == "inconclusive" for claim in claims),
        "time": f"{row['seconds']:.3f}",
    }
    root = _add(None, "testsuites", name="equipoise", **counts)
    suite = _add(root, "testsuite", name=row["trial"], **counts)
    about = row.get("provenance") or {}
    if about.get("date"):
        suite.set("timestamp", visible(str(about["date"])).replace("+00:00", ""))
    properties = _properties(row)
    if properties:
        listed = _add(suite, "properties")
        for name, value in properties.items():
            _add(listed, "property", name=name, value=value)
    for claim in claims:
        _case(suite, row["trial"], claim)
    _add(suite, "system-out").text = visible(_summary(row))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, trial: str, claim: Mapping[str, Any]) -> None:
    case = _add(suite, "testcase", classname=f"{trial}.{claim['on']}", name=claim["claim"])
    case.set("time", "0.000")
    evidence, outlook = words.evidence(claim), words.outlook(claim)
    told = f"{evidence}; {outlook}" if outlook else evidence
    if claim["verdict"] == "refuted":
        _add(case, "failure", message=told, type="refuted").text = visible(words.plainly(claim))
    elif claim["verdict"] == "inconclusive":
        _add(case, "skipped", message=f"inconclusive: {told}")
    _add(case, "system-out").text = visible(f"{claim['verdict']}: {told}")


def _properties(row: Mapping[str, Any]) -> dict[str, str]:
    about = row.get("provenance") or {}
    found = {name: row.get(name) for name in ("verdict", "status", "run", "control", "paper")}
    found |= {"level": row.get("level"), "version": (about.get("versions") or {}).get("equipoise")}
    found["commit"] = (about.get("git") or {}).get("commit")
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _summary(row: Mapping[str, Any]) -> str:
    lines = [f"{row['units']:,} units, {row['errors']:,} errors, {words.seconds(row['seconds'])}."]
    lines += [
        f"{each['arm']} on {each['task']}: {each['errors']:,} of {each['outcomes']:,} failed"
        for each in row.get("costs", ())
        if each.get("errors")
    ]
    lines += [f"Note: {notice}" for notice in row.get("notices", ())]
    return "\n".join(lines)


def _add(parent: ET.Element | None, tag: str, **attributes: Any) -> ET.Element:
    said = {name: visible(str(value)) for name, value in attributes.items()}
    return ET.Element(tag, said) if parent is None else ET.SubElement(parent, tag, said)
