"""Logs of conversations: our own in one file, the official ones in a file a turn."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from equipoise.core import UsageError
from equipoise.kit.data import content_hash, read_rows
from equipoise.methods.code._feedback import Scenario

WHO = "FrozenConversation"
_OFFICIAL = re.compile(
    r"_CF(?P<execution>_EF_UNIT|_EF_FULL)?(?P<words>_SNF|_SEF)?(?:_by_[\w.-]+?)?"
    r"(?:_ITER=(?P<turn>\d+))?\.jsonl(?:\.gz)?$"
)
_EXECUTION = {"none": None, "partial": "_EF_UNIT", "full": "_EF_FULL"}
_WORDS = {"none": None, "novice": "_SNF", "expert": "_SEF"}


@dataclass(frozen=True, slots=True)
class Logged:
    """One turn of a log: the program after it, and the words that led to it."""

    number: int
    code: str
    words: str | None


def log_files(log: str, scenario: Scenario) -> list[Path]:
    """Return the files of a log: itself, or those of a folder that have this feedback, by turn.

    Raises
    ------
    UsageError
        If there is none, or a turn is missing among them.
    """
    path = Path(log).expanduser()
    if not path.exists():
        raise UsageError(f"{WHO}: there is no log {log}; write_log makes one.")
    if not path.is_dir():
        return [path]
    found: dict[int, Path] = {}
    for each in sorted(path.iterdir()):
        name = _OFFICIAL.search(each.name)
        if name is None:
            continue
        if name["execution"] != _EXECUTION[scenario.execution]:
            continue
        if name["words"] != _WORDS[scenario.words]:
            continue
        turn = int(name["turn"] or 1)
        if turn in found:
            raise UsageError(
                f"{WHO}: {log} holds turn {turn} twice, {found[turn].name} and {each.name}; give"
                " each model a folder."
            )
        found[turn] = each
    if not found:
        raise UsageError(
            f"{WHO}: no file in {log} is a log with execution {scenario.execution} and words"
            f" {scenario.words}; official names end like _CF_EF_FULL_SEF_ITER=2.jsonl."
        )
    lost = sorted(set(range(1, max(found) + 1)) - set(found))
    if lost:
        raise UsageError(f"{WHO}: the log of turn {lost[0]} is missing in {log}.")
    return [found[turn] for turn in sorted(found)]


def read_log(log: str, scenario: Scenario) -> dict[str, list[Logged]]:
    """Return the turns of every task in a log, from turn 0 or 1 on."""
    files = log_files(log, scenario)
    versions = tuple(content_hash(str(each)) for each in files)
    return _read(log, tuple(files), versions, Path(log).expanduser().is_dir())


@functools.lru_cache(maxsize=8)
def _read(
    log: str, files: tuple[Path, ...], versions: tuple[str, ...], folder: bool
) -> dict[str, list[Logged]]:
    found: dict[str, list[Logged]] = {}
    for turn, file in enumerate(files, 1):
        wanted = ["task_id", "solution"] if folder else ["task_id", "solution", "iteration"]
        for index, row in enumerate(read_rows(str(file), columns=wanted)):
            place = f"{WHO}: {file.name}, line {index + 1}"
            code, words = row["solution"], row.get("user_feedback")
            if not isinstance(code, str) or not isinstance(words, str | None):
                raise UsageError(f'{place}: "solution" and "user_feedback" must be text.')
            # The official iteration counts repairs too, so that a file's own turn is what counts.
            number = turn if folder else row["iteration"]
            turns = found.setdefault(str(row["task_id"]), [])
            due = turns[-1].number + 1 if turns else number
            if not isinstance(number, int) or number != due or (not turns and number > 1):
                raise UsageError(
                    f"{place}: {row['task_id']} has turn {number}, and {due if turns else '0 or 1'}"
                    " must come."
                )
            turns.append(Logged(number, code, words))
    return found
