"""Programs that models write, run in a sandbox and mended with feedback.

The plain functions load on first use.

>>> from equipoise.methods.code import mrr
>>> mrr([1, 2, None])
0.5
"""

from equipoise.core.lazy import lazily

_WHERE: dict[str, str] = {
    "Record": "_running",
    "Suite": "_running",
    "expected_mrr": "turn_measures",
    "expected_recall": "turn_measures",
    "expert_words": "_words",
    "leaked": "_words",
    "mrr": "turn_measures",
    "novice_words": "_words",
    "read_program": "_reading",
    "recall": "turn_measures",
    "run_tests": "_running",
    "static_credit": "frozen_conversation",
    "static_live_rank_correlation": "turn_measures",
    "write_log": "conversational_code",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
