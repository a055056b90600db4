r"""OSTQuant: rotations and scales learned so that a decoder's numbers fill their integer grids.

Every linear layer $Y = X W^\top$ is run as $Y = Q(X T)\, Q(W T^{-\top})^\top$ with
$T = R S$: R orthogonal, S diagonal and positive. All of it but a Hadamard rotation
before the down layer and one of queries and keys is folded into the model's own
tensors, so it costs nothing when the model runs.

How well a tensor fills its grid is measured by `quantization_space`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from equipoise.core import (
    Capability,
    HasModule,
    Rng,
    Treatment,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.about import annotate
from equipoise.kit.data import content_hash
from equipoise.kit.language.structure import Structure, structure_of
from equipoise.kit.progress import report
from equipoise.kit.torch.calibrated import compensate
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.copies import copy_module, replace_modules
from equipoise.kit.torch.decoders import quantize_keys_values
from equipoise.kit.torch.linear import is_transposed, weight_of
from equipoise.kit.torch.quantized import UNROUNDED, QuantizedLinear, Scheme
from equipoise.kit.torch.quantizers import round_weights
from equipoise.kit.torch.rotations import empty_rotation, suitable
from equipoise.kit.torch.transforms import Transforms, fold_, fuse_norms, hollow_, untie
from equipoise.methods.quantization._ostquant_learning import learn
from equipoise.methods.quantization._ostquant_student import Plan


@dataclass(frozen=True)
class OrthogonalScalingQuantization(Treatment):
    r"""Learn rotations and scales that make a decoder easy to round, then round it (OSTQuant).

    What is learned, all of it folded into the model's own tensors:

    - one rotation R of the residual stream, and one of the values of each head;
    - scales after each norm, of values, of channels between up and down layers
      (where a gate makes that linear; not in GPT-2 or GPT-NeoX), and, where keys
      are rounded, of queries against keys, alike within a rotary pair. Norms on
      queries and keys (Qwen3) take these scales into their gains.

    Rotations start at $Q H$: Q has the eigenvectors of the weights' second moment, H
    is a Hadamard matrix with random signs, or a random orthogonal one where the
    size has none. Models with LayerNorm get a rotation that keeps the direction
    $(1, \dots, 1)$, since subtracting the mean then commutes with it. A head tied
    to the embeddings is untied. With activations rounded, the input of each down
    layer goes through a fixed Hadamard rotation while the model runs.

    The model with its activations, keys and values rounded learns to predict as
    the original does, by Riemannian Adam on the Stiefel manifold for rotations
    and Adam on the logarithms of scales; both rates fall to nothing by a cosine.
    The gradient of rounding is taken as one, that of its step is exact. Weights
    are rounded after learning; while they are alone in being rounded
    (``activations: 16``), they are rounded in learning too.

    Parameters
    ----------
    weights
        Bits of weights, one step per output channel; 16 leaves them.
    activations
        Bits of the inputs of linear layers, one step per token; 16 leaves them.
        With ``keys_values: 16`` as well the result has ordinary layers only.
    keys_values
        Bits of keys and values in attention; 16 leaves them.
    learn
        ``both``, ``rotation`` (no scales, as in SpinQuant) or ``scaling`` (no rotations).
    initial
        Where rotations start: ``womi``, as above, or ``hadamard``, H alone.
    loss
        ``kl_top``: divergence from the original over its likeliest tokens;
        ``kl``: over all; ``ce``: cross-entropy of the calibration text.
    top
        How many tokens ``kl_top`` counts.
    steps
        Updates; 0 keeps the start.
    batch
        Windows of text in a step.
    rotation_rate
        Learning rate of rotations; a first step moves each matrix by 2.8 times
        as much, in the Frobenius norm.
    scale_rate
        Learning rate of the logarithms of scales.
    weight_method
        ``rtn`` rounds weights to nearest; ``gptq`` compensates errors.
    clip_search
        Whether each output channel's range is searched for (slow).
    calibration
        Text to learn from (see `equipoise.kit.data.read_texts`). It must not
        be what a task tests on.
    samples
        Windows of text there are to learn from.
    length
        Tokens in a window.

    Raises
    ------
    UsageError
        When it is applied to a subject that is no decoder-only language model,
        or one whose blocks compute something else once rotated and scaled.

    References
    ----------
    "OSTQuant: Refining Large Language Model Quantization with Orthogonal and
    Scaling Transformations for Better Distribution Fitting", ICLR 2025.

    Examples
    --------
    Without rounding the transforms change nothing:

    >>> from equipoise.kit.language.tiny import tiny_model
    >>> control = tiny_model()
    >>> part = OrthogonalScalingQuantization(weights=16, activations=16, samples=1, length=8)
    >>> ids = torch.arange(20)[None]
    >>> turned = part.apply(control, Rng(0)).module(ids).logits
    >>> bool((turned - control.module(ids).logits).abs().max() < 1e-4)
    True
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=4)
    keys_values: int = between(2, 16, default=16)
    learn: str = one_of("both", "rotation", "scaling", default="both")
    initial: str = one_of("womi", "hadamard", default="womi")
    loss: str = one_of("kl_top", "kl", "ce", default="kl_top")
    top: int = between(1, 10_000_000, default=1000)
    steps: int = between(0, 1_000_000, default=100)
    batch: int = between(1, 65536, default=4)
    rotation_rate: float = between(0.0, 100.0, default=0.2)
    scale_rate: float = between(0.0, 1.0, default=0.03)
    weight_method: str = one_of("rtn", "gptq", default="rtn")
    clip_search: bool = False
    calibration: str = setting("builtin:python_topics")
    samples: int = between(1, 100_000, default=64)
    length: int = between(2, 1_000_000, default=256)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True
    edits: ClassVar[frozenset[str]] = frozenset(
        {"linear layers", "attention", "residual stream", "vocabulary"}
    )
    replaces: ClassVar[frozenset[str]] = frozenset({"linear layers", "attention"})

    @classmethod
    def tiny(cls) -> Self:
        return cls(keys_values=4, steps=2, batch=1, samples=2, length=32)

    @classmethod
    def null(cls) -> Self:
        return cls(weights=16, activations=16, learn="scaling", steps=0, samples=1, length=8)

    def content(self) -> Any:
        return content_hash(self.calibration)

    def apply(self, subject: Any, rng: Rng) -> Any:
        structure = self._structure(subject)
        windows = calibration_batches(
            subject,
            self.calibration,
            rng.child("calibration"),
            samples=self.samples,
            length=self.length,
        )
        made = _in_float32(copy_module(subject.module))
        some = windows[0][:, :_COMPARED].to(subject.device)
        wanted = _logits(made, some)
        fuse_norms(made, structure)
        _need_same(made, some, wanted)
        transforms, history = learn(
            subject.module, made, structure, self.plan(), windows, rng.child("learning")
        )
        offline = tuple(replace(each, online=None) for each in transforms.blocks)
        fold_(made, structure, replace(transforms, blocks=offline))
        _need_same(made, some, wanted)
        made = _as_before(made, subject.module)
        layers = self._layers(made, structure, transforms)
        made = replace_modules(made, layers)
        if self.weights < UNROUNDED:
            self._round(made, structure, layers, windows)
        made = self._running(made, structure, layers)
        notes = [history.note] if history.note else []
        return annotate(subject.with_module(made), notes=notes, curves=history.curves())

    def skeleton(self, subject: Any) -> Any:
        structure = self._structure(subject)
        made: Any = copy_module(subject.module)
        untie(made, structure)
        hollow_(made, structure)
        layers = self._layers(made, structure, None)
        made = replace_modules(made, layers)
        return subject.with_module(self._running(made, structure, layers))

    def plan(self) -> Plan:
        """Return what is learned and how."""
        return Plan(
            weights=self.weights,
            activations=self.activations,
            keys_values=self.keys_values,
            rotation=self.learn != "scaling",
            scaling=self.learn != "rotation",
            initial=self.initial,
            loss=self.loss,
            top=self.top,
            steps=self.steps,
            batch=self.batch,
            rotation_rate=self.rotation_rate,
            scale_rate=self.scale_rate,
        )

    def _structure(self, subject: Any) -> Structure:
        if subject.tokenizer is None:
            raise UsageError(
                "OrthogonalScalingQuantization: the subject has no tokenizer; it must be a"
                " decoder-only language model."
            )
        structure = structure_of(subject.module)
        limit = getattr(subject.module.config, "max_position_embeddings", None)
        if isinstance(limit, int) and self.length > limit:
            raise UsageError(
                f"OrthogonalScalingQuantization: length must be at most the {limit} positions of"
                f" the model, got {self.length}."
            )
        return structure

    def _layers(
        self, module: nn.Module, structure: Structure, transforms: Transforms | None
    ) -> dict[str, QuantizedLinear]:
        """Return what takes the place of linear layers; None leaves rotations to be filled in."""
        layers = {}
        for name in structure.linear_layers():
            old: Any = module.get_submodule(name)
            weight = nn.Parameter(weight_of(old).contiguous(), requires_grad=False)
            layers[name] = QuantizedLinear(weight, old.bias, transposed=is_transposed(old))
        for number, block in enumerate(structure.blocks if self.plan().online else ()):
            down = layers[block.feed_forward.down]
            if transforms is None:
                kind = suitable("hadamard", down.in_features)
                down.rotation = empty_rotation(kind, down.in_features)
                continue
            online = transforms.blocks[number].online
            assert online is not None
            turned = online(down.weight.detach().double()).to(down.weight.dtype)
            down.weight = nn.Parameter(turned, requires_grad=False)
            down.rotation = online.to(turned.dtype)
        return layers

    @torch.no_grad()
    def _round(
        self,
        module: nn.Module,
        structure: Structure,
        layers: dict[str, QuantizedLinear],
        windows: list[Tensor],
    ) -> None:
        if self.weight_method == "gptq":
            scheme = Scheme(weights=self.weights, clip_search=self.clip_search)
            compensate(module, structure, layers, scheme, windows)
            return
        for done, layer in enumerate(layers.values()):
            report("rounding weights", done, len(layers))
            weight = layer.weight.detach()
            found = round_weights(weight.float(), self.weights, search=self.clip_search)
            layer.weight = nn.Parameter(found.to(weight.dtype), requires_grad=False)

    def _running(
        self, module: nn.Module, structure: Structure, layers: dict[str, QuantizedLinear]
    ) -> nn.Module:
        """Put in place what acts while the model runs, and ordinary layers where nothing does."""
        for name, layer in layers.items():
            layer.bits = self.activations
            if self.activations >= UNROUNDED:
                layer.make_plain(module, name)
        if self.keys_values < UNROUNDED:
            quantize_keys_values(module, structure, self.keys_values)
        return module


_COMPARED = 64
_TOLERANCE = 1e-3


def _in_float32(module: nn.Module) -> nn.Module:
    """Give a copy of one's own parameters in float32 where it has others."""
    made: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, old in part._parameters.items():
            if old is not None and old.is_floating_point() and old.dtype != torch.float32:
                new = nn.Parameter(old.detach().float(), requires_grad=False)
                part._parameters[name] = made.setdefault(id(old), new)
    return module


def _as_before(module: nn.Module, original: nn.Module) -> nn.Module:
    dtype = next(original.parameters()).dtype
    for part in module.modules():
        for name, old in part._parameters.items():
            if old is not None and old.is_floating_point() and old.dtype != dtype:
                part._parameters[name] = nn.Parameter(old.detach().to(dtype), requires_grad=False)
    return module


@torch.no_grad()
def _logits(module: Any, ids: Tensor) -> Tensor:
    found: Tensor = module(ids, use_cache=False).logits
    return found


def _need_same(module: nn.Module, ids: Tensor, wanted: Tensor) -> None:
    apart = float((_logits(module, ids) - wanted).abs().max() / wanted.abs().max())
    if not apart <= _TOLERANCE:
        raise UsageError(
            f"OrthogonalScalingQuantization: once rotated and scaled, {type(module).__name__}"
            f" computes something else (logits differ by {apart:.1e} of the largest); its blocks"
            " are of no kind that this treatment knows."
        )
