"""A language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Self

from equipoise.core import Capability, GeneratesAsync, Rng, Subject, UsageError, setting
from equipoise.kit.language.endpoint import Endpoint, Prices, host_of


@dataclass(frozen=True)
class OpenAI(Subject):
    """A model served by OpenAI, vLLM, llama.cpp, Ollama, ``transformers serve`` or the like.

    The key comes from the environment only. A trial's results belong to the
    name of the model: the address is a setting, so that the same model served
    from elsewhere resumes the same trial. Give different models different
    names.

    Parameters
    ----------
    model
        The name the server knows it by.
    base_url
        Address up to and with ``/v1``; by default that in ``OPENAI_BASE_URL``,
        else OpenAI's.
    api_key_env
        Environment variable that holds the key; a server on this machine needs
        none.
    max_connections
        Most calls at once. How many there are follows how the server copes.
    timeout
        Seconds that one attempt may take.
    max_retries
        Attempts after the first.
    requests_per_minute
        Most attempts a minute, or nothing.
    input_price, output_price
        Dollars for a million tokens.

    Examples
    --------
    >>> OpenAI("qwen3", base_url="http://localhost:8000/v1").notice()
    'Answers of qwen3 come from a server at localhost, which may change without notice.'
    """

    model: str
    base_url: str | None = setting(None)
    api_key_env: str = setting("OPENAI_API_KEY")
    max_connections: int = setting(64, low=1, high=10_000)
    timeout: float = setting(120.0, low=0.001, high=86_400)
    max_retries: int = setting(6, low=0, high=100)
    requests_per_minute: float | None = setting(None, low=0.01, high=1e9)
    input_price: float = setting(0.0, low=0.0, high=1e6)
    output_price: float = setting(0.0, low=0.0, high=1e6)

    provides: ClassVar[frozenset[Capability]] = frozenset({GeneratesAsync})

    @classmethod
    def tiny(cls) -> Self:
        return cls("model", base_url="http://localhost:9/v1", max_retries=0, timeout=1.0)

    def check(self) -> None:
        if not self.model:
            raise UsageError("OpenAI: model must be the name of a model, as in openai:NAME.")
        if self.base_url is not None:
            host_of(self.base_url)

    def load(self, rng: Rng) -> Endpoint:
        if find_spec("openai") is None:
            raise UsageError(
                "openai needs the package openai, which is not installed: "
                "pip install 'equipoise[endpoints]'."
            )
        return Endpoint(
            self.model,
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            max_connections=self.max_connections,
            timeout=self.timeout,
            max_retries=self.max_retries,
            requests_per_minute=self.requests_per_minute,
            prices=Prices(self.input_price, self.output_price),
        )

    def notice(self) -> str:
        where = f"a server at {host_of(self.base_url)}" if self.base_url else "an endpoint"
        return f"Answers of {self.model} come from {where}, which may change without notice."
