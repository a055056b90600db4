"""The generated pages: whole, the same every time, and right where a mistake would mislead."""

import doctest
import json
import re
import shutil

import generate
import hooks
import pytest
import yaml
from _generate import catalogue, changelog, cli, conformance, python

from equipoise.catalog import catalog, yaml_loader
from equipoise.core import UsageError
from equipoise.report import docstrings
from equipoise.trial import loads


@pytest.fixture(scope="module")
def pages():
    return generate.pages()


def fences(text, language):
    """Return the fences in a language, with what a block around them indents taken off."""
    found = re.findall(rf"^( *)```{language}[^\n]*\n(.*?)^\1```", text, flags=re.M | re.S)
    return [re.sub(f"^{indent}", "", body, flags=re.M) for indent, body in found]


def test_every_part_has_a_page_and_a_line_in_the_index(pages):
    for entry in catalog():
        page = catalogue.place(entry.card)
        assert f"#{entry.id} }}" in pages[page]
        assert f"({page.removeprefix('catalogue/')}#{entry.id})" in pages["catalogue/index.md"]


def test_pages_are_the_same_every_time(pages):
    assert generate.pages() == pages


def test_no_page_tells_addresses_or_places(pages):
    for name, text in pages.items():
        assert not re.search(r"0x[0-9a-f]{6,}|/home/|/root/|/work/", text), name


def test_no_markup_of_docstrings_is_left_over(pages):
    for name, text in pages.items():
        prose = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S)
        assert not re.search(r"\.\. \w+::|:\w+:`|^-{3,}$|^={3,}", prose, flags=re.M), name


def test_every_parameter_is_told_what_it_is(pages):
    for name, text in pages.items():
        if name.startswith("catalogue/"):
            untold = re.findall(r"^\| `(\w+)`(?: †)? \|  \|", text, flags=re.M)
            assert not untold, name


def test_replications_stand_as_files_that_load(pages):
    cards = [card for card in catalog().cards if card.replication]
    assert cards
    for card in cards:
        (text,) = (t for t in fences(pages[catalogue.place(card)], "yaml") if "claims:" in t)
        trial = loads(text, folder=card.path.parent)
        raw = yaml.load(text, Loader=yaml_loader())
        assert {k: v for k, v in raw.items() if k in card.replication} == card.replication
        assert len(trial.claims) >= len(card.replication["claims"])


def test_examples_stand_on_their_own(pages):
    """Each session has the imports it needs, as a person who copies it will find."""
    parser, runner = (
        doctest.DocTestParser(),
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS),
    )
    names = ("evaluation/means", "evaluation/calibration", "language/scripted", "tables/train")
    for name in names:
        text = pages[f"catalogue/{name}.md"]
        for session in fences(text, "pycon"):
            runner.run(parser.get_doctest(session, {}, name, None, 0))
    assert runner.tries > 10
    assert runner.failures == 0


def test_a_part_whose_packages_are_missing_keeps_its_page(monkeypatch):
    def lacking(entry):
        raise UsageError(entry.missing("torch"))

    monkeypatch.setattr(catalogue, "describe", lacking)
    found = catalogue.pages(generate.ROOT / "replications")
    text = found["catalogue/quantization/round_to_nearest.md"]
    assert "pip install 'equipoise[quantization]'" in text
    assert "round_to_nearest needs the package torch, which is not installed" in text


def test_a_recorded_replication_is_shown(tmp_path):
    claim = {"claim": "a beats b on c", "verdict": "supported", "estimate": 0.5, "low": 0.25,
             "high": 0.75, "level": 0.9875, "n": 1200}  # fmt: skip
    row = {
        "outcome": "replicated", "units": 4800, "errors": 2, "seconds": 75.0, "claims": [claim],
        "card_version": 1,
        "provenance": {"date": "2025-05-01T10:00:00+00:00", "cores": 2, "memory_gib": 24,
                       "platform": "Linux x86_64"},
    }  # fmt: skip
    (tmp_path / "rrs.json").write_text(json.dumps(row))
    text = catalogue.pages(tmp_path)["catalogue/quantization/rotated_runtime_smooth.md"]
    assert "**Replicated** on 2025-05-01: 4,800 units, 2 errors, 1 min 15 s on 2 cores" in text
    assert "| a beats b on c | replicated | 0.500 | [0.250, 0.750] | 0.9875 | 1,200 |" in text
    assert "No result of the full size" not in text


def test_figures_of_a_replication_are_drawn_in_the_hues_of_the_report(tmp_path):
    from equipoise.core import Figure, Series
    from equipoise.report.theme import DARK, LIGHT

    figure = Figure("Rise", "x", "y", (Series("<b>", (0, 1), (0, 1)),), "Up.")
    row = json.loads((generate.ROOT / "replications" / "rrs.json").read_text(encoding="utf-8"))
    row["figures"] = [{"task": "prose", "measure": "m", "figure": figure.as_json()}]
    (tmp_path / "rrs.json").write_text(json.dumps(row), encoding="utf-8")
    page = next(text for name, text in catalogue.pages(tmp_path).items() if "rotated" in name)
    (line,) = [each for each in page.splitlines() if each.startswith("<figure")]
    assert "&lt;b&gt;" in line
    assert "<b>" not in line
    css = (generate.ROOT / "docs" / "assets" / "extra.css").read_text(encoding="utf-8")
    assert all(hue in css for palette in (LIGHT, DARK) for hue in palette.series)


def test_every_command_and_option_is_on_its_page(pages):
    text = pages["reference/cli.md"]
    assert text == cli.page()
    for option in ("--quick", "--junit", "--record", "--lower-better", "--into"):
        assert option in text
    assert max(len(line) for block in fences(text, "text") for line in block.splitlines()) <= 80


def test_public_names_are_on_the_page_of_the_interface(pages):
    import equipoise

    for name in set(equipoise.__all__) - {"__version__"}:
        assert f"{{ #{name} }}" in pages["reference/python.md"], name
    from equipoise.kit import statistics

    for name in statistics.__all__:
        assert f"{{ #{name} }}" in pages["reference/statistics.md"], name


def test_sessions_on_the_pages_of_the_interface_run():
    for page in (python.HEAD, python.STATISTICS):
        found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        for session in fences(page, "python"):
            found.run(doctest.DocTestParser().get_doctest(session, {}, "page", None, 0))
        assert found.tries
        assert found.failures == 0


def test_signatures_read_as_written():
    def call(a: int, *rest: str, b: "str | None" = None, c=object()) -> float:  # noqa: B008
        """Return nothing."""

    assert python._signature(call, "call") == (
        "call(a: int, *rest: str, *, b: str | None = None, c = …) -> float"
    )


def test_checks_of_all_kinds_are_told_once():
    text = conformance.page()
    assert text.count("`same_seed_same_result`") == 1
    assert "`oracle_beats_constant`" in text.split("## Task")[1].split("## Measure")[0]


def test_docstrings_become_markdown():
    doc = docstrings.Docstring.of(
        "One line\nmore.\n\nThen ``code`` and :math:`x^2`:\n\n.. math::\n    a = b,\n    c\n\n"
        "Parameters\n----------\nlow, high\n    Both\n    ends.\nlast : int\n    End.\n\n"
        "Examples\n--------\nFirst:\n\n>>> 1\n1\n\nThen more."
    )
    assert doc.summary == "One line more."
    assert doc.rest == "Then `code` and $x^2$:\n\n$$ a = b, c $$"
    assert doc.items("Parameters") == {"low": "Both\nends.", "high": "Both\nends.", "last": "End."}
    assert docstrings.examples(doc.sections["Examples"]) == (
        "First:\n\n```pycon\n>>> 1\n1\n```\n\nThen more."
    )
    assert docstrings.markdown("Hence\n\n.. math:: x,\n   y\n\nand so") == (
        "Hence\n\n$$ x, y $$\n\nand so"
    )
    table = docstrings.markdown("==== ====\na    b | c\n==== ====\n1 2  3\n==== ====")
    assert table == "| a | b \\| c |\n| --- | --- |\n| 1 2 | 3 |"


def test_equations_become_mathml():
    text = r'<p><span class="arithmatex">\(a &lt; \tfrac12\)</span></p>'
    found = hooks.on_page_content(text)
    assert found.startswith("<p><math")
    assert "<mfrac>" in found
    assert "arithmatex" not in found
    block = hooks.on_page_content('<div class="arithmatex">\\[\n\\sum_i x_i\n\\]</div>')
    assert 'display="block"' in block


def test_fragments_become_a_changelog(tmp_path):
    (tmp_path / "README.md").write_text("How to.")
    (tmp_path / "b.added.md").write_text("Second\nline.\n")
    (tmp_path / "a.fixed.md").write_text("Mended.\n")
    for version, text in (("0.9.0", "Old."), ("0.10.0", "Newer.")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "x.changed.md").write_text(text)
    expected = """
        # Changelog
        ## Unreleased
        ### Added
        - Second line.
        ### Fixed
        - Mended.
        ## 0.10.0
        ### Changed
        - Newer.
        ## 0.9.0
        ### Changed
        - Old.
    """
    assert changelog.page(tmp_path).split() == expected.split()


@pytest.mark.parametrize(
    ("name", "text"), [("new.md", "x"), ("new.news.md", "x"), ("a.added.md", " ")]
)
def test_a_fragment_that_is_wrong_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit, match=re.escape(name)):
        changelog.page(tmp_path)


def test_the_site_builds_and_asks_nothing_of_the_network(pages, tmp_path):
    """Built strictly; no page loads a script, style, font or image from elsewhere."""
    mkdocs = pytest.importorskip("mkdocs.commands.build")
    from mkdocs.config import load_config

    shutil.copytree(generate.DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(generate.ROOT / "mkdocs.yml", tmp_path)
    generate.write(tmp_path / "docs")
    config = load_config(str(tmp_path / "mkdocs.yml"), strict=True)
    mkdocs.build(config)
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > len(pages) - 5
    for page in built:
        text = page.read_text()
        loaded = re.findall(
            r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(https?:[^\"' >]+)", text
        )
        assert not loaded, page
        assert "arithmatex" not in text, page
    assert not list((tmp_path / "site").rglob("*.py"))
