"""Language models as subjects, plain text tasks and treatments of prompts, loaded on first use."""

from importlib import import_module
from typing import Any

_WHERE = {
    "FewShot": "prompting",
    "FreeResponse": "free_response",
    "MultipleChoice": "multiple_choice",
    "OpenAI": "openai",
    "Perplexity": "perplexity",
    "Sampling": "prompting",
    "Scripted": "scripted",
    "SystemPrompt": "prompting",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_WHERE)
