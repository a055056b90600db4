"""The theme: readable in light and dark, and one for page and plots."""

from dataclasses import asdict

import pytest

from equipoise.report import theme
from equipoise.report.theme import DARK, LIGHT


def luminance(hue):
    """Return relative luminance as WCAG 2 defines it."""
    parts = [int(hue[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_reckoned_as_in_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(palette):
    for back in (palette.paper, palette.panel):
        for front in ("ink", "muted", "mark", "good", "bad", "open"):
            assert contrast(getattr(palette, front), back) >= 4.5, (front, back)
    for name in ("good", "bad", "open"):
        assert contrast(getattr(palette, name), getattr(palette, f"{name}_soft")) >= 4.5, name
    for back in (palette.mark_soft, palette.open_soft):
        assert contrast(palette.ink, back) >= 4.5


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_marks_stand_out_from_what_they_lie_on(palette):
    for front in ("mark", "good", "bad", "open", "ink"):
        for back in (palette.panel, palette.good_soft, palette.mark_soft):
            assert contrast(getattr(palette, front), back) >= 3, (front, back)
    for hue in palette.series:
        assert contrast(hue, palette.panel) >= 3, hue


def test_css_has_every_colour_twice_and_prints_in_the_light():
    css = theme.css()
    for palette in (LIGHT, DARK):
        hues = asdict(palette)
        hues |= {f"s{place}": hue for place, hue in enumerate(hues.pop("series"))}
        for name, hue in hues.items():
            assert f"--{name.replace('_', '-')}:{hue};" in css
    assert "@media screen and (prefers-color-scheme:dark)" in css


@pytest.mark.parametrize("dark", [False, True])
def test_plots_wear_the_theme(dark):
    import altair as alt
    import polars as pl

    theme.enable(dark=dark)
    frame = pl.DataFrame({"x": [1, 2], "y": [1, 2], "arm": ["a", "b"]})
    chart = alt.Chart(frame).mark_point().encode(x="x", y="y", color="arm")
    config = chart.to_dict()["config"]
    palette = DARK if dark else LIGHT
    assert config["background"] == palette.panel
    assert config["range"]["category"] == list(palette.series)
    alt.Chart(frame).mark_bar().encode(x="x", y="y").properties(title="t").to_dict(validate=True)
    theme.enable()
