"""What Probe Pruning saves: time of pruned forward passes as a share of the dense model's.

    python benchmarks/probe_pruning.py [--samples 8] [--length 512] [--ratio 0.4] [--rounds 5]

SmolLM2 on random tokens, one thread. Dense and pruned passes take turns, so that a busy
machine slows both alike, and the median of the ratios of neighbours counts. Rows of JSON:
the feed-forward part of one block, then all blocks (without the output layer).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import _peers as peers


def seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compared(dense: Callable[[], Any], others: dict[str, Callable[[], Any]], rounds: int) -> None:
    ratios: dict[str, list[float]] = {name: [] for name in others}
    times: list[float] = []
    for work in (dense, *others.values()):
        work()  # warm
    for _ in range(rounds):
        times.append(seconds(dense))
        for name, work in others.items():
            ratios[name].append(seconds(work) / times[-1])
    for name, found in ratios.items():
        peers.show(
            how=name,
            over_dense=round(statistics.median(found), 3),
            lowest=round(min(found), 3),
            highest=round(max(found), 3),
            dense_cpu_s=round(statistics.median(times), 3),
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--samples", type=int, default=8)
    options.add_argument("--length", type=int, default=512)
    options.add_argument("--ratio", type=float, default=0.4)
    options.add_argument("--multiple", type=int, default=8)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=1)
    asked = options.parse_args()

    import torch

    from equipoise.core import Rng
    from equipoise.kit.language.local import LanguageModel
    from equipoise.methods.pruning import ProbePruning, WandaSp

    torch.set_num_threads(asked.threads)
    subject = LanguageModel.load(peers.model_folder())
    arms = {
        "wanda_sp": WandaSp(asked.ratio, multiple=asked.multiple, samples=4),
        "probe_pruning": ProbePruning(asked.ratio, multiple=asked.multiple, samples=4),
        "full batch as probe": ProbePruning(asked.ratio, multiple=asked.multiple, full_batch=True),
    }
    treated = {name: arm.apply(subject, Rng(0)).module for name, arm in arms.items()}
    shape = (asked.samples, asked.length)
    ids = torch.randint(0, 40_000, shape, generator=torch.Generator().manual_seed(0))
    states = torch.randn(*shape, subject.module.config.hidden_size)

    def block(module: Any) -> Callable[[], Any]:
        layer = module.model.layers[len(module.model.layers) // 2]
        return lambda: layer.mlp(layer.post_attention_layernorm(states))

    def blocks(module: Any) -> Callable[[], Any]:
        return lambda: module.model(ids)

    with torch.inference_mode():
        for what, part, rounds in (
            ("one feed-forward part", block, 4 * asked.rounds),
            ("all blocks", blocks, asked.rounds),
        ):
            compared(
                part(subject.module),
                {f"{what}, {name}": part(module) for name, module in treated.items()},
                rounds,
            )


if __name__ == "__main__":
    main()
