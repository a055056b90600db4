r"""Averages of models that were made from one base: soups.

The subject is the base $\theta_0$; with $\tau_t = \theta_t - \theta_0$ an average of models is
$\theta_0 + \sum_t w_t \tau_t$ with weights that sum to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from equipoise.core import Rng, Task, UsageError, between
from equipoise.methods.merging._merge import Merge, parameters_of

if TYPE_CHECKING:
    from equipoise.kit.torch.merging import Rules, Weights
    from equipoise.methods.merging._sources import Source


@dataclass(frozen=True)
class WeightAverage(Merge):
    r"""Average models entry by entry: the uniform soup.

    $\theta = \theta_0 + \lambda(l) \frac{1}{N} \sum_t (\theta_t - \theta_0)$, with
    $\lambda(l) = \alpha + \beta (l - 1)/(L - 1)$ in block l of L; 1 everywhere is the plain
    average. Integers and the statistics of batch norms are the subject's.

    Parameters
    ----------
    models
        Made from the subject; of its architecture, size and vocabulary. Those in
        folders are read a tensor at a time, others are held in memory.
    updates
        Treatments of the subject that each make one more model.
    alpha
        Factor of the first block and of all outside the blocks.
    beta
        How much larger it is in the last block.
    blocks
        Names of the lists of blocks, where they cannot be told (only a beta needs them).

    References
    ----------
    Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves
    accuracy without increasing inference time", ICML 2022.

    Examples
    --------
    >>> WeightAverage()
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: WeightAverage: models must be one or more subjects, got none;
    updates may name treatments of the subject in their place.
    """

    @classmethod
    def tiny(cls) -> Self:
        return cls(updates=cls.tiny_updates())

    @classmethod
    def null(cls) -> Self:
        return cls(updates=cls.tiny_updates(), alpha=0.0)

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        from equipoise.kit.torch.merge_rules import average

        return average


@dataclass(frozen=True)
class RewardedSoup(Merge):
    r"""Average models by weights: policies trained for several rewards, one preference over them.

    $\theta = \theta_0 + \lambda(l) \sum_t w_t (\theta_t - \theta_0)$. Sweep the weights for the
    front of what the rewards allow.

    Parameters
    ----------
    models
        Made from the subject, one a reward; of its architecture, size and
        vocabulary. Those in folders are read a tensor at a time.
    updates
        Treatments of the subject that each make one more model.
    alpha
        Factor of the first block and of all outside the blocks.
    beta
        How much larger it is in the last block.
    blocks
        Names of the lists of blocks, where they cannot be told (only a beta needs them).
    weights
        One a model, then one an update, each in [0, 1]; they sum to 1.

    References
    ----------
    Ramé et al., "Rewarded soups: towards Pareto-optimal alignment by interpolating weights
    fine-tuned on diverse rewards", NeurIPS 2023.

    Examples
    --------
    >>> RewardedSoup(updates=RewardedSoup.tiny_updates(), weights=(0.5, 0.4))
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: RewardedSoup: weights must sum to 1, got 0.9.
    """

    weights: tuple[float, ...] = between(0.0, 1.0, default=())

    def check(self) -> None:
        super().check()
        count = len(self.models) + len(self.updates)
        if len(self.weights) != count:
            raise UsageError(
                f"RewardedSoup: weights must be one a model, {count}, got {len(self.weights)}."
            )
        if abs(sum(self.weights) - 1) > 1e-6:
            raise UsageError(f"RewardedSoup: weights must sum to 1, got {sum(self.weights):g}.")

    @classmethod
    def tiny(cls) -> Self:
        return cls(updates=cls.tiny_updates(), weights=(0.25, 0.75))

    @classmethod
    def null(cls) -> Self:
        return cls(updates=cls.tiny_updates(), weights=(0.25, 0.75), alpha=0.0)

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        from equipoise.kit.torch.merge_rules import weighted

        return weighted(self.weights)


@dataclass(frozen=True)
class ModelSoup(Merge):
    r"""Average the models that help each other: the greedy soup.

    Models are tried in the order of their own score on calibration units; each
    stays in the average if that does not score worse with it. `WeightAverage`
    is the uniform soup.

    Parameters
    ----------
    models
        Made from the subject, such as runs of one training with several
        settings; of its architecture, size and vocabulary. Those in folders are
        read a tensor at a time.
    updates
        Treatments of the subject that each make one more model.
    alpha
        Factor of the first block and of all outside the blocks, in what comes of it.
    beta
        How much larger it is in the last block.
    blocks
        Names of the lists of blocks, where they cannot be told (only a beta needs them).
    by
        Task whose calibration units tell; its first score counts.

    References
    ----------
    Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves
    accuracy without increasing inference time", ICML 2022.

    Examples
    --------
    >>> ModelSoup(updates=ModelSoup.tiny_updates())
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: ModelSoup: by must be a task to choose models by, got None.
    """

    by: Task | None = None

    def check(self) -> None:
        super().check()
        if self.by is None:
            raise UsageError("ModelSoup: by must be a task to choose models by, got None.")
        if self.by.scores[0].higher_is_better is None:
            raise UsageError("ModelSoup: by must be a task whose first score has a better side.")

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.merging.digit_domains import DigitDomains

        return cls(updates=cls.tiny_updates(), by=DigitDomains.tiny())

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        from equipoise.kit.torch.merge_rules import average

        return average

    def merge(self, subject: Any, sources: Sequence[Source], rng: Rng) -> Any:
        from equipoise.kit.about import annotate
        from equipoise.kit.progress import report
        from equipoise.kit.torch.merge_rules import average
        from equipoise.kit.torch.merging import merged
        from equipoise.kit.validation import validation_score
        from equipoise.methods.merging._merge import with_weights

        task = self.by
        assert task is not None  # checked when built
        sign = -1.0 if task.scores[0].higher_is_better is False else 1.0
        own = [sign * validation_score(each.subject(subject), task, rng) for each in sources]
        order = sorted(range(len(sources)), key=lambda place: -own[place])
        base = parameters_of(subject)
        chosen, best = [order[0]], own[order[0]]
        for done, place in enumerate(order[1:], start=1):
            weights = [sources[each].weights for each in (*chosen, place)]
            live = with_weights(subject, merged(base, weights, average, names=list(base)))
            score = sign * validation_score(live, task, rng)
            if score >= best:
                chosen, best = [*chosen, place], score
            report(f"choosing models, {len(chosen)} in the soup", done, len(order) - 1)
        made = super().merge(subject, [sources[place] for place in chosen], rng)
        numbers = ", ".join(str(place + 1) for place in chosen)
        return annotate(made, notes=[f"Of {len(sources)} models the soup holds {numbers}."])
