"""Multiple choice over shared contexts: equipoise against lm-evaluation-harness and plain code.

    python benchmarks/multiple_choice.py [--items 200] [--threads 1] [--plain 40]

Each item has a context of about 55 tokens and four options of one to four words.
Rows of JSON; the last one holds the ratios. The peer is left out, and the row
says so, where `lm_eval` does not import.
"""

from __future__ import annotations

import argparse
from typing import Any

import _peers as peers
import numpy as np


def items(count: int) -> list[tuple[str, list[str]]]:
    rng = peers.generator()
    made = []
    for _ in range(count):
        context = " ".join(rng.choice(peers.WORDS) for _ in range(50))
        options = [
            " " + " ".join(rng.choice(peers.WORDS) for _ in range(rng.randint(1, 4)))
            for _ in range(4)
        ]
        made.append((f"{context}. The next words are", options))
    return made


def ours(model: Any, data: list[tuple[str, list[str]]]) -> np.ndarray:
    scores = model.log_likelihood([(context, o) for context, options in data for o in options])
    return np.array([each.total for each in scores]).reshape(len(data), -1)


def plain(model: Any, data: list[tuple[str, list[str]]]) -> np.ndarray:
    """Score every option in a forward pass of its own."""
    import torch

    found = []
    for context, options in data:
        start = model.tokenizer(context)["input_ids"]
        for option in options:
            ids = model.tokenizer(context + option)["input_ids"]
            with torch.no_grad():
                logits = model.module(torch.tensor([ids[:-1]])).logits[0, len(start) - 1 :]
            rest = torch.tensor(ids[len(start) :])
            log_probs = logits.log_softmax(-1)
            found.append(log_probs.gather(1, rest[:, None]).sum().item())
    return np.array(found).reshape(len(data), -1)


def lm_eval(peer: Any, data: list[tuple[str, list[str]]]) -> np.ndarray:
    from lm_eval.api.instance import Instance

    pairs = [(context, option) for context, options in data for option in options]
    requests = [
        Instance("loglikelihood", {}, pair, number, metadata=("mc", number // 4, 1))
        for number, pair in enumerate(pairs)
    ]
    found = peer.loglikelihood(requests, disable_tqdm=True)
    return np.array([each[0] for each in found]).reshape(len(data), -1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--items", type=int, default=200)
    options.add_argument("--plain", type=int, default=40, help="items for the one-by-one baseline")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--peer-batch", type=int, default=8)
    asked = options.parse_args()

    import torch

    from equipoise.kit.language.local import LanguageModel

    torch.set_num_threads(asked.threads)
    folder = peers.model_folder()
    data = items(asked.items)
    model = LanguageModel.load(folder)
    speed = peers.gflops()
    ours(model, data[:2])  # warm
    scores, took = peers.timed(lambda: ours(model, data))
    rate = len(data) / took["cpu"]
    peers.show(how="equipoise", items=len(data), items_per_cpu_s=round(rate, 3), **took)

    few = data[: asked.plain]
    alone, took_plain = peers.timed(lambda: plain(model, few))
    rate_plain = len(few) / took_plain["cpu"]
    peers.show(how="one by one", items=len(few), items_per_cpu_s=round(rate_plain, 3), **took_plain)

    # Least arithmetic: each context once, each option token but the last once, the
    # output layer at one place a context and one an option token but the first.
    body = 2 * sum(p.numel() for name, p in model.module.named_parameters() if "embed" not in name)
    head = 2 * model.module.get_output_embeddings().weight.numel()
    tokens = sum(len(model.tokenize(context)) for context, _ in data)
    further = sum(len(model.tokenize(o)) - 1 for _, options in data for o in options)
    work = (tokens + further) * body + (len(data) + further) * head
    limit = speed * 1e9 / (work / len(data))
    gaps = np.abs(scores[: len(few)] - alone)
    summary = {
        "how": "summary",
        "context_tokens": round(tokens / len(data), 1),
        "option_tokens": round(further / 4 / len(data) + 1, 2),
        "over_one_by_one": round(rate / rate_plain, 2),
        "largest_gap_to_one_by_one": float(gaps.max()),
        "matmul_gflops": round(speed, 1),
        "gflop_an_item": round(work / len(data) / 1e9, 2),
        "limit_items_per_cpu_s": round(limit, 2),
        "share_of_limit": round(rate / limit, 3),
    }
    peer = peers.lm_eval_model(folder, asked.peer_batch)
    if peer is None:
        summary["lm_eval"] = "not installed; left out"
    else:
        lm_eval(peer, data[:2])
        theirs, took_peer = peers.timed(lambda: lm_eval(peer, data))
        rate_peer = len(data) / took_peer["cpu"]
        peers.show(
            how=f"lm-eval, batch {asked.peer_batch}",
            items=len(data),
            items_per_cpu_s=round(rate_peer, 3),
            **took_peer,
        )
        summary |= {
            "over_lm_eval": round(rate / rate_peer, 2),
            "same_choices": float((scores.argmax(1) == theirs.argmax(1)).mean()),
            "largest_gap_to_lm_eval": float(np.abs(scores - theirs).max()),
        }
    peers.show(**summary, peak_mib=peers.peak_mib())


if __name__ == "__main__":
    main()
