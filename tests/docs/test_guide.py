"""What the guide tells people to write works: trials load, sessions run, the worked part passes."""

import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from equipoise.catalog import Catalog, catalog
from equipoise.checks import checks_for, verify
from equipoise.core import UsageError
from equipoise.trial import TrialFileError, loads

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "guide").glob("*.md")), ROOT / "README.md"]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", flags=re.M | re.S)


def blocks(language):
    """Return (page, number, text) of every fence in a language."""
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (_, name, text) in enumerate(FENCE.findall(page.read_text()))
        if name == language and (language != "yaml" or re.search(r"^arms:", text, flags=re.M))
    ]


@pytest.fixture
def read_twice(tmp_path, monkeypatch):
    """The part that the guide writes, made from the page's own code."""
    text = (DOCS / "guide" / "writing-a-part.md").read_text()
    found = {
        name: next(body for _, lang, body in FENCE.findall(text) if lang == lang_ and mark in body)
        for name, lang_, mark in [
            ("read_twice.py", "python", "class ReadTwice"),
            ("read_twice.yaml", "yaml", "title:"),
            ("test_read_twice.py", "python", "def test_"),
        ]
    }
    folder = tmp_path / "mine" / "language"
    folder.mkdir(parents=True)
    for path in (tmp_path / "mine", folder):
        (path / "__init__.py").touch()
    for name, body in found.items():
        (folder / name).write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    entry = Catalog([("mine", tmp_path / "mine")]).find("read_twice")
    monkeypatch.setitem(catalog().entries, "read_twice", entry)
    yield entry
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


@pytest.fixture
def library_desk(tmp_path, monkeypatch):
    """The environment that the guide writes."""
    text = (DOCS / "guide" / "environments.md").read_text()
    fences = [(name, body) for _, name, body in FENCE.findall(text)]
    folder = tmp_path / "mine" / "desks"
    folder.mkdir(parents=True)
    for path in (tmp_path / "mine", folder):
        (path / "__init__.py").touch()
    code = next(body for name, body in fences if name == "python" and "class LibraryDesk" in body)
    card = next(body for name, body in fences if name == "yaml" and "parts:" in body)
    (folder / "library_desk.py").write_text(code)
    (folder / "library_desk.yaml").write_text(card)
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    entry = Catalog([("mine", tmp_path / "mine")]).find("library_desk")
    monkeypatch.setitem(catalog().entries, "library_desk", entry)
    yield entry
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


def test_the_environment_of_the_guide_conforms(library_desk):
    module = importlib.import_module("mine.desks.library_desk")
    assert doctest.testmod(module).attempted
    assert doctest.testmod(module).failed == 0
    for check in checks_for("task"):
        if check.name not in ("same_seed_same_result", "import_is_silent",
                              "global_generators_are_left_alone", "survives_storing"):  # fmt: skip
            assert verify(library_desk, check) == "passed", check.name


def test_an_agent_works_at_the_desk_of_the_guide(library_desk):
    from equipoise.core import Rng
    from equipoise.kit.language.canned import Canned
    from equipoise.kit.language.talk import converse

    task = library_desk.load()(steps=6)
    units = list(task.units(Rng(0)))
    renews = "<tool_call>" + json.dumps({"name": "renew", "arguments": {"title": "Emma",
                                         "days": 7}}) + "</tool_call>"  # fmt: skip

    def hasty(request):
        return "Done." if any(m["role"] == "tool" for m in request.prompt) else renews

    found = converse(task, Canned(hasty), units, Rng(0))
    assert [outcome.scores["right"] for outcome in found] == [1.0, 0.0]
    lost = converse(task, Canned(lambda request: renews), units, Rng(0))
    assert {outcome.status for outcome in lost} == {"limit"}


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_trial_loads(text, read_twice, library_desk):
    try:
        assert loads(text).arms
    except UsageError as error:
        if "openai" not in str(error):  # where the client is not installed
            raise


@pytest.mark.parametrize("language", ["python", "pycon"])
def test_every_session_runs(language):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    parser = doctest.DocTestParser()
    ran = 0
    for page in PAGES:
        sessions = [text for _, name, text in FENCE.findall(page.read_text()) if name == language]
        for text in sessions:
            if text.startswith(">>>"):
                runner.run(parser.get_doctest(text, {}, page.name, str(page), 0))
                ran += 1
    assert ran or language == "pycon"
    assert runner.failures == 0


def test_the_worked_part_passes_its_doctest_and_its_test(read_twice):
    module = importlib.import_module("mine.language.read_twice")
    assert doctest.testmod(module).attempted
    assert doctest.testmod(module).failed == 0
    importlib.import_module(
        "mine.language.test_read_twice"
    ).test_only_the_last_message_is_repeated()


@pytest.mark.parametrize(
    "check",
    [
        "parameters_are_frozen_and_documented",
        "bad_values_are_refused",
        "docstring_teaches",
        "control_is_left_alone",
        "capabilities_survive",
        "null_setting_is_the_identity",
    ],
)
def test_the_worked_part_conforms(read_twice, check):
    found = next(each for each in checks_for("treatment") if each.name == check)
    assert verify(read_twice, found) == "passed"


def test_the_mistakes_shown_are_the_mistakes_made(read_twice):
    text = next(p.values[0] for p in blocks("yaml") if "read-twice" in p.values[0])
    wrong = text.replace("[read_twice]", "[read_twise]").replace("times: 3", "times: 9")
    page = (DOCS / "guide" / "writing-a-part.md").read_text()
    with pytest.raises(TrialFileError) as caught:
        loads(wrong, name="sums.yaml")
    assert str(caught.value) in page

    text = next(p.values[0] for p in blocks("yaml") if "trial: rounding" in p.values[0])
    wrong = text.replace("eight: [{round_to_nearest", "eight: [{round_to_neerest")
    wrong = wrong.replace("weights: 4", "weights: 40")
    with pytest.raises(TrialFileError) as caught:
        loads(wrong, name="rounding.yaml")
    assert str(caught.value) in (DOCS / "guide" / "first-trial.md").read_text()


def test_every_command_the_guide_names_exists():
    from equipoise.cli._app import COMMANDS

    named = {
        word
        for page in PAGES
        for word in re.findall(r"(?:^\$ |`)equipoise ([a-z]+)\b", page.read_text(), flags=re.M)
    }
    assert named <= set(COMMANDS)
    assert len(named) >= 8


def test_every_key_of_a_trial_file_is_explained():
    from equipoise.trial.schema import ArmFile, ClaimFile, TrialFile

    page = (DOCS / "guide" / "trial-files.md").read_text()
    for model in (TrialFile, ArmFile, ClaimFile):
        missing = [name for name in model.model_fields if f"`{name}" not in page]
        assert not missing


def test_json_is_as_the_contract_says(tmp_path):
    from equipoise.kit.worlds.coins import Coin, Tosses
    from equipoise.trial import Arm, Claim, Trial, run

    page = (DOCS / "guide" / "machine-output.md").read_text()
    shown = [json.loads(text) for _, name, text in FENCE.findall(page) if name == "json"]
    section = page.split("## `run --json`")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", section, flags=re.M)
    named = {name for cell in cells for name in re.findall(r"`([\w\[\].]+)`", cell)}
    trial = Trial(
        "coins",
        {"a": Arm(Coin(0.4)), "b": Arm(Coin(0.6))},
        {"toss": Tosses(60)},
        [Claim("b", "beats", "a", "toss")],
    )
    found = json.loads(json.dumps(run(trial, store=tmp_path / "s.sqlite").as_json()))
    (claim,) = found["claims"]
    sometimes = {
        "paper",
        "sequences",
        "allocation",
        "first_error",
        "clusters",
        "builds",
        "p_adjusted",
        "reason",
        "more_units",
    }
    fields = {name for name in named if "[" not in name} - {"finished", "early", "budget", "open"}
    assert fields <= set(found) | sometimes
    fields = {name.partition("[].")[2] for name in named if name.startswith("claims[].")}
    assert fields <= set(claim) | sometimes
    example = shown[0]
    assert set(example) <= set(found) | {"question"}
    assert set(example["claims"][0]) <= set(claim) | {"margin"}
    assert set(example["estimates"][0]) <= set(found["estimates"][0]) | {"unit"}
    assert set(example["effects"][0]) <= set(found["effects"][0])


def test_every_method_of_an_interval_is_explained():
    page = (DOCS / "guide" / "statistics.md").read_text()
    folder = ROOT / "src" / "equipoise" / "kit" / "statistics"
    source = "\n".join(path.read_text() for path in folder.glob("*.py"))
    names = set(re.findall(r'method="([a-z0-9-]+)"', source))
    names |= {"t", "cr2", "cr2-logit", "two-way", "tango", "wilson-clusters", "studentized-log"}
    names |= {"bca", "percentile", "studentized", "delta-t", "delta-cr2"}
    assert names >= {"wilson", "newcombe", "welch", "order-statistic", "betting", "asymptotic"}
    assert not [name for name in names if f"`{name}`" not in page]
