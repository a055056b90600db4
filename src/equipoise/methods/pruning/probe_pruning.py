r"""Probe Pruning: each batch is pruned for itself, by what a small probe of it shows.

For every attention or feed-forward part, while the model runs: (1) *probe*: the samples and
tokens with the largest residual norms run through the part unpruned, up to the input of its
last linear layer; (2) *history-informed*: the squared activations a of the probe are fused
with V, those of calibration text and of batches before; (3) *prune*: units are scored by the
fused energy and the weights, and the batch runs on the slices that stay. Nothing is trained,
and the whole model stays in memory: what is saved is time, not space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    HasModule,
    Rng,
    Treatment,
    between,
    one_of,
    setting,
)
from equipoise.kit.data import content_hash
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.copies import copy_module
from equipoise.methods.pruning._moments import moments_of
from equipoise.methods.pruning._online import Probing, probe_module
from equipoise.methods.pruning._plan import plan


@dataclass(frozen=True)
class ProbePruning(Treatment):
    r"""Choose for each batch which channels or heads it needs, from a probe of the batch.

    With P, shape (n, m, C), what the probe of n samples and m tokens makes of the input of
    the linear layer W, and V, shape (S, C), the history at these tokens,

    $$a = \tfrac1n \sum_n P_{nsk}^2, \quad \rho = \frac{a}{a + V + 10^{-6}}, \quad
    e_k = \sum_s \rho a + (1 - \rho) V, \quad I_k = e_k \Big(\sum_i W_{ik}^4\Big)^{1/2},$$

    and the units with the lowest $I_k$ (for heads, its 2-norm over their channels) are left
    out of this batch: see `fuse`, `ppsp_scores` and `select_probe`. At the units that ran,
    $V \leftarrow \mu V + (1 - \mu) \sum_n X_{nsk}^2 / N$.

    What runs together is pruned together, so that an answer depends on its company. Here a
    batch is what a task says it is (`batch_perplexity`: a unit is a batch, or a stream of
    them). For every other task each sequence is a batch of its own and runs alone, so that
    neither order nor batch size changes a result; half of it is then the probe, which costs
    time. V moves inside a stream of batches and nowhere else, and each stream begins with V as
    calibrated.

    The probe sees what goes into the part at hand (the paper's synchronous form). A prompt is
    pruned like any text, and tokens generated after it from the cache keep its units; the
    paper shows no decoding. Padding is never chosen, seen or counted. Positions beyond those
    calibrated on take V of the last one. Where heads share keys and values, only query and
    output are cut; softmax is computed for all heads.

    Parameters
    ----------
    ratio
        Share of the units of the whole model to leave out, from 0 to 0.99; blocks that are
        pruned lose more, to make up for those spared: see `raised_ratio`.
    prune
        ``channels`` of feed-forward parts, attention ``heads``, or ``both``.
    probe_samples, probe_tokens
        Shares of the samples and of the tokens that are the probe, rounded up.
    full_batch
        Whether the whole batch is the probe and V is left out: the most that probing can
        know, at the cost of running the batch nearly twice.
    fusion
        ``scaled`` as above; ``fixed`` takes $e = \sum_s w a + (1 - w) V$; ``none`` leaves V out.
    probe_weight
        Weight w of the probe under ``fixed``.
    momentum
        $\mu$; 1 keeps V as calibrated.
    multiple
        Kept channels are rounded up to a multiple of it, for the sake of the processor.
    spared
        How many of the first blocks stay whole.
    calibration
        Text to learn V from. It must not be what a task tests on.
    samples, length
        Windows of calibration text, and tokens in each: the positions V knows.

    References
    ----------
    "Probe Pruning: Accelerating LLMs through Dynamic Pruning via Model-Probing", ICLR 2025.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> from equipoise.methods.pruning import kept_units
    >>> part = ProbePruning(0.5, spared=0, samples=2, length=32)
    >>> treated = part.apply(tiny_model(), Rng(0))
    >>> kept = []
    >>> for text in ("red", "the quick brown fox"):
    ...     _ = treated.log_likelihood([(text, " again")])
    ...     kept.append(set(kept_units(treated.module)["channels_0"][0].tolist()))
    >>> [len(each) for each in kept], kept[0] == kept[1]
    ([32, 32], False)
    """

    ratio: float = between(0.0, 0.99, default=0.4)
    prune: str = one_of("channels", "heads", "both", default="channels")
    probe_samples: float = between(1e-6, 1.0, default=0.05)
    probe_tokens: float = between(1e-6, 1.0, default=0.5)
    full_batch: bool = False
    fusion: str = one_of("scaled", "fixed", "none", default="scaled")
    probe_weight: float = between(0.0, 1.0, default=0.5)
    momentum: float = between(0.0, 1.0, default=0.99)
    multiple: int = between(1, 4096, default=8)
    spared: int = between(0, 1000, default=3)
    calibration: str = setting("builtin:python_topics")
    samples: int = between(1, 100_000, default=64)
    length: int = between(2, 1_000_000, default=128)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True
    edits: ClassVar[frozenset[str]] = frozenset({"linear layers", "attention"})
    replaces: ClassVar[frozenset[str]] = frozenset({"linear layers", "attention"})

    @classmethod
    def tiny(cls) -> Self:
        return cls(spared=0, samples=2, length=32)

    @classmethod
    def null(cls) -> Self:
        return cls(ratio=0.0, spared=0)

    def content(self) -> Any:
        return content_hash(self.calibration) if self.probing().remembers else None

    def apply(self, subject: Any, rng: Rng) -> Any:
        module = subject.module
        _, pieces = plan(module, self.ratio, self.prune, multiple=self.multiple, spared=self.spared)
        if not pieces:
            return subject.with_module(copy_module(module))
        histories = {}
        if self.probing().remembers:
            windows = calibration_batches(
                subject,
                self.calibration,
                rng.child("calibration"),
                samples=self.samples,
                length=self.length,
            )
            found = moments_of(module, [piece.output for piece in pieces], windows)
            histories = {name: moments.square for name, moments in found.items()}
        made = probe_module(module, pieces, self.probing(), histories)
        return _alone(subject.with_module(made))

    def skeleton(self, subject: Any) -> Any:
        module = subject.module
        _, pieces = plan(module, self.ratio, self.prune, multiple=self.multiple, spared=self.spared)
        if not pieces:
            return subject.with_module(copy_module(module))
        made = probe_module(module, pieces, self.probing(), length=self.length)
        return _alone(subject.with_module(made))

    def probing(self) -> Probing:
        """Return how the probe is chosen, for `probe_module`."""
        if self.full_batch:
            return Probing(1.0, 1.0, "none")
        return Probing(
            self.probe_samples, self.probe_tokens, self.fusion, self.probe_weight, self.momentum
        )


def _alone(subject: Any) -> Any:
    """Have a new subject run each sequence alone, unless a task asks for batches.

    A subject made by ``with_module`` is new down to the model, whatever is wrapped around it.
    """
    inner = subject
    while hasattr(inner, "subject"):
        inner = inner.subject
    if hasattr(inner, "batch_size"):
        inner.batch_size = 1
    return subject
