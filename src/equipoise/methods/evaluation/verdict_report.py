r"""What judged scores let us conclude: the mean behind the verdicts, and what the judge is like.

With human labels of some answers, chosen at random, the mean of the label is estimated from them
and all verdicts without bias, however bad the judge; see `prediction_powered_mean`. An answer that
failed is worth 0 without a judge: where a share :math:`\varphi` failed, the mean is
:math:`(1 - \varphi)\,\hat\theta`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between, setting
from equipoise.kit.data import content_hash
from equipoise.kit.statistics import resampling, single
from equipoise.kit.statistics.columns import clusters_of, enclosing, in_order, noted
from equipoise.methods.evaluation._judge_worth import judge_report
from equipoise.methods.evaluation._judges import JudgeRates, judge_weight, prediction_powered_mean
from equipoise.methods.evaluation._labels import KEY, read_labels

_FEW = 30  # labels below which an estimate says how few there are
_JUDGE = JudgeRates(b=0.7, p=0.85, q=0.75)
_LONGER = 0.8  # characters, in standard deviations, that a right verdict comes with in simulation


@dataclass(frozen=True)
class _Labelled(Measure):
    """A measure of verdicts, and of gold scores or human labels where there are any."""

    human: str | None = setting(None)
    label: str = "label"
    low: float = 0.0
    high: float = 1.0
    gold: str = "gold"
    judge: str = "judge"
    level: float = between(0.5, 0.9999999, default=0.95)

    def check(self) -> None:
        if not self.low < self.high:
            raise UsageError(
                f"{type(self).__name__}: high must be above low, got {self.low:g} and"
                f" {self.high:g}."
            )

    def content(self) -> object:
        """Return what identifies the labels, wherever they lie."""
        return None if self.human is None else content_hash(self.human)

    def labels_of(self, outcomes: Outcomes) -> np.ndarray:
        """Return gold scores and human labels, NaN where there are none."""
        found = outcomes.scores.get(self.gold)
        found = np.full(len(outcomes), np.nan) if found is None else found
        if self.human is None:
            return found
        given = read_labels(self.human, self.label, self.low, self.high)
        own = given.of(outcomes.score(KEY))
        return np.where(np.isnan(own), found, own)

    def judged(self, outcomes: Outcomes) -> tuple[Outcomes, np.ndarray]:
        """Return the answers that were given, and the mask of them in all rows."""
        verdicts = outcomes.score(self.judge)
        given = ~outcomes.failed
        silent = int((np.isnan(verdicts) & given).sum())
        if silent:
            raise UsageError(
                f"{type(self).__name__}: {silent} of {len(verdicts)} rows have no verdict; a judge"
                " that skips answers biases the result, so give them one or leave them out."
            )
        return outcomes.take(given), given

    def unlabelled(self, outcomes: Outcomes) -> str:
        """Return the sentence on an arm without any label."""
        arm = f" of arm {outcomes.arm}" if outcomes.arm else ""
        where = f" in {self.human}" if self.human else ""
        return (
            f"{type(self).__name__}: no answer{arm} has a human label{where}; the judge alone"
            " proves nothing, so label some answers of every arm, chosen at random."
        )


@dataclass(frozen=True)
class DebiasedMean(_Labelled):
    r"""Mean human label of all answers, from the labels of a few and a judge's verdicts on all.

    The plain function is `prediction_powered_mean`. Failed answers count as 0. Where every answer
    has a label it is their mean; with fewer than three labels there is no interval. Labels must
    be of answers chosen at random, in every arm that is compared.

    Parameters
    ----------
    human
        Table of labels with the columns ``unit``, ``output`` (the answer) and ``label``, such as
        a file of ``equipoise export`` with a column added. It may come after the run: a label
        finds its answer by the score ``answer_key``. None takes the score ``gold``.
    label
        Column of the labels.
    low, high
        What a label of the worst and of the best answer is.
    gold, judge
        Scores of the outcomes.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> gold = np.array([1.0, 1, 0, 1, 0] + [np.nan] * 5)
    >>> outcomes = Outcomes.of(gold=gold, judge=[1, 1, 0, 1, 1, 1, 0, 1, 1, 0])
    >>> round(DebiasedMean().statistic(outcomes), 3)
    0.549
    """

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 answers with a label and 800 without, a tenth of all failed."""
        rows, _ = _simulated(self, 80, 880, rng)
        failed = rng.child("failed").numpy().random(len(rows)) < 0.1
        columns = {
            self.judge: np.where(failed, 0.0, rows.score(self.judge)),
            self.gold: np.where(failed, np.nan, rows.score(self.gold)),
        }
        return replace(rows, failed=failed, scores=dict(rows.scores) | columns), 0.9 * _JUDGE.b

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the estimate; ``rng`` is not used."""
        outcomes = in_order(outcomes)
        rows, given = self.judged(outcomes)
        s, t = self.labels_of(rows), rows.score(self.judge)
        known = ~np.isnan(s)
        n = int(known.sum())
        if not n:
            raise UsageError(self.unlabelled(outcomes))
        groups = clusters_of(rows)
        try:
            if known.all():
                found = _average(s, groups, self.level)
            else:
                found = prediction_powered_mean(
                    s[known],
                    t[known],
                    t[~known],
                    clusters=None if groups is None else groups[known],
                    clusters_extra=None if groups is None else groups[~known],
                    level=self.level,
                )
        except UsageError as error:
            found = Estimate(self._value(s, t), level=self.level, n=len(s), note=str(error))
        if n < _FEW:
            found = noted(found, f"Only {n} answers have a label.")
        return self._with_failures(found, given, outcomes)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the estimate without its interval; NaN for a resample without labels."""
        rows, given = self.judged(outcomes)
        s = self.labels_of(rows)
        if np.isnan(s).all():
            rows_of_its_own = np.stack([outcomes.unit, outcomes.build, outcomes.repeat])
            if np.unique(rows_of_its_own, axis=1).shape[1] < len(outcomes):
                return math.nan
            raise UsageError(self.unlabelled(outcomes))
        return float(given.mean()) * self._value(s, rows.score(self.judge))

    def better(self, outcomes: Outcomes) -> bool | None:
        """Follow the judge's score."""
        return outcomes.spec(self.judge).higher_is_better

    def _value(self, s: np.ndarray, t: np.ndarray) -> float:
        known = ~np.isnan(s)
        if known.all():
            return float(s.mean())
        weight = judge_weight(s[known], t[known], t[~known])
        return float(s[known].mean() - weight * (t[known].mean() - t[~known].mean()))

    def _with_failures(self, found: Estimate, given: np.ndarray, rows: Outcomes) -> Estimate:
        """Return the mean over all answers, those that failed counted as 0."""
        if given.all():
            return found
        try:
            share = _average(given.astype(float), clusters_of(rows), self.level)
        except UsageError:
            share = Estimate(float(given.mean()))
        value = share.value * found.value
        low, high = (
            value
            + sign * math.hypot(share.value * (end - found.value), found.value * (of - share.value))
            for sign, end, of in ((-1, found.low, share.low), (1, found.high, share.high))
        )
        failures = int((~given).sum())
        found = replace(found, value=value, low=low, high=high, n=len(given))
        return noted(found, f"{failures} of {len(given)} answers failed and count as 0.")


@dataclass(frozen=True)
class VerdictReport(_Labelled):
    r"""What the verdicts themselves tell about a judge, and more where some answers have labels.

    Always: ``judge_mean``; ``consistent``, the share of pairs on which both orders name the same
    answer; ``tie``; ``asked_again``, replies off format for each answer; ``length_correlation`` of
    verdict and length (of a pair: by how much the answer is longer). Without labels a correlation
    with length may be merit. With labels ``length_bias``, the correlation of length with the
    judge's error, tells; and `judge_report` adds its rows where labels are 0 or 1, else there are
    ``bias`` and ``rho_squared``, the squared correlation of label and verdict.

    Parameters
    ----------
    human, label, low, high
        Table, column and scale of human labels, as for `DebiasedMean`.
    gold, judge
        Scores of the outcomes.
    level, draws
        Coverage, and bootstrap resamples of correlations.

    Examples
    --------
    >>> outcomes = Outcomes.of(judge=[1, 0, 1, 1] * 10, consistent=[1, 1, 0, 1] * 10)
    >>> {name: found.value for name, found in VerdictReport().measure(outcomes, Rng(0)).items()}
    {'judge_mean': 0.75, 'consistent': 0.75}
    """

    higher_is_better = None

    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> VerdictReport:
        """Return few resamples."""
        return cls(draws=300)

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 250 answers with a label and 250 without, and what they were drawn with."""
        return _simulated(self, 250, 500, rng)

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return the table."""
        rows, _ = self.judged(in_order(outcomes))
        if not len(rows):
            raise UsageError("VerdictReport: no answer was judged.")
        t, groups = rows.score(self.judge), clusters_of(rows)
        table = {"judge_mean": _average(t, groups, self.level, refuse=False)}
        for name in ("consistent", "tie", "asked_again"):
            column = rows.scores.get(name)
            if column is None or np.isnan(column).all():
                continue
            there = ~np.isnan(column)
            inside = None if groups is None else groups[there]
            table[name] = _average(column[there], inside, self.level, refuse=False)
        length = rows.scores.get("length")
        if length is not None and not np.isnan(length).any():
            table["length_correlation"] = self._correlation(t, length, groups, rng.child("length"))
        s = self.labels_of(rows)
        known = ~np.isnan(s)
        if not known.any():
            return table
        inside = None if groups is None else groups[known]
        if length is not None and not np.isnan(length).any():
            table["length_bias"] = self._correlation(
                t[known] - s[known], length[known], inside, rng.child("length bias")
            )
        return table | self._labelled(s[known], t[known], inside, rng.child("labelled"))

    def _labelled(
        self, s: np.ndarray, t: np.ndarray, groups: np.ndarray | None, rng: Rng
    ) -> dict[str, Estimate]:
        note = f"Only {len(s)} answers have a label." if len(s) < _FEW else ""
        found: dict[str, Estimate]
        try:
            if np.isin(s, (0, 1)).all():
                found = judge_report(
                    s, t, clusters=groups, level=self.level, draws=self.draws, rng=rng
                )
                del found["judge_mean"]  # of the labelled answers alone
                return {name: noted(each, note) for name, each in found.items()}
        except UsageError as error:
            note = " ".join(filter(None, (note, str(error))))
        found = {
            "bias": _average(t - s, groups, self.level, refuse=False),
            "rho_squared": self._correlation(s, t, groups, rng, squared=True),
        }
        return {name: noted(each, note) for name, each in found.items()}

    def _correlation(
        self,
        x: np.ndarray,
        y: np.ndarray,
        groups: np.ndarray | None,
        rng: Rng,
        *,
        squared: bool = False,
    ) -> Estimate:
        def r(x: np.ndarray, y: np.ndarray) -> float:
            x, y = x - x.mean(), y - y.mean()
            spread = float(x @ x) * float(y @ y)
            found = float(x @ y) / math.sqrt(spread) if spread > 1e-18 else math.nan
            return found**2 if squared else found

        try:
            found = resampling.bootstrap(
                r, (x, y), clusters=groups, level=self.level, draws=self.draws, rng=rng
            )
        except UsageError as error:
            return Estimate(r(x, y), level=self.level, n=len(x), note=str(error))
        return enclosing(found)


def _average(
    x: np.ndarray, groups: np.ndarray | None, level: float, *, refuse: bool = True
) -> Estimate:
    method: Callable[..., Estimate] = single.proportion if np.isin(x, (0, 1)).all() else single.mean
    try:
        return method(x, clusters=groups, level=level)
    except UsageError as error:
        if refuse:
            raise
        return Estimate(float(x.mean()), level=level, n=len(x), note=str(error))


def _simulated(
    part: _Labelled, labelled: int, size: int, rng: Rng
) -> tuple[Outcomes, dict[str, float]]:
    draw = rng.numpy()
    s = (draw.random(size) < _JUDGE.b).astype(float)
    t = (draw.random(size) < np.where(s == 1, _JUDGE.p, 1 - _JUDGE.q)).astype(float)
    length = _LONGER * t + draw.normal(size=size)
    consistent = (draw.random(size) < 0.8).astype(float)
    s[labelled:] = np.nan
    b, m, p = _JUDGE.b, _JUDGE.m, _JUDGE.p
    of_t, shared = m * (1 - m), b * (p - m)
    of_length = _LONGER**2 * of_t + 1
    of_error = of_t + b * (1 - b) - 2 * shared
    truth = {
        "judge_mean": m,
        "consistent": 0.8,
        "length_correlation": _LONGER * of_t / math.sqrt(of_t * of_length),
        "length_bias": _LONGER * (of_t - shared) / math.sqrt(of_error * of_length),
        "accuracy": b,
        "bias": _JUDGE.bias,
        "agreement": _JUDGE.agreement,
        "rho_squared": _JUDGE.rho_squared,
    }
    columns = {part.gold: s, part.judge: t, "consistent": consistent, "length": length}
    return Outcomes.of(**columns), truth
