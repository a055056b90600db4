"""What a run tells while it goes on; the command line draws it, a notebook may ignore it."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Hears how a run goes."""

    def start(self, total: int, reused: int) -> None:
        """The run has ``total`` units to do and ``reused`` done before."""

    def doing(self, arm: str, task: str) -> None:
        """The run begins to work on a cell."""

    def making(self, what: str, done: int, total: int) -> None:
        """Making an arm's subject goes on: training, calibration; 0 of 0 is a remark."""

    def advance(self, units: int, errors: int) -> None:
        """Some units ended."""

    def note(self, text: str) -> None:
        """Something a person should know."""


class Silent:
    """A watcher that says nothing."""

    def start(self, total: int, reused: int) -> None:
        """Say nothing."""

    def doing(self, arm: str, task: str) -> None:
        """Say nothing."""

    def making(self, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def advance(self, units: int, errors: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""
