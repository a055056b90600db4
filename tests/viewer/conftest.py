"""A store whose every text is hostile, and a client of the viewer that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.viewer.browser import chromium, site, visitor  # noqa: F401 - fixtures

from equipoise.core import Outcome, ScoreSpec, Unit, Usage
from equipoise.store import Store
from equipoise.viewer.app import create_app

TOKEN = "right-token"
BASE = "http://127.0.0.1:8642"

HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "javascript:window.hacked=1",
    "{{ 7 * 7 }}{% raw %}",
    "</textarea></title></style><svg onload=window.hacked=1>",
    "'; DROP TABLE outcomes; --",
    "\x1b[31mred\u202egnp.exe \u0000end",
    "$$\\href{javascript:window.hacked=1}{x}$$ \\(\\includegraphics{https://example.org/x.png}\\)",
    "```html\n<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>\n```",
    "data:text/html,<script>window.hacked=1</script>",
)
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001"
    "000000ffff03000006000557bfabd40000000049454e44ae426082"
)


def hostile_store(path: Path) -> Path:
    """Write a finished run, a running one and an imported one, with hostile text everywhere."""
    specs = (ScoreSpec("correct", low=0, high=1), ScoreSpec('<b>"len', None))
    with Store.open(path) as store:
        task = store.task("t1", f"sums {HOSTILE[0]}", {"x": {"y": HOSTILE[1]}}, specs)
        units = [
            Unit(
                f"u{i:02d} {HOSTILE[i % len(HOSTILE)]}",
                {"question": HOSTILE[i % len(HOSTILE)]},
                HOSTILE[(i + 1) % len(HOSTILE)],
                stratum=HOSTILE[i % 3],
                cluster=f"c{i % 4} {HOSTILE[0]}",
            )
            for i in range(60)
        ]
        numbers = store.add_units(task, units)
        labels = ("control", f"arm {HOSTILE[1]}")
        run = store.begin_run(
            f"trial {HOSTILE[0]}", f"trial: {HOSTILE[0]}\n", {"command": HOSTILE[0]}
        )
        for k, label in enumerate(labels):
            arm = store.arm(f"a{k}", label, {"subject": {"s": {"p": HOSTILE[2]}}})
            store.cover(run, arm, task, arm_label=label, task_label=f"sums {HOSTILE[0]}", units=60,
                        builds=1, repeats=1)  # fmt: skip
            rows = [(int(n), _outcome(i, k)) for i, n in enumerate(numbers)]
            store.add(run, arm, task, 0, rows)
        store.end_run(run, "finished", _result(run, labels))
        running = store.begin_run(f"running {HOSTILE[1]}", _FILE, {})
        for k, label in enumerate(("first", "second")):
            arm = store.arm(f"r{k}", label, {"subject": {"s": {}}})
            store.cover(running, arm, task, arm_label=label, task_label="mine", units=60, builds=1,
                        repeats=1)  # fmt: skip
            done = [(int(n), _outcome(i, k)) for i, n in enumerate(numbers[: 40 - 10 * k])]
            store.add(running, arm, task, 0, done)
        imported = store.begin_run("imported", "", {})
        store.cover(imported, 1, task, arm_label="control", task_label="mine")
        store.end_run(imported, "finished")
    return path


_FILE = """
trial: running
arms: {first: [], second: []}
subject: smollm2
tasks: {mine: {perplexity: {}}}
claims:
  - {arm: second, beats: first, on: mine}
"""


def _outcome(i: int, k: int) -> Outcome:
    text = HOSTILE[(i + k) % len(HOSTILE)]
    if i % 13 == 5 and k:
        return Outcome(f"u{i}", status="error", error_kind=f"kind {HOSTILE[0]}", error=text)
    transcript = [
        {"role": "user", "content": [{"type": "text", "text": text},
         {"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg onload=alert(1)>"}}]},
        {"role": "assistant", "content": text, "tool_calls": [
            {"function": {"name": text, "arguments": '{"q": "<script>"}'}}],
         "logprobs": {"content": [{"token": text, "logprob": -0.5 * i}]}},
        {"role": f"tool {HOSTILE[1]}", "name": text, "content": text},
    ]  # fmt: skip
    return Outcome(
        f"u{i}",
        {"correct": float((i + k) % 3 == 0), '<b>"len': float(len(text))},
        output=f"{text} answer{i}",
        transcript=transcript,
        artifacts={f"shot {HOSTILE[1]}": PICTURE, "curve": np.arange(5.0), "page": b"<script>"},
        usage=Usage(10, 5, 0.001),
        seconds=0.1,
    )


def _result(run: int, labels: tuple[str, str]) -> dict:
    task = f"sums {HOSTILE[0]}"
    estimate = {"estimate": 0.1, "low": 0.02, "high": 0.18, "level": 0.95, "n": 60,
                "method": HOSTILE[1]}  # fmt: skip
    claim = {"claim": f"{labels[1]} beats control on {task}", "verdict": "supported",
             "arm": labels[1], "on": task, "relation": "beats", "other": "control", "margin": 0.0,
             **estimate}  # fmt: skip
    value = {k if k != "estimate" else "value": v for k, v in estimate.items()}
    return {
        "trial": f"trial {HOSTILE[0]}", "question": HOSTILE[4], "status": "finished",
        "verdict": "supported", "units": 120, "errors": 4, "seconds": 2.5, "level": 0.95,
        "policy": "worst", "control": "control", "claims": [claim],
        "estimates": [{"arm": a, "task": task, "name": "correct", "higher_is_better": True, **value}
                      for a in labels],
        "effects": [{"arm": labels[1], "task": task, "name": "correct", "versus": "control",
                     "higher_is_better": True, **value}],
        "arms": {a: {"subject": {"s": {"p": HOSTILE[1]}}, "treatments": []} for a in labels},
        "tasks": {task: {"x": {}}}, "costs": [
            {"arm": a, "task": task, "outcomes": 60, "errors": 2, "attempts": 60,
             "input_tokens": 600, "output_tokens": 300, "dollars": 0.06, "seconds": 6.0}
            for a in labels],
        "notices": [HOSTILE[0]], "differs": HOSTILE[1],
        "figures": [{"task": task, "measure": "m", "figure": {
            "title": HOSTILE[0], "x": HOSTILE[1], "y": "y", "caption": HOSTILE[4],
            "series": [{"name": HOSTILE[1], "x": [0, 1], "y": [0, 1]}]}}],
        "provenance": {"command": HOSTILE[1], "date": "2026-01-01"}, "run": run,
    }  # fmt: skip


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_store(tmp_path_factory.mktemp("viewer") / "store.sqlite")


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    app = create_app(place, TOKEN, hosts=frozenset({"127.0.0.1:8642"}))
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as found:
        found.get(f"/?token={TOKEN}")
        yield found
    app.state.library.close()
