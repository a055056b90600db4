from dataclasses import dataclass

import pytest

from equipoise.core import Outcome, Predicts, Request, ScoreSpec, Task, Unit, UsageError
from equipoise.core.rng import Rng
from equipoise.kit.language.canned import Canned
from equipoise.kit.validation import validation_score


@dataclass(frozen=True)
class Marks(Task):
    fails: bool = False
    bounded: bool = True
    scores = (ScoreSpec("mark", low=0, high=4),)

    def check(self):
        if not self.bounded:
            object.__setattr__(self, "scores", (ScoreSpec("mark"),))

    def units(self, rng):
        for k in range(9):
            yield Unit(str(k), target=k, split=("train", "calibration", "test")[k % 3])

    def perform(self, subject, units, rng):
        assert all(unit.split != "test" for unit in units)
        found = [Outcome(u.id, {"mark": float(u.target % 4)}) for u in units]
        if self.fails:
            found[0] = Outcome(units[0].id, status="error", error_kind="x", error="It broke")
        return found


def test_the_mean_of_calibration_units():
    assert validation_score(None, Marks(), Rng(0)) == pytest.approx((1 + 0 + 3) / 3)
    assert validation_score(None, Marks(), Rng(0), "train") == pytest.approx((0 + 3 + 2) / 3)
    with pytest.raises(UsageError, match="never test"):
        validation_score(None, Marks(), Rng(0), "test")


def test_a_failed_unit_counts_as_the_worst():
    assert validation_score(None, Marks(fails=True), Rng(0)) == pytest.approx((0 + 0 + 3) / 3)
    with pytest.raises(UsageError, match=r"mark of calibration unit 1 is missing .It broke"):
        validation_score(None, Marks(fails=True, bounded=False), Rng(0))


@dataclass(frozen=True)
class Echo(Task):
    scores = (ScoreSpec("same", low=0, high=1),)

    def units(self, rng):
        for k in range(4):
            yield Unit(str(k), target=f"say {k}", split="calibration" if k else "test")

    async def attempt(self, talk, unit, rng):
        said = await talk.generate(Request(unit.target))
        return Outcome(unit.id, {"same": float(said.text == unit.target)})


def test_conversations_are_held():
    subject = Canned(lambda request: request.prompt if "1" in request.prompt else "no")
    assert validation_score(subject, Echo(), Rng(0)) == pytest.approx(1 / 3)


def test_a_subject_that_cannot_do_the_task_is_refused():
    from equipoise.methods.merging.digit_domains import DigitDomains

    assert DigitDomains.needs == {Predicts}
    with pytest.raises(UsageError, match="DigitDomains needs Predicts, which Canned does not have"):
        validation_score(Canned(lambda request: "0"), DigitDomains(), Rng(0))
