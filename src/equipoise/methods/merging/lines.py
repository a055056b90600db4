r"""LiNeS: an update is scaled by depth, little in the first layer and fully in the last.

Fine-tuning takes $\theta_0$ to $\theta_t$; $\tau = \theta_t - \theta_0$ is the update. Shallow
layers hold what many tasks share, so their part of the update costs other tasks
most and helps its own least:

$$\theta = \theta_0 + \lambda(l)\, \tau, \qquad \lambda(l) = \alpha + \beta \frac{l - 1}{L - 1}$$

in block l of L; parameters outside the blocks (embeddings, final norm, head)
take $\alpha$. `WiseFT` is the case without growth. Merges of several models take
the same $\alpha$ and $\beta$ as parameters of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    Capability,
    HasModule,
    Rng,
    Subject,
    Task,
    Treatment,
    UsageError,
    between,
)
from equipoise.methods.merging._merge import OWN, Merge, named, parameters_of, with_weights

_GRID = tuple(round(1 - 0.1 * step, 1) for step in range(11))


def select_scale(
    target: npt.ArrayLike, control: npt.ArrayLike, *, weight: float = 2.0, keep: float = 0.0
) -> int:
    r"""Return which setting is best on validation data, by the paper's rule.

    It has the largest $w\, a + \frac{1}{K} \sum_k b_k$, with a the share of the
    fine-tuned model's target score and $b_k$ those of the base's control scores.

    Parameters
    ----------
    target
        Shares of the target score, ``(settings,)``.
    control
        Shares of control scores, ``(settings, controls)``.
    weight
        $w$; 2 in the paper's code.
    keep
        Least target share; settings below it are out, and where all are, the
        one with the largest target share is returned.

    Examples
    --------
    >>> select_scale([1.0, 0.99, 0.9], [[0.5, 0.3], [0.9, 0.7], [1.0, 0.8]])
    1
    """
    a, b = np.asarray(target, float), np.asarray(control, float)
    if a.ndim != 1 or b.ndim != 2 or len(a) != len(b) or not b.size:
        raise UsageError(
            f"select_scale: control must be (settings, controls) for {a.shape} target shares,"
            f" got {b.shape}."
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise UsageError("select_scale: shares must be finite numbers.")
    if (a < keep).all():
        return int(a.argmax())
    return int(np.where(a >= keep, weight * a + b.mean(axis=1), -np.inf).argmax())


@dataclass(frozen=True)
class _Scaled(Treatment):
    """Scales the change from a base to the subject; its scale may be chosen."""

    base: Subject
    alpha: float | None = between(-10.0, 10.0, default=None)
    target: Task | None = None
    control: tuple[Task, ...] = ()
    weight: float = between(0.0, 1_000.0, default=2.0)
    keep: float = between(0.0, 1.0, default=0.0)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    edits: ClassVar[frozenset[str]] = OWN

    def check(self) -> None:
        if self.alpha is None and (self.target is None or not self.control):
            raise UsageError(
                f"{type(self).__name__}: alpha must be a number, or target and control must name"
                " tasks to choose it by, got neither."
            )

    @classmethod
    def tiny_subject(cls) -> Any:
        control = Merge.tiny_subject()
        return Merge.tiny_updates()[0].apply(control, Rng(0))

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.merging.digit_domains import DigitNetwork

        return cls(DigitNetwork.tiny(), alpha=0.3)

    @abstractmethod
    def factors(self, module: Any, alpha: float) -> dict[str, float]:
        """Return the factor of every parameter."""

    def apply(self, subject: Any, rng: Rng) -> Any:
        from equipoise.kit.torch.merge_rules import total
        from equipoise.kit.torch.merging import merged_update
        from equipoise.methods.merging._sources import from_part

        with named(self):
            source = from_part(self.base, subject, rng.child("base"), "the base")
            base, own = source.weights, parameters_of(subject)
            update = merged_update(base, [own], total, names=list(own))
            if self.alpha is not None:
                return self.edited(subject, base, update, self.alpha)
            return self.chosen(subject, source.subject(subject), base, update, rng)

    def edited(self, subject: Any, base: Any, update: Any, alpha: float) -> Any:
        """Return the base with the update scaled by ``alpha``."""
        from equipoise.kit.torch.merging import scaled

        factors = self.factors(subject.module, alpha)
        return with_weights(subject, scaled(base, update, factors))

    def chosen(self, subject: Any, bare: Any, base: Any, update: Any, rng: Rng) -> Any:
        """Return the edit whose alpha is best on calibration units."""
        from equipoise.kit.about import annotate
        from equipoise.kit.progress import report
        from equipoise.kit.validation import validation_score

        assert self.target is not None  # checked when built
        tuned = validation_score(subject, self.target, rng)
        zero_shot = [validation_score(bare, task, rng) for task in self.control]
        if min(tuned, *zero_shot) <= 0:
            raise UsageError("a task that the reference scores nothing on gives no share of it.")
        target: list[float] = []
        control: list[list[float]] = []
        for done, alpha in enumerate(_GRID, start=1):
            live = self.edited(subject, base, update, alpha)
            target.append(validation_score(live, self.target, rng) / tuned)
            scores = [validation_score(live, task, rng) for task in self.control]
            control.append([s / z for s, z in zip(scores, zero_shot, strict=True)])
            report(f"choosing alpha, target share {target[-1]:.3f}", done, len(_GRID))
        best = select_scale(target, control, weight=self.weight, keep=self.keep)
        means = np.mean(control, axis=1)
        note = (
            f"alpha = {_GRID[best]:g} was chosen on calibration units (target share"
            f" {target[best]:.3f}, control share {means[best]:.3f})."
        )
        curves = {
            "target share by alpha": list(zip(_GRID, target, strict=True)),
            "control share by alpha": list(zip(_GRID, means.tolist(), strict=True)),
        }
        return annotate(
            self.edited(subject, base, update, _GRID[best]), notes=[note], curves=curves
        )


@dataclass(frozen=True)
class LayerScaledUpdate(_Scaled):
    r"""Give a fine-tuned or merged model back what it forgot: scale its change by depth.

    The subject is the changed model $\theta_t$, and the result

    $$\theta_0 + \lambda(l)\, (\theta_t - \theta_0), \qquad
    \lambda(l) = \alpha + \beta \frac{l - 1}{L - 1}$$

    in block l of L, with $\lambda = \alpha$ outside the blocks. With ``beta`` None it
    is $1 - \alpha$, so that the last block keeps its whole change; ``alpha`` None
    chooses from 1, 0.9, ..., 0 by the paper's rule on calibration units: the largest
    weighted sum of the subject's target score that is kept and the base's control
    scores that are restored. Integers and the statistics of batch norms are the
    subject's; tied weights are scaled once.

    Parameters
    ----------
    base
        The model that the subject was made from; of its architecture, size
        and vocabulary.
    alpha
        Factor of the first block and of all outside the blocks.
    target
        Task the change was for, to choose alpha by.
    control
        Tasks that should not suffer, to choose alpha by.
    weight
        How much the target share counts against the mean control share.
    keep
        Least share of the subject's target score; settings below it are out.
    beta
        How much larger the factor is in the last block.
    from_last
        Count blocks from the last one, so that the first keeps its whole change: the
        counter-test.
    blocks
        Names of the lists of blocks, where they cannot be told; several are
        numbered on, as for an encoder and a decoder.

    References
    ----------
    "LiNeS: Post-training Layer Scaling Prevents Forgetting and Enhances Model
    Merging", ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.merging.digit_domains import DigitNetwork, FineTuneDigits
    >>> base = DigitNetwork.tiny()
    >>> control = base.load(Rng(0))
    >>> tuned = FineTuneDigits("rotated", steps=3).apply(control, Rng(0))
    >>> edited = LayerScaledUpdate(base, alpha=0.0).apply(tuned, Rng(0))
    >>> same = lambda name: bool((edited.module.get_parameter(name)
    ...     == control.module.get_parameter(name)).all())
    >>> same("embed.weight"), same("blocks.0.up.weight"), same("blocks.1.up.weight")
    (True, True, False)
    """

    beta: float | None = between(-10.0, 10.0, default=None)
    from_last: bool = False
    blocks: tuple[str, ...] = ()

    @classmethod
    def null(cls) -> Self:
        from equipoise.methods.merging.digit_domains import DigitNetwork

        return cls(DigitNetwork.tiny(), alpha=1.0)

    def factors(self, module: Any, alpha: float) -> dict[str, float]:
        from equipoise.kit.torch.layers import layer_factors

        beta = 1.0 - alpha if self.beta is None else self.beta
        return layer_factors(module, alpha, beta, self.blocks, from_last=self.from_last)


@dataclass(frozen=True)
class WiseFT(_Scaled):
    r"""Interpolate between a base and the subject made from it: $\theta_0 + \alpha\, \tau$.

    The subject is the fine-tuned model; ``alpha`` None chooses from 1, 0.9,
    ..., 0 by `select_scale` on calibration units.

    Parameters
    ----------
    base
        The model that the subject was made from; of its architecture, size
        and vocabulary.
    alpha
        Share of the change that stays: 1 is the subject, 0 the base.
    target
        Task the change was for, to choose alpha by.
    control
        Tasks that should not suffer, to choose alpha by.
    weight
        How much the target share counts against the mean control share.
    keep
        Least share of the subject's target score; settings below it are out.

    References
    ----------
    Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022.

    Examples
    --------
    >>> from equipoise.methods.merging.digit_domains import DigitNetwork
    >>> WiseFT(DigitNetwork.tiny())
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: WiseFT: alpha must be a number, or target and control must
    name tasks to choose it by, got neither.
    """

    @classmethod
    def null(cls) -> Self:
        from equipoise.methods.merging.digit_domains import DigitNetwork

        return cls(DigitNetwork.tiny(), alpha=1.0)

    def factors(self, module: Any, alpha: float) -> dict[str, float]:
        return {name: alpha for name, _ in module.named_parameters()}
