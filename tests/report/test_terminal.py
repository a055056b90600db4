"""Progress and tables in a terminal."""

import io

from rich.console import Console

from equipoise.report import terminal


def lines(monkeypatch, steps):
    """Return what is printed while the clock shows ``steps``: (seconds, units, errors)."""
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with terminal.progress(Console(file=out, width=80)) as watcher:
        watcher.start(100, reused=20)
        watcher.doing("arm", "task")
        for seconds, units, errors in steps:
            now[0] = seconds
            watcher.advance(units, errors)
    return out.getvalue()


def test_time_left_does_not_count_the_making_of_a_subject(monkeypatch):
    said = lines(monkeypatch, [(600.0, 1, 0), (601.0, 9, 0), (620.0, 40, 2)])
    assert "20 units are in the store already; 100 to do." in said
    # 49 units in 20 seconds after the first; 50 are left.
    assert "arm · task: 50/100 units, 2.5/s, 20 s left, 2 errors" in said


def test_quiet_says_nothing(capsys):
    with terminal.progress(Console(), quiet=True) as watcher:
        watcher.start(5, 0)
        watcher.note("something")
    assert capsys.readouterr().out == ""


def test_a_bar_is_drawn_where_there_is_a_terminal():
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, highlight=False)
    with terminal.progress(console) as watcher:
        watcher.start(4, reused=2)
        watcher.doing("treated", "prose")
        watcher.advance(1, 0)
        watcher.advance(1, 1)
    assert "treated · prose" in out.getvalue()
    assert "2 units are in the store already" in out.getvalue()
