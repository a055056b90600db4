"""How far a running trial is, told as it goes."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from equipoise.core import EquipoiseError, Rng, RunError, Task, UsageError
from equipoise.report import words
from equipoise.report._page import claim_panel
from equipoise.trial.build import BuildFault, build
from equipoise.trial.compare import describe, effect
from equipoise.trial.schema import ClaimFile, TrialFile
from equipoise.trial.trial import Claim
from equipoise.trial.verdict import claim_level, judge
from equipoise.viewer.app import library
from equipoise.viewer.grid import cells_of, size_of
from equipoise.viewer.pages import AS_IT_IS, environment

router = APIRouter()

EVERY = 1.0
SHARE = 0.02
"""Most of one core's time that watching a run may take."""


@router.get("/runs/{number}/live")
async def live(request: Request, number: int) -> StreamingResponse:
    """Send how far a run is, until it ends or nobody listens."""
    store = await run_in_threadpool(library, request)
    await run_in_threadpool(store.run, number)  # a run that is not there is refused at once
    channels: dict[int, Channel] = request.app.state.channels
    channel = channels.get(number)
    if channel is None or channel.ended:
        channel = channels[number] = Channel(Watch(store, number))
    return StreamingResponse(
        channel.listen(),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no", **AS_IT_IS},
    )


class Channel:
    """Looks at a run for all the pages that listen: ten of them cost what one does."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.ended = self.closed = False
        self.listeners = 0
        self._shown = ""
        self._version = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncIterator[str]:
        """Yield what has changed, as events, until the run ends."""
        yield "retry: 2000\n\n"
        self.listeners += 1
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._look())
            seen = 0
            while not self.closed:
                news = self._news
                if self._version > seen:
                    seen = self._version
                    data = "".join(f"data: {line}\n" for line in self._shown.splitlines())
                    yield f"event: progress\n{data}\n"
                elif self.ended:
                    yield "event: ended\ndata: \n\n"
                    return
                else:
                    await news.wait()
        finally:
            self.listeners -= 1
            if not self.listeners and self._task is not None:
                self._task.cancel()

    def close(self) -> None:
        """Let the listeners go without a word: the server ends, the page stays as it is."""
        self.closed = True
        self._news.set()

    async def _look(self) -> None:
        while not self.ended:
            began = time.perf_counter()
            try:
                shown, running = await run_in_threadpool(self.watch.look)
            except RunError:  # locked for a moment; the next look will do
                await asyncio.sleep(5 * EVERY)
                continue
            except UsageError:  # the store or the run is there no more: the page will say so
                shown, running = None, False
            if shown is not None:
                self._shown, self._version = shown, self._version + 1
            self.ended = not running
            if shown is not None or self.ended:
                self._news.set()
                self._news = asyncio.Event()
            if running:
                await asyncio.sleep(max(EVERY, (time.perf_counter() - began) / SHARE))


@dataclass
class Watch:
    """Looks at a run again and again, and tells its speed from what it saw."""

    store: Any
    number: int
    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=30))
    written: int = -1
    moved: float = field(default_factory=time.monotonic)

    def look(self) -> tuple[str | None, bool]:
        """Return a part of the page, None where nothing is new, and whether the run goes on."""
        self.store.refresh()
        run = self.store.run(self.number)
        running = run["status"] == "running"
        now = time.monotonic()
        self.seen.append((now, run["written"]))
        if run["written"] == self.written and running and now - self.moved < 60:
            return None, running
        if run["written"] != self.written:
            self.written, self.moved = run["written"], now
        return render(self.store, run, self.speed(), now - self.moved), running

    def speed(self) -> float | None:
        """Return outcomes a second over the last looks."""
        (first, n), (last, m) = self.seen[0], self.seen[-1]
        return (m - n) / (last - first) if last > first and m > n else None


def render(store: Any, run: Mapping[str, Any], speed: float | None, quiet: float = 0.0) -> str:
    """Return the part of the page that tells how far a run is."""
    cells = []
    for cell in run["covers"]:
        size = size_of(cell)
        total = None if None in size.values() else math.prod(size.values())
        costs = store.costs(cell["arm"], cell["task"], **size)
        cells.append(
            {
                "arm": cell["arm_label"],
                "task": cell["task_label"],
                "done": costs["outcomes"],
                "errors": costs["errors"],
                "total": total,
                "share": None if not total else min(1.0, costs["outcomes"] / total),
            }
        )
    done = sum(each["done"] for each in cells)
    totals = [each["total"] for each in cells]
    total = None if None in totals or not totals else sum(totals)
    left = None
    if total is not None and speed and run["status"] == "running":
        left = words.seconds(max(0.0, total - done) / speed)
    return str(
        environment()
        .get_template("live.html.j2")
        .render(
            run=run,
            cells=cells,
            done=done,
            total=total,
            errors=sum(each["errors"] for each in cells),
            speed=speed,
            left=left,
            quiet=words.seconds(quiet) if quiet >= 60 else "",
            claims=running_claims(store, run),
        )
    )


def running_claims(store: Any, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return where each claim about a mean stands on the units done so far."""
    file = _file(run["file"])
    if file is None:
        return []
    found = []
    for spec in file.claims:
        try:
            shown = _standing(store, run, file, spec)
        except EquipoiseError:  # too few units yet
            continue
        if shown is not None:
            found.append(shown)
    return found


def _file(text: str) -> TrialFile | None:
    import yaml

    from equipoise.catalog import yaml_loader

    try:
        return TrialFile.model_validate(yaml.load(text, Loader=yaml_loader()))  # noqa: S506 - safe
    except (yaml.YAMLError, ValidationError, TypeError):
        return None


def _has_own_measure(task: Any) -> bool:
    """Say whether a claim that names no score is about a measure of the task's own."""
    try:
        return cast("Task", build(task, Task)).claimed() is not None
    except BuildFault:  # a package that it needs is missing here
        return False


def _standing(
    store: Any, run: Mapping[str, Any], file: TrialFile, spec: ClaimFile
) -> dict[str, Any] | None:
    relation, other = spec.relation()
    cells = cells_of(run, spec.on)
    sides = [spec.arm, *([other] if isinstance(other, str) else [])]
    if spec.measure is not None or any(side not in cells for side in sides):
        return None
    if spec.score is None and _has_own_measure(file.tasks.get(spec.on)):
        return None
    outcomes = [
        store.outcomes(cell["arm"], cell["task"], **size_of(cell))
        for cell in (cells[side] for side in sides)
    ]
    if any(not len(each) for each in outcomes):
        return None
    score = spec.score or outcomes[0].specs[0].name
    margin = spec.by or spec.within or 0.0
    claim = Claim(spec.arm, relation, other, spec.on, margin, spec.score)
    level = claim_level(claim, file.level, len(file.claims))
    if len(outcomes) == 2:
        rng = Rng(0).child("so far")
        estimate = effect(
            outcomes[0], outcomes[1], score, level=level, errors=file.errors, rng=rng
        ).estimate
    else:
        estimate = describe(outcomes[0], score, level=level, errors=file.errors)
    return claim_panel(judge(claim, estimate).as_json(), {})
