"""Language models as subjects, plain text tasks and treatments of prompts, loaded on first use."""

from equipoise.core.lazy import lazily

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

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return sorted(_WHERE)
