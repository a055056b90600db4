"""Any causal language model that transformers opens, from a folder or the model hub."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from equipoise.core import (
    Embeds,
    Generates,
    HasModule,
    Rng,
    ScoresText,
    Subject,
    UsageError,
    one_of,
    setting,
)

if TYPE_CHECKING:
    from equipoise.kit.language.local import LanguageModel

_SHARED = ("dtype", "device", "threads")


@dataclass(frozen=True)
class HuggingFace(Subject):
    """A causal language model in the format of transformers, or an adapter of peft.

    A folder is known by the content of its files, not by its path: the same
    model elsewhere gives the same identity. A name on the model hub is known by
    name and revision. Code that comes with a model is never run. Messages are
    written with the model's own chat template.

    What other tools wrote opens as it is: merged models, shards, weights
    quantised by compressed-tensors (llm-compressor), torchao or bitsandbytes,
    with the package that reads them; a GGUF file is converted to float32 once.
    An adapter is put onto its base model, and its identity has both.

    Parameters
    ----------
    model
        A folder with configuration, weights and tokenizer, or with an adapter;
        a GGUF file; or a name on the model hub, which is fetched where there
        is a network.
    base
        The model that an adapter was trained on, where it is not the one that
        the adapter names.
    plain
        Whether to make ordinary layers, in ``dtype``, of an adapter's and of
        those whose weights are quantised, so that treatments can edit them.
    dtype
        Number format of weights and arithmetic.
    revision
        Branch, tag or commit of a name on the hub.
    device
        Where it runs, as torch names it.
    threads
        Processor threads that torch uses; the machine's choice when None.
    batch_size
        Most sequences at once; chosen by memory when None.

    Examples
    --------
    >>> HuggingFace("org/model", revision="v1").content()
    {'hub': 'org/model'}
    """

    provides: ClassVar = frozenset({Generates, ScoresText, Embeds, HasModule})

    model: str = setting()
    base: Subject | None = None
    plain: bool = False
    dtype: str = one_of("float32", "bfloat16", "float16", default="float32")
    revision: str = "main"
    device: str = setting("cpu")
    threads: int | None = setting(None, low=1, high=1024)
    batch_size: int | None = setting(None, low=1, high=65536)

    def check(self) -> None:
        """Refuse an empty name, and a base that has no module."""
        if not self.model.strip():
            raise UsageError("HuggingFace: model must name a folder or a model, got nothing.")
        if self.base is not None and not {HasModule, ScoresText} <= self.base.provides:
            raise UsageError(
                "HuggingFace: base must be a language model that runs here, such as hf or smollm2,"
                f" got {type(self.base).__name__}."
            )

    @classmethod
    def tiny(cls) -> HuggingFace:
        """Return a random model of two layers."""
        from equipoise.kit.language.tiny import tiny_folder

        return cls(model=str(tiny_folder()))

    def load(self, rng: Rng) -> LanguageModel:
        """Return the live model."""
        try:
            live = self._open(rng)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"HuggingFace: the package {error.name} is not installed:"
                " pip install 'equipoise[language]'."
            ) from error
        except UsageError as error:
            raise UsageError(f"HuggingFace: {error}") from error
        if getattr(live.module, "equipoise_alone", False):
            live.batch_size = 1
        return live

    def _open(self, rng: Rng) -> LanguageModel:
        from equipoise.kit.language.local import LanguageModel

        if self.base is None and not self.plain:
            return LanguageModel.load(
                self.model,
                dtype=self.dtype,
                device=self.device,
                revision=self.revision,
                threads=self.threads,
                batch_size=self.batch_size,
            )
        import torch

        from equipoise.kit.language._pretrained import open_model
        from equipoise.kit.torch.copies import copy_module

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        below = None
        if self.base is not None:
            below_it: Any = self.base
            known = {field.name for field in fields(below_it)}
            given = {name: getattr(self, name) for name in _SHARED if name in known}
            if "plain" in known:
                given["plain"] = self.plain or below_it.plain
            live = replace(below_it, **given).load(rng)
            below = (copy_module(live.module), live.tokenizer)
        module, tokenizer = open_model(
            self.model,
            dtype=self.dtype,
            device=self.device,
            revision=self.revision,
            base=below,
            plain=self.plain,
        )
        return LanguageModel(
            module, tokenizer, batch_size=self.batch_size, name=Path(self.model).name
        )

    @property
    def replaces(self) -> frozenset[str]:  # type: ignore[override]
        """Linear layers, where an adapter or a quantiser stands in their place."""
        from equipoise.kit.language._folders import local_path, model_folder

        path = local_path(self.model)
        if self.plain or path is None or not path.is_dir():
            return frozenset()
        folder = model_folder(path)
        strange = folder.is_adapter or folder.quantized is not None
        return frozenset({"linear layers"} if strange else ())

    def folder(self) -> Path | None:
        """Return the folder the weights lie in, or None for a name on the hub."""
        found = Path(self.model).expanduser()
        return found if found.is_dir() else None

    def content(self) -> Any:
        """Return the hashes of a folder's files, or the name of a model on the hub."""
        try:
            return self._content(self.model)
        except UsageError as error:
            raise UsageError(f"HuggingFace: {error}") from error

    def _content(self, model: str) -> dict[str, Any]:
        from equipoise.kit.cache import file_hash
        from equipoise.kit.language._folders import local_path, model_folder

        path = local_path(model)
        if path is None:
            return {"hub": model}
        if path.is_file():
            return {"gguf": file_hash(path)}
        folder = model_folder(path)
        found: dict[str, Any] = {"files": folder.hashes()}
        if folder.is_adapter and self.base is None:
            found["base"] = self._content(folder.base_place())
            if "hub" in found["base"] and folder.base_revision:
                found["base"]["revision"] = folder.base_revision
        return found
