"""Any causal language model that transformers opens, from a folder or the model hub."""

from __future__ import annotations

from dataclasses import dataclass
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

_MATTERS = ("*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*.jinja")


@dataclass(frozen=True)
class HuggingFace(Subject):
    """A causal language model in the format of transformers.

    A folder is known by the content of its files, not by its path: the same
    model elsewhere gives the same identity. A name on the model hub is known by
    name and revision. Code that comes with a model is never run. Messages are
    written with the model's own chat template.

    Parameters
    ----------
    model
        A folder with configuration, weights and tokenizer, or a name on the
        model hub, which is fetched where there is a network.
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
    dtype: str = one_of("float32", "bfloat16", "float16", default="float32")
    revision: str = "main"
    device: str = setting("cpu")
    threads: int | None = setting(None, low=1, high=1024)
    batch_size: int | None = setting(None, low=1, high=65536)

    def check(self) -> None:
        """Refuse an empty name."""
        if not self.model.strip():
            raise UsageError("HuggingFace: model must name a folder or a model, got nothing.")

    @classmethod
    def tiny(cls) -> HuggingFace:
        """Return a random model of two layers."""
        from equipoise.kit.language.tiny import tiny_folder

        return cls(model=str(tiny_folder()))

    def load(self, rng: Rng) -> LanguageModel:
        """Return the live model."""
        try:
            from equipoise.kit.language.local import LanguageModel
        except ModuleNotFoundError as error:
            raise UsageError(
                f"HuggingFace: the package {error.name} is not installed:"
                " pip install 'equipoise[language]'."
            ) from error
        try:
            return LanguageModel.load(
                self.model,
                dtype=self.dtype,
                device=self.device,
                revision=self.revision,
                threads=self.threads,
                batch_size=self.batch_size,
            )
        except UsageError as error:
            raise UsageError(f"HuggingFace: {error}") from error

    def content(self) -> Any:
        """Return the hashes of a folder's files, or the name of a model on the hub."""
        from equipoise.kit.cache import file_hash

        folder = Path(self.model).expanduser()
        if not folder.is_dir():
            return {"hub": self.model}
        found = {path for pattern in _MATTERS for path in folder.glob(pattern) if path.is_file()}
        return {"files": {path.name: file_hash(path) for path in sorted(found)}}
