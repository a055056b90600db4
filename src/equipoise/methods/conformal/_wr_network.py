r"""The network of the paper, and learning with or without the Wasserstein penalty."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.core import Rng, Split, Unit, UsageError
from equipoise.kit.about import annotate
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.kit.progress import report
from equipoise.kit.torch.threads import one_thread
from equipoise.methods.conformal._wr_distances import wasserstein_1_torch
from equipoise.methods.conformal._wr_weights import (
    MOST_FEATURES,
    effective_sample_size,
    kernel_density_weights,
    select_bandwidth,
)

_EVERY = 100  # steps between two reports

Rows = tuple[np.ndarray, np.ndarray]


def tanh_network(features: int, outputs: int, hidden: int, dropout: float) -> nn.Module:
    """Return features-hidden-hidden-outputs with tanh and dropout, drawn as Xavier says."""
    linear = [nn.Linear(features, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
    for each in linear:
        nn.init.xavier_uniform_(each.weight)
        nn.init.zeros_(each.bias)
    gates = [nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(linear[0], *gates, linear[1], *map(copy.deepcopy, gates), linear[2])


@dataclass(frozen=True)
class Penalty:
    """What Wasserstein-regularized training adds: see `WassersteinRegularizedTraining`."""

    beta: float
    anneal: int
    anchor: Split
    cap: float


@dataclass(frozen=True)
class Recipe:
    """How a network learns: by Adam on all rows at once."""

    make: Callable[[int], nn.Module]
    steps: int = 3000
    rate: float = 1e-3
    decay: float = 1e-3
    levels: tuple[float, ...] = ()
    standardize: bool = True
    penalty: Penalty | None = None


class Learner:
    """A network that has yet to learn; `fit` gives one that predicts."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        anchored = recipe.penalty is not None and recipe.penalty.anchor == "calibration"
        self.learns_from: tuple[Split, ...] = ("train", "calibration") if anchored else ("train",)

    def regularized(self, penalty: Penalty) -> Learner:
        """Return the same network, to learn with the penalty."""
        return type(self)(replace(self.recipe, penalty=penalty))

    def fit(self, data: Iterable[Unit] | Examples, rng: Rng) -> Network:
        """Return a network that has learned; groups of rows are the source domains."""
        found = examples(data).of(*self.learns_from)
        with torch.random.fork_rng(devices=[]), one_thread():  # layers and dropout draw globally
            torch.manual_seed(rng.child("weights").seed_for_request())
            return _fit(self.recipe, found)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        raise UsageError(
            "The network has not been trained; use the treatment train, or a task that trains."
        )


class QuantileLearner(Learner):
    """A network for quantiles that has yet to learn."""

    def predict_quantiles(self, inputs: np.ndarray, levels: Sequence[float]) -> np.ndarray:
        return self.predict(inputs)


class Network(Learner):
    """A trained network; dropout is off when it predicts."""

    tokenizer = None

    def __init__(
        self,
        recipe: Recipe,
        module: nn.Module,
        scales: tuple[np.ndarray, ...],
        learned_from: frozenset[bytes],
    ) -> None:
        super().__init__(recipe)
        self.module, self.scales, self.learned_from = module.eval(), scales, learned_from

    @property
    def n_features_in_(self) -> int:
        return len(self.scales[0])

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def with_module(self, module: nn.Module) -> Network:
        """Return the same subject around another module."""
        return type(self)(self.recipe, module, self.scales, self.learned_from)

    def regularized(self, penalty: Penalty) -> Learner:
        return learner(replace(self.recipe, penalty=penalty))

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        found = self._columns(inputs)
        return found[:, found.shape[1] // 2]

    def _columns(self, inputs: np.ndarray) -> np.ndarray:
        x_mean, x_scale, y_mean, y_scale = self.scales
        rows = np.asarray(inputs, np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(x_mean):
            raise UsageError(
                f"The network was trained on rows of {len(x_mean)} features, got shape "
                f"{rows.shape}."
            )
        columns = max(1, len(self.recipe.levels))
        with torch.inference_mode():
            out = self.module(torch.from_numpy((rows - x_mean) / x_scale).float())
        found: np.ndarray = out.reshape(len(rows), columns).double().numpy() * y_scale + y_mean
        return found


class QuantileNetwork(Network, QuantileLearner):
    """A trained network for quantiles; its columns are sorted so that they do not cross."""

    def predict_quantiles(self, inputs: np.ndarray, levels: Sequence[float]) -> np.ndarray:
        own = np.array(self.recipe.levels)
        places = [int(np.abs(own - level).argmin()) for level in levels]
        for level, place in zip(levels, places, strict=True):
            if abs(own[place] - level) > 1e-9:
                raise UsageError(
                    f"The network has learned the quantiles {', '.join(f'{q:g}' for q in own)}, "
                    f"not {level:g}; name it in quantiles."
                )
        return np.sort(self._columns(inputs), axis=1)[:, places]


def learner(recipe: Recipe) -> Learner:
    """Return what learns by the recipe."""
    return (QuantileLearner if recipe.levels else Learner)(recipe)


def _fit(recipe: Recipe, found: Examples) -> Network:
    train = found.of("train")
    if not len(train):
        raise UsageError("There are no train rows to learn from; give a larger train split.")
    y = np.asarray(train.targets)
    if y.ndim != 1 or y.dtype.kind not in "biuf" or not np.isfinite(y.astype(float)).all():
        raise UsageError("The network learns from one finite number as target of each row.")
    scales = _scales(train.inputs, y.astype(float)) if recipe.standardize else _none(train.inputs)

    def scaled(rows: Examples) -> tuple[np.ndarray, np.ndarray]:
        x_mean, x_scale, y_mean, y_scale = scales
        return (rows.inputs - x_mean) / x_scale, (rows.targets.astype(float) - y_mean) / y_scale

    domains = [scaled(train.take(train.group == g)) for g in np.unique(train.group)]
    module = recipe.make(train.inputs.shape[1])
    penalty, anchor, notes = recipe.penalty, None, []
    weights: tuple[np.ndarray, ...] = ()
    if penalty is not None:
        anchor = scaled(found.of(penalty.anchor))
        weights = domain_weights(anchor[0], [x for x, _ in domains], cap=penalty.cap)
        notes = _remarks(weights, train.inputs.shape[1])
    curves = train_on_domains(
        module, domains, anchor, weights,
        beta=1.0 if penalty is None else penalty.beta,
        anneal=0 if penalty is None else penalty.anneal,
        steps=recipe.steps, rate=recipe.rate, decay=recipe.decay, levels=recipe.levels,
    )  # fmt: skip
    kind = QuantileNetwork if recipe.levels else Network
    made = kind(recipe, module, scales, frozenset(found.ids))
    fitted: Network = annotate(made, notes=notes, curves=curves)
    return fitted


def _scales(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    spread = x.std(0), y.std()
    # A feature that is constant in training says nothing; its scale stays.
    x_scale, y_scale = (np.where(each > 0, each, 1.0) for each in spread)
    return x.mean(0), x_scale, y.mean(), y_scale


def _none(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return np.zeros(x.shape[1]), np.ones(x.shape[1]), np.zeros(()), np.ones(())


def domain_weights(
    anchor: np.ndarray, domains: Sequence[np.ndarray], *, cap: float = np.inf
) -> tuple[np.ndarray, ...]:
    """Return the weights of anchor rows for each domain, with one bandwidth for all.

    Parameters
    ----------
    anchor
        Covariates ``(n, features)`` whose scores are compared, usually of calibration rows.
    domains
        Covariates of each training domain.
    cap
        Largest weight; see `kernel_density_weights`.

    Raises
    ------
    UsageError
        If there are fewer than 5 anchor rows.

    Examples
    --------
    >>> rows = np.linspace(-1, 1, 10)[:, None]
    >>> [each.shape for each in domain_weights(rows, [rows[:5], rows[5:]])]
    [(10,), (10,)]
    """
    if len(anchor) < 5:
        raise UsageError(
            f"Wasserstein-regularized training needs at least 5 rows to compare scores with, got "
            f"{len(anchor)}; under a wrapper that hands on train rows only, say anchor: train."
        )
    h = select_bandwidth(anchor)
    return tuple(kernel_density_weights(anchor, x, bandwidth=h, cap=cap) for x in domains)


def train_on_domains(
    module: nn.Module,
    domains: Sequence[Rows],
    anchor: Rows | None = None,
    weights: Sequence[np.ndarray] = (),
    *,
    beta: float = 1.0,
    anneal: int = 1000,
    steps: int = 3000,
    rate: float = 1e-3,
    decay: float = 1e-3,
    levels: Sequence[float] = (),
) -> dict[str, list[tuple[float, float]]]:
    r"""Train a module in place on all rows at once, with the Wasserstein penalty or without.

    With $\ell_i$ the mean absolute error on domain $i$ of $k$, $R = \frac{1}{k} \sum_i \ell_i +
    \text{decay} \lVert \theta \rVert^2$, and $W = \frac{1}{k} \sum_i W_1(P_{w_i}, P_i)$ the
    mean distance between the anchor's scores under the weights of domain $i$ and the scores
    of its rows, Adam minimises $R + W$ for the first ``anneal`` steps and
    $R / \beta + W$ afterwards; without weights, $R$.

    Parameters
    ----------
    module
        Maps rows to one column, or one for each of ``levels``; left in evaluation mode.
    domains
        Rows ``(n, features)`` and targets ``(n,)`` of each, on a scale of about 1.
    anchor
        Rows and targets whose scores are drawn to those of every domain.
    weights
        Of the anchor's rows for each domain, as `domain_weights` gives them.
    beta
        Above 0; the larger, the more the penalty counts.
    anneal, steps, rate, decay
        Steps before ``beta`` counts, all steps, learning rate, weight of the squares of
        parameters.
    levels
        Quantiles for the columns to learn by the pinball loss, in place of the median.

    Returns
    -------
    dict
        Points ``(step, value)`` of the loss, and of the penalty where there is one.

    Raises
    ------
    UsageError
        If there are not as many weights as domains, the module gives another number of columns,
        or the loss stops being finite.

    Examples
    --------
    >>> domain = np.zeros((8, 1)), np.ones(8)
    >>> curves = train_on_domains(nn.Linear(1, 1), [domain], steps=300, rate=0.05)
    >>> curves["training loss by step"][-1][1] < 0.1
    True
    """
    if weights and (anchor is None or len(weights) != len(domains)):
        raise UsageError(
            f"train_on_domains: give an anchor, and weights for each of {len(domains)} domains, "
            f"got {len(weights)}."
        )
    groups = [*domains, anchor] if weights and anchor is not None else list(domains)
    x = torch.from_numpy(np.concatenate([each[0] for each in groups])).float()
    y = torch.from_numpy(np.concatenate([each[1] for each in groups])).float()
    sizes = [len(each[1]) for each in groups]
    w = [torch.from_numpy(each).float() for each in weights]
    asked = torch.tensor(levels)
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
    curves: dict[str, list[tuple[float, float]]] = {"training loss by step": []}
    if w:
        curves["Wasserstein penalty by step"] = []
    module.train()
    for step in range(1, steps + 1):
        out = module(x).reshape(len(x), -1)
        if out.shape[1] != max(1, len(levels)):
            raise UsageError(
                f"train_on_domains: the module must give {max(1, len(levels))} columns, got "
                f"{out.shape[1]}."
            )
        off = (y[:, None] - out).split(sizes)
        loss = torch.stack([_loss(each, asked) for each in off[: len(domains)]]).mean()
        total = loss + decay * torch.stack([(p**2).sum() for p in parameters]).sum()
        penalty = loss.new_zeros(())
        if w:
            scores = [each[:, 0].abs() for each in off]
            pairs = zip(scores[:-1], w, strict=True)
            penalty = torch.stack(
                [wasserstein_1_torch(scores[-1], own, each) for own, each in pairs]
            ).mean()
            total = (total / beta if step > anneal else total) + penalty
        optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % _EVERY == 0 or step == steps:
            value = float(loss.detach())
            if not np.isfinite(value):
                raise UsageError(
                    f"Training diverged: the loss is {value} at step {step}; lower rate."
                )
            curves["training loss by step"].append((step, value))
            if w:
                curves["Wasserstein penalty by step"].append((step, float(penalty.detach())))
            report(f"training on {len(domains)} domains, loss {value:.3f}", step, steps)
    module.eval()
    return curves


def _loss(off: Tensor, levels: Tensor) -> Tensor:
    """Return the mean absolute error, or the mean pinball loss of the columns."""
    if not len(levels):
        return off.abs().mean()
    return torch.maximum(levels * off, (levels - 1) * off).mean()


def _remarks(weights: Sequence[np.ndarray], features: int) -> list[str]:
    """Return a sentence where the weights of training rest on few rows."""
    least, rows = min(map(effective_sample_size, weights)), len(weights[0])
    if features <= MOST_FEATURES and least >= 0.1 * rows:
        return []
    return [
        f"The Wasserstein penalty weighs {rows} rows by kernel densities in {features} dimensions; "
        f"the least effective sample size is {least:.0f}."
    ]
