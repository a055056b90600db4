"""The forward pass of a simulated quantised model, as a multiple of the plain one in the same run.

    python benchmarks/quantized_forward.py [--batch 8] [--length 512] [--runs 3] [--threads 1]

SmolLM2 in float32, with its output layer at the last position, as scoring runs it.
Each run takes every arm in turn, so that a busy machine is busy for all of them;
processor seconds are the least of the runs. Rows of JSON, then the ratios.
"""

from __future__ import annotations

import argparse
from typing import Any

import _peers as peers


def arms() -> dict[str, Any]:
    """Return treatments by name; None is the plain model."""
    from equipoise.methods.quantization.rotated_runtime_smooth import Rotate, RotatedRuntimeSmooth
    from equipoise.methods.quantization.round_to_nearest import RoundToNearest

    return {
        "plain": None,
        "round_to_nearest": RoundToNearest(4, 4),
        "rotate": Rotate(4, 4),
        "rotated_runtime_smooth": RotatedRuntimeSmooth(4, 4),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--length", type=int, default=512)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--threads", type=int, default=1)
    asked = options.parse_args()

    import torch

    from equipoise.core import Rng
    from equipoise.kit.language.local import LanguageModel

    torch.set_num_threads(asked.threads)
    control = LanguageModel.load(peers.model_folder())
    treated = {
        name: (control if part is None else part.apply(control, Rng(0))).module
        for name, part in arms().items()
    }
    draw = torch.Generator().manual_seed(0)
    words = control.module.config.vocab_size
    ids = torch.randint(words, (asked.batch, asked.length), generator=draw)

    def forward(module: Any) -> None:
        with torch.inference_mode():
            module(ids, use_cache=False, logits_to_keep=1)

    forward(treated["plain"])  # warm
    times: dict[str, list[float]] = {name: [] for name in treated}
    for number in range(asked.runs):
        for name, module in treated.items():
            _, took = peers.timed(lambda module=module: forward(module))
            times[name].append(took["cpu"])
            peers.show(how=name, run=number, **took)
    best = {name: min(found) for name, found in times.items()}
    peers.show(
        how="summary",
        times_plain={name: round(found / best["plain"], 2) for name, found in best.items()},
        aim=2.5,
        peak_mib=peers.peak_mib(),
    )


if __name__ == "__main__":
    main()
