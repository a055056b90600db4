r"""How much one preference of a fitted model moves when another is nudged.

A model that keeps a score an option says $p_{ij} = g(s_i - s_j)$ of every pair, also of those that
no one compared: from $x = p_{kj}$ and $y = p_{ik}$,

.. math:: p_{ij} = g(g^{-1}(x) + g^{-1}(y)), \qquad
          S = \frac{\partial p_{ij}}{\partial p_{ik}}
            = \frac{g'(g^{-1}(x) + g^{-1}(y))}{g'(g^{-1}(y))}.

Where both given preferences are dominant (near 0 or 1) and point in opposite directions, S has no
upper limit: a labelling change of one per cent turns the implied preference over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    Series,
    between,
)
from equipoise.kit.statistics._common import critical, join
from equipoise.kit.statistics.columns import clusters_of, complete, rows_of
from equipoise.methods.alignment._preference_columns import columns_of
from equipoise.methods.alignment._preference_links import (
    Link,
    implied_preference,
    sensitive_bound,
    sensitive_region_area,
    sensitivity,
)
from equipoise.methods.alignment._preference_models import (
    fit_rankings,
    ranking_gradients,
    ranking_probabilities,
    ranking_sensitivity,
    tuple_region_areas,
)
from equipoise.methods.alignment._preference_triples import (
    FragileTriple,
    FragileTriples,
    fragile_triples,
)

__all__ = [
    "FragileTriple",
    "FragileTriples",
    "Link",
    "PreferenceSensitivity",
    "fit_rankings",
    "fragile_triples",
    "implied_preference",
    "ranking_gradients",
    "ranking_probabilities",
    "ranking_sensitivity",
    "sensitive_bound",
    "sensitive_region_area",
    "sensitivity",
    "tuple_region_areas",
]


@dataclass(frozen=True)
class PreferenceSensitivity(Measure):
    r"""Name a preference data set's fragile triples: what it implies and a few labels would turn.

    A triple is options i and j and a k that both were compared with. Bradley-Terry is fitted to all
    labels, and $S = \partial p_{ij} / \partial p_{ik}$ taken at the fitted probabilities, of the
    two pairs the one that moves $p_{ij}$ more; its interval is by the delta method on the log
    scale. Other labels may hold $p_{ij}$: ``influence`` is how far the refitted $p_{ij}$ moves by
    the share of the pair's labels that change, which is S where nothing else is known. A triple is
    fragile where both are above ``least``; the one of the largest influence comes first. The plain
    function is `fragile_triples`. The table's first row counts them. Of many triples the worst is
    chosen, and looks worse than it is: give ``triple`` to ask about one, which a claim can be
    about.

    Details: ``preference`` ($p_{ij}$), ``moved`` ($p_{ik}$), ``held`` ($p_{kj}$), ``influence``,
    ``after`` ($p_{ij}$ once ``change`` of the moved pair's labels went to its weaker side),
    ``moved_labels``, ``held_labels``, ``direct_labels`` (of i and j) and ``weak_labels``, those of
    the moved pair's weaker side.

    Parameters
    ----------
    least
        M: how many times as far as the labels the implied preference must move.
    change
        Share of a pair's labels that change.
    prior
        Ties with an average option that each option is imagined to have had; keeps scores finite.
    top
        Triples in the table.
    triple
        Names of i, j and k, to ask about one.
    level
        Coverage the intervals aim for.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025.

    Examples
    --------
    >>> outcomes, truth = PreferenceSensitivity().simulate(Rng(0))
    >>> for name, found in PreferenceSensitivity().measure(outcomes, Rng(0)).items():
    ...     print(name, found.value.__round__(1))
    fragile triples 1.0
    a over c, from a over b 6.7
    """

    higher_is_better = False

    least: float = between(1.0, 1e6, default=2.0)
    change: float = between(0.0, 1.0, default=0.01)
    prior: float = between(0.0, 1e6, default=0.1)
    top: int = between(1, 10_000, default=10)
    triple: tuple[str, str, str] | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, dict[str, float]]:
        """Return labels of two pairs out of three options, and the sensitivity they come from."""
        y, x, labels = 0.02, 0.9, 3000
        share = rng.numpy().binomial(labels, [y, x]) / labels
        rows = rows_of(
            {"preferred": share, "labels": [labels] * 2, "first": [0, 1], "second": [1, 2]}
        )
        rows = replace(rows, stratum=np.arange(2), strata=("a | b", "b | c"))
        return rows, {"a over c, from a over b": float(sensitivity(x, y))}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate | Mapping[str, Estimate]:
        """Return the table, or the one triple's sensitivity; ``rng`` is not used."""
        found = self._found(outcomes)
        if self.triple is not None:
            return self._estimate(found.triples[0], found)
        table = {
            "fragile triples": Estimate(
                float(found.fragile), n=found.labels, level=self.level, method="count",
                note=join(found.notes),
                details={"triples": float(found.count), "in_region": float(found.sensitive)},
            )
        }  # fmt: skip
        for each in found.triples:
            table[each.name] = self._estimate(each, found)
        return table

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the region with the fragile triples of each arm in it."""
        series = []
        for arm, each in outcomes.items():
            found = replace(self, top=200, change=0.0, triple=None)._found(each)
            spots = sorted((t.held, t.moved) for t in found.triples)
            if spots:
                x, y = np.array(spots).T
                series.append(Series(arm, x.tolist(), y.tolist(), look="points"))
        edge = self.least / (1 + self.least)
        for name, across in (
            (f"S = {self.least:g}", np.linspace(edge, 1, 101)[1:]),
            (f"S = {self.least:g}, mirrored", np.linspace(0, 1 - edge, 101)[:-1]),
        ):
            bound = sensitive_bound(across, self.least)
            series.append(Series(name, across.tolist(), bound.tolist(), look="guide"))
        return Figure(
            "Where small changes are amplified",
            "held preference, p(k over j)",
            "moved preference, p(i over k)",
            series,
            "In the corners beyond the dashed lines both preferences are strong and opposite: what"
            f" they imply of i over j moves more than {self.least:g} times as far as they do.",
        )

    def _found(self, outcomes: Outcomes) -> FragileTriples:
        rows, note = complete(
            "PreferenceSensitivity", outcomes, "preferred", "labels", "first", "second"
        )
        names, columns = columns_of(rows)
        found = fragile_triples(
            columns,
            names=names,
            clusters=clusters_of(rows),
            least=self.least,
            change=self.change,
            prior=self.prior,
            top=self.top,
            triple=self.triple,
        )
        return replace(found, notes=(*found.notes, *filter(None, [note])))

    def _estimate(self, each: FragileTriple, found: FragileTriples) -> Estimate:
        reach = math.exp(min(critical(self.level, found.df) * each.log_se, 700.0))
        few = f"The weaker side of its pair has {each.weak_labels:.3g} labels." * (
            each.weak_labels < 5
        )
        return Estimate(
            each.sensitivity,
            each.sensitivity / reach,
            each.sensitivity * reach,
            self.level,
            n=found.labels,
            clusters=found.clusters,
            method="delta method, log scale",
            note=join(filter(None, [few, *(found.notes if self.triple else ())])),
            details=each.details(),
        )
