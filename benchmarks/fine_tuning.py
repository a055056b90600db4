"""Fine-tuning SmolLM2: speed beside transformers' Trainer, memory of LoRA beside full.

    python benchmarks/fine_tuning.py [--steps 6] [--batch 4] [--length 128] [--threads 1]

Every row is a process of its own: the same windows of prose, float32, AdamW, gradients
clipped. Processor seconds a step are the median of all steps but the first; memory is the
peak of the whole process, the untreated model included where a treatment keeps it. Rows of
JSON; the last one holds the ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import _peers as peers

ROWS = {
    "equipoise, full": {"method": "full"},
    "transformers Trainer, full": {},
    "equipoise, lora": {"method": "lora"},
    "equipoise, lora, activations kept": {"method": "lora", "gradient_checkpointing": False},
}
DATA = "builtin:python_topics"


def model() -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from equipoise.kit.language.local import LanguageModel

    folder = peers.model_folder()
    module = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    return LanguageModel(module, AutoTokenizer.from_pretrained(folder), name="smollm2")


def ours(asked: argparse.Namespace, ticks: list[float], **how: Any) -> list[float]:
    from equipoise.core import Rng
    from equipoise.kit.about import about
    from equipoise.kit.progress import listening
    from equipoise.methods.training.fine_tune import FineTune

    part = FineTune(DATA, steps=asked.steps, batch=asked.batch, length=asked.length, **how)
    with listening(lambda *_: ticks.append(time.process_time())):
        treated = part.apply(model(), Rng(0))
    return [loss for _, loss in about(treated)["curves"]["loss"]]


def trainer(asked: argparse.Namespace, ticks: list[float]) -> list[float]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from equipoise.kit.data import read_texts
    from equipoise.kit.language._prompts import Prompts
    from equipoise.kit.language.lessons import windows

    live = model()
    lessons = windows(read_texts(DATA), Prompts(live.tokenizer, "smollm2"), asked.length)[:-1]
    rows = [{"input_ids": list(each.ids), "labels": list(each.ids)} for each in lessons]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ticks.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=asked.steps, per_device_train_batch_size=asked.batch,
            learning_rate=2e-5, lr_scheduler_type="cosine", warmup_steps=0.05, use_cpu=True,
            report_to=[], save_strategy="no", logging_strategy="steps", logging_steps=1,
            disable_tqdm=True,
        )  # fmt: skip
        peer = Trainer(live.module, arguments, train_dataset=rows, callbacks=[Clock()])
        peer.train()
    return [row["loss"] for row in peer.state.log_history if "loss" in row]


def measure(name: str, asked: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(asked.threads)
    ticks: list[float] = []
    losses = (trainer if "Trainer" in name else ours)(asked, ticks, **ROWS[name])
    steps = [after - before for before, after in itertools.pairwise(ticks)]
    peers.show(
        how=name,
        cpu_a_step=round(statistics.median(steps), 3),
        peak_mib=peers.peak_mib(),
        first_loss=round(losses[0], 4),
        last_loss=round(losses[-1], 4),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=6)
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--length", type=int, default=128)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--row", choices=ROWS, help="measure one row in this process")
    asked = options.parse_args()
    if asked.row:
        measure(asked.row, asked)
        return
    peers.model_folder()  # made before any row is measured
    found = {}
    for name in ROWS:
        words = [sys.executable, __file__, *sys.argv[1:], "--row", name]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"how"')]
        if not lines:
            peers.show(how=name, failed=done.stderr.strip()[-300:])
            continue
        found[name] = json.loads(lines[-1])
        peers.show(**found[name])
    if len(found) < len(ROWS):
        return
    full, lora = found["equipoise, full"], found["equipoise, lora"]
    peers.show(
        how="summary",
        steps_a_cpu_second_over_trainer=round(
            found["transformers Trainer, full"]["cpu_a_step"] / full["cpu_a_step"], 3
        ),
        lora_over_full_peak_memory=round(lora["peak_mib"] / full["peak_mib"], 3),
        lora_over_full_cpu_a_step=round(lora["cpu_a_step"] / full["cpu_a_step"], 3),
        lora_activations_kept_over_full_peak_memory=round(
            found["equipoise, lora, activations kept"]["peak_mib"] / full["peak_mib"], 3
        ),
    )


if __name__ == "__main__":
    main()
