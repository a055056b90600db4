r"""Merging models of several tasks by arithmetic on their task vectors.

The subject is the base $\theta_0$; $\tau_t = \theta_t - \theta_0$ is task t's vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

from equipoise.core import between, one_of
from equipoise.methods.merging._merge import TunedMerge

if TYPE_CHECKING:
    from equipoise.kit.torch.merging import Rules, Weights


@dataclass(frozen=True)
class TaskArithmetic(TunedMerge):
    r"""Add up what several models have learned: $\theta = \theta_0 + \lambda(l) \sum_t \tau_t$.

    With ``beta`` 0 that is task arithmetic, scaled alike in all layers by
    ``alpha``. With ``alpha`` 1, ``match_norm`` and a ``beta`` it is LiNeS, which
    begins at $1/N$ and grows with depth: $\lambda(l) = \alpha + \beta (l - 1)/(L - 1)$.
    A negative scale takes away what a model has learned.

    Parameters
    ----------
    models
        Made from the subject, one a task; of its architecture, size and
        vocabulary. Those in folders are read a tensor at a time.
    updates
        Treatments of the subject that each make one more model.
    alpha
        Factor of the first block and of all outside the blocks.
    beta
        How much larger it is in the last block.
    blocks
        Names of the lists of blocks, where they cannot be told (only a beta needs them).
    match_norm
        Multiply alpha by $\frac{1}{N} \|\sum_t \tau_t\|_1 / \|\tau\|_1$, which is LiNeS'
        choice: 1 / N, so that with alpha 1 merging begins as an average.
    search
        Choose ``alpha`` or ``beta`` from 0.1, 0.2, ..., 1, by the mean over tasks of
        the merged model's calibration score as a share of the task's own model's.
    tasks
        One a model, then one an update, for the search.

    References
    ----------
    Ilharco et al., "Editing models with task arithmetic", ICLR 2023.

    Examples
    --------
    >>> TaskArithmetic(updates=TaskArithmetic.tiny_updates(), search="alpha")
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: TaskArithmetic: tasks must be one a model, 2, to choose alpha
    by, got 0.
    """

    alpha: float = between(-10.0, 10.0, default=0.4)

    @classmethod
    def tiny(cls) -> Self:
        return cls(updates=cls.tiny_updates(), alpha=1.0, beta=0.5, match_norm=True)

    @classmethod
    def null(cls) -> Self:
        return cls(updates=cls.tiny_updates(), alpha=0.0)

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        from equipoise.kit.torch.merge_rules import total

        return total


@dataclass(frozen=True)
class Ties(TunedMerge):
    r"""Merge without quarrels over signs: trim, elect a sign for each entry, join what agrees.

    Each task vector keeps its largest entries; an entry's sign is that of
    their sum; its value is the mean (or sum) of those that have this sign.
    $\theta = \theta_0 + \lambda(l)\, \tau$, with $\lambda(l) = \alpha + \beta (l - 1)/(L - 1)$.

    Parameters
    ----------
    models
        Made from the subject, one a task; of its architecture, size and
        vocabulary. Those in folders are read a tensor at a time.
    updates
        Treatments of the subject that each make one more model.
    alpha
        Factor of the first block and of all outside the blocks.
    beta
        How much larger it is in the last block.
    blocks
        Names of the lists of blocks, where they cannot be told (only a beta needs them).
    match_norm
        Multiply alpha by $\frac{1}{N} \|\sum_t \tau_t\|_1 / \|\tau\|_1$, which is LiNeS'
        choice.
    search
        Choose ``alpha`` or ``beta`` from 0.1, 0.2, ..., 1.5, by the mean over tasks of
        the merged model's calibration score as a share of the task's own model's.
    tasks
        One a model, then one an update, for the search.
    density
        Share of its entries that each task vector keeps.
    trim
        ``whole``: the largest of all its entries; ``tensor``: of each tensor.
    combine
        ``mean`` or ``sum`` of the entries that agree.

    References
    ----------
    Yadav et al., "TIES-Merging: Resolving Interference When Merging Models", NeurIPS 2023.

    Examples
    --------
    >>> Ties(updates=Ties.tiny_updates(), density=0.0)
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: Ties: density must be a number from 1e-06 to 1, got 0.0.
    """

    density: float = between(1e-6, 1.0, default=0.2)
    trim: str = one_of("whole", "tensor", default="whole")
    combine: str = one_of("mean", "sum", default="mean")

    most: ClassVar[float] = 1.5

    @classmethod
    def tiny(cls) -> Self:
        return cls(updates=cls.tiny_updates())

    @classmethod
    def null(cls) -> Self:
        return cls(updates=cls.tiny_updates(), alpha=0.0)

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        from equipoise.kit.torch.merge_rules import ties
        from equipoise.kit.torch.merging import trim_thresholds

        found = trim_thresholds(
            base, models, self.density, names=list(base), by_tensor=self.trim == "tensor"
        )
        return {
            name: partial(ties, thresholds=least, combine=self.combine)
            for name, least in found.items()
        }


@dataclass(frozen=True)
class Consensus(TunedMerge):
    r"""Merge only what several models have a use for: TALL masks.

    Model t's mask is $|\tau_t| > \mu\, |\sum_s \tau_s - \tau_t|$. An entry of $\sum_t \tau_t$
    stays where enough masks hold it, so that what one model alone needs, and
    what none does, goes: $\theta = \theta_0 + \lambda(l)\, \tau$.

    Parameters
    ----------
    models
        Made from the subject, one a task; of its architecture, size and
        vocabulary. Those in folders are read a tensor at a time.
    updates
        Treatments of the subject that each make one more model.
    alpha
        Factor of the first block and of all outside the blocks.
    beta
        How much larger it is in the last block.
    blocks
        Names of the lists of blocks, where they cannot be told (only a beta needs them).
    match_norm
        Multiply alpha by $\frac{1}{N} \|\sum_t \tau_t\|_1 / \|\tau\|_1$, which is LiNeS'
        choice.
    search
        Choose ``alpha`` or ``beta`` from 0.1, 0.2, ..., 1, by the mean over tasks of
        the merged model's calibration score as a share of the task's own model's.
    tasks
        One a model, then one an update, for the search.
    threshold
        $\mu$; the paper tries 0.2 to 0.6.
    least
        Masks that must hold an entry; 0 is task arithmetic.

    References
    ----------
    Wang et al., "Localizing Task Information for Improved Model Merging and
    Compression", ICML 2024.

    Examples
    --------
    >>> Consensus(updates=Consensus.tiny_updates(), least=3).least
    3
    """

    alpha: float = between(-10.0, 10.0, default=0.4)
    threshold: float = between(0.0, 10.0, default=0.4)
    least: int = between(0, 1_000, default=2)

    @classmethod
    def tiny(cls) -> Self:
        return cls(updates=cls.tiny_updates())

    @classmethod
    def null(cls) -> Self:
        return cls(updates=cls.tiny_updates(), alpha=0.0)

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        from equipoise.kit.torch.merge_rules import consensus

        return partial(consensus, threshold=self.threshold, least=self.least)
