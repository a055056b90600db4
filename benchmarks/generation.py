"""Greedy generation: equipoise against lm-evaluation-harness and transformers.

    python benchmarks/generation.py [--prompts 50] [--tokens 64] [--fixed 8 16 32 50]

Prompts of 20 to 80 tokens, the same number of new tokens each: the end of text
is ignored by us and suppressed by the peers. Rows of JSON; the last one holds
the ratios. A peer that does not import is left out, and the row says so.
"""

from __future__ import annotations

import argparse
from typing import Any

import _peers as peers


def prompts(count: int) -> list[str]:
    rng = peers.generator()
    return [
        "Write a story with these words: "
        + " ".join(rng.choice(peers.WORDS) for _ in range(rng.randint(10, 60)))
        for _ in range(count)
    ]


def ours(model: Any, texts: list[str], tokens: int, size: int | None) -> list[str]:
    from equipoise.core import Request

    model.batch_size = size
    found = model.generate([Request(text, max_tokens=tokens) for text in texts])
    assert all(each.usage.output_tokens == tokens for each in found)
    return [each.text for each in found]


def transformers(model: Any, texts: list[str], tokens: int, size: int) -> list[str]:
    import torch

    found: dict[str, str] = {}
    tokenizer = model.tokenizer
    tokenizer.padding_side = "left"
    waiting = sorted(texts, key=lambda text: -len(text))
    while waiting:
        batch, waiting = waiting[:size], waiting[size:]
        given = tokenizer(batch, return_tensors="pt", padding=True)
        with torch.no_grad():
            made = model.module.generate(
                **given, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
            )
        for text, ids in zip(batch, made, strict=True):
            found[text] = tokenizer.decode(ids[-tokens:], skip_special_tokens=True)
    return [found[text] for text in texts]


def lm_eval(peer: Any, texts: list[str], tokens: int) -> list[str]:
    from lm_eval.api.instance import Instance

    asked = {
        "until": [],
        "max_gen_toks": tokens,
        "min_new_tokens": tokens,
        "do_sample": False,
    }
    requests = [
        Instance("generate_until", {}, (text, dict(asked)), number, metadata=("gen", number, 1))
        for number, text in enumerate(texts)
    ]
    return list(peer.generate_until(requests, disable_tqdm=True))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--prompts", type=int, default=50)
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--fixed", type=int, nargs="+", default=[8, 16, 32, 50])
    options.add_argument("--peer-batch", type=int, default=8)
    options.add_argument("--threads", type=int, default=1)
    asked = options.parse_args()

    import torch

    from equipoise.kit.language import generation
    from equipoise.kit.language.local import LanguageModel

    torch.set_num_threads(asked.threads)
    generation._ends = lambda *_: frozenset()  # every run does the same work
    folder = peers.model_folder()
    model = LanguageModel.load(folder)
    texts = prompts(asked.prompts)
    made = asked.prompts * asked.tokens
    ours(model, texts[:2], 4, None)  # warm
    rates: dict[str, float] = {}
    answers: dict[str, list[str]] = {}
    runs: list[tuple[str, Any]] = [
        (
            f"equipoise, batch {size or 'automatic'}",
            lambda size=size: ours(model, texts, asked.tokens, size),
        )
        for size in (None, *asked.fixed)
    ]
    runs.append(
        (
            f"transformers.generate, batch {asked.peer_batch}",
            lambda: transformers(model, texts, asked.tokens, asked.peer_batch),
        )
    )
    peer = peers.lm_eval_model(folder, asked.peer_batch)
    if peer is not None:
        runs.append(
            (f"lm-eval, batch {asked.peer_batch}", lambda: lm_eval(peer, texts, asked.tokens))
        )
    for how, work in runs:
        answers[how], took = peers.timed(work)
        rates[how] = made / took["cpu"]
        peers.show(
            how=how,
            tokens=made,
            tokens_per_cpu_s=round(rates[how], 1),
            **took,
            peak_mib=peers.peak_mib(),
        )
    automatic = answers["equipoise, batch automatic"]
    same = f"equipoise, batch {asked.peer_batch}"
    summary: dict[str, Any] = {
        "how": "summary",
        "automatic_over_best_fixed": round(
            rates["equipoise, batch automatic"]
            / max(rates[f"equipoise, batch {size}"] for size in asked.fixed),
            3,
        ),
        "same_text_as_automatic": {
            how: sum(a == b for a, b in zip(found, automatic, strict=True)) / len(texts)
            for how, found in answers.items()
        },
    }
    for how, rate in rates.items():
        if not how.startswith("equipoise") and same in rates:
            summary[f"batch {asked.peer_batch} over {how}"] = round(rates[same] / rate, 2)
    if peer is None:
        summary["lm_eval"] = "not installed; left out"
    peers.show(**summary)


if __name__ == "__main__":
    main()
