"""A language model in this process: generation, scoring, embeddings, and its module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from equipoise.core import Generation, Prompt, Request, TokenScores
from equipoise.kit.about import about, annotate
from equipoise.kit.language import generation, scoring
from equipoise.kit.language._forward import Forward
from equipoise.kit.language._prompts import Prompts
from equipoise.kit.language.tensors import fill_tensors, save_tensors

TENSORS = "model.safetensors"


class LanguageModel:
    """A causal transformers model and its tokenizer as a live subject.

    It generates (`Generates`), scores continuations (`ScoresText`), embeds
    texts (`Embeds`) and opens its module (`HasModule`). It is never changed: a
    treatment takes a copy of the module, treats it, and calls `with_module`.

    A prompt is text to continue, messages to answer, or token ids. While the
    module runs, `equipoise.kit.torch.tokens.current_mask` says which positions
    of the batch are real tokens. A module with the attribute
    ``equipoise_whole_sequence = True`` depends on the whole sequence seen at
    once: it is scored on whole sequences, never from a cache, and generates as
    usual, where each step sees the new token and the cache.

    Parameters
    ----------
    module
        A transformers causal model; it is put into evaluation mode.
    tokenizer
        Its tokenizer.
    batch_size
        Most sequences at once; chosen by memory when None.
    batch_tokens
        Most tokens that go through the module at once, padding included; 1,024
        on a processor and 16,384 on an accelerator when None.
    name
        What messages call it.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        name: str = "",
    ) -> None:
        self.module = module.eval()
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.name = name or type(module).__name__
        self._forward = Forward(module)
        self._prompts = Prompts(tokenizer, self.name)
        self._batch_tokens = batch_tokens

    def __repr__(self) -> str:
        return f"LanguageModel({self.name})"

    @property
    def device(self) -> torch.device:
        """Where the module's tensors lie."""
        return self._forward.device

    @property
    def batch_tokens(self) -> int:
        """Most tokens that go through the module at once."""
        return self._batch_tokens or (1024 if self.device.type in ("cpu", "meta") else 16384)

    def with_module(self, module: nn.Module) -> LanguageModel:
        """Return a subject around another module, with the same tokenizer, settings and remarks."""
        found = LanguageModel(
            module,
            self.tokenizer,
            batch_size=self.batch_size,
            batch_tokens=self._batch_tokens,
            name=self.name,
        )
        annotated: LanguageModel = annotate(found, **about(self))
        return annotated

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids of plain text, without special tokens."""
        return self._prompts.tokenize(text)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests in order; see `equipoise.kit.language.generation`."""
        return generation.generate(
            self._forward,
            self._prompts,
            requests,
            batch_size=self.batch_size,
            batch_tokens=self.batch_tokens,
        )

    def log_likelihood(
        self, pairs: Sequence[tuple[Prompt, str | Sequence[int]]]
    ) -> list[TokenScores]:
        """Score continuations in order; see `equipoise.kit.language.scoring`."""
        return scoring.log_likelihood(
            self._forward,
            self._prompts,
            pairs,
            batch_size=self.batch_size,
            batch_tokens=self.batch_tokens,
        )

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the mean of each text's last hidden states, ``(texts, width)``, float32."""
        rows = [self._prompts.ids(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
        found: dict[int, np.ndarray] = {}
        while order:
            longest = len(rows[order[0]])
            count = self.batch_size or max(1, self.batch_tokens // longest)
            batch, order = order[:count], order[count:]
            ids = torch.zeros(len(batch), longest, dtype=torch.long)
            real = torch.zeros(len(batch), longest, dtype=torch.bool)
            for line, place in enumerate(batch):
                ids[line, : len(rows[place])] = torch.tensor(rows[place])
                real[line, : len(rows[place])] = True
            ids, real = ids.to(self.device), real.to(self.device)
            states = self._forward.hidden(ids, real).float()
            kept = torch.where(real[..., None], states, states.new_zeros(()))
            means = (kept.sum(1) / real.sum(1, keepdim=True)).cpu().numpy()
            found |= dict(zip(batch, means, strict=True))
        return np.stack([found[place] for place in range(len(rows))]) if rows else np.empty((0, 0))

    def save(self, folder: Path | str) -> None:
        """Write the tensors as safetensors, with configuration and tokenizer where there are any.

        The folder of an ordinary model opens again with `load`; the tensors of
        a treated one go back into its structure with `fill`.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        config = copy.copy(getattr(self.module, "config", None))
        if config is not None and not getattr(config, "architectures", None):
            config.architectures = [type(self.module).__name__]
        for part in (
            config,
            getattr(self.module, "generation_config", None),
            self.tokenizer,
        ):
            writer = getattr(part, "save_pretrained", None)
            if writer is not None:
                writer(place)
        save_tensors(self.module, place / TENSORS)

    def fill(self, folder: Path | str) -> LanguageModel:
        """Put the tensors of a folder into this model's structure and return the model.

        Tensors are replaced, not written into, so that a control which shares
        them keeps its own. Meant for skeletons that no one else uses.

        Raises
        ------
        UsageError
            If the folder holds no tensors or others than the module has.
        """
        fill_tensors(self.module, Path(folder) / TENSORS, self.name)
        return self

    @classmethod
    def load(
        cls,
        source: Path | str,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        revision: str | None = None,
        threads: int | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        name: str = "",
    ) -> LanguageModel:
        """Open a folder as transformers, `save` or `equipoise treat` wrote it, or one of the hub.

        Parameters
        ----------
        source
            A folder, or a name on the hub.
        dtype
            ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        device
            As torch names it.
        revision
            Of a name on the hub.
        threads
            Processor threads for torch in this process; left alone when None.
        batch_size, batch_tokens, name
            As for the class.

        Raises
        ------
        UsageError
            If it holds no causal model, no weights or no tokenizer, or cannot
            be reached.
        """
        from equipoise.kit.language._pretrained import open_model
        from equipoise.kit.language.saved import is_treated, open_treated

        if threads is not None:
            torch.set_num_threads(threads)
        folder = Path(source).expanduser()
        settings: dict[str, Any] = {
            "batch_size": batch_size,
            "batch_tokens": batch_tokens,
            "name": name or folder.name,
        }
        if is_treated(folder):
            treated: LanguageModel = open_treated(folder, dtype=dtype, device=device, **settings)
            return treated
        module, tokenizer = open_model(str(source), dtype=dtype, device=device, revision=revision)
        return cls(module, tokenizer, **settings)
