"""Opening a treated subject from the cache, as a multiple of opening the plain folder.

    python benchmarks/treated_cache.py [--runs 5] [--threads 1]

Two ways, each in fresh processes in turn, once to warm the file cache: `plain`
loads SmolLM2's folder and scores one short text, `treated` does the same through
the engine's cache of treated subjects, which loads the plain folder and fills the
treated tensors into a skeleton of it. The text makes both read every weight they
compute with, which are mapped from the file and not read before. Imports are not
counted. Rows of JSON, then ratios of the medians of wall and processor seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE
from typing import Any

import _peers as peers

ARMS = ("plain", "rotate", "gptq")


def treatment(name: str) -> Any:
    from equipoise.methods.quantization.calibrated import GPTQ
    from equipoise.methods.quantization.rotated_runtime_smooth import Rotate

    return Rotate(4, 4) if name == "rotate" else GPTQ(4, samples=2, length=64)


def once(name: str, folder: str, threads: int) -> None:
    """Open a subject, score a text, and print how long each took."""
    import torch

    from equipoise.core import Rng
    from equipoise.kit.language import local
    from equipoise.kit.language.tiny import tiny_folder
    from equipoise.methods.language.hf import HuggingFace
    from equipoise.trial import subjects
    from equipoise.trial.trial import Arm

    torch.set_num_threads(threads)
    subjects.KEEP_ON_DISK_AFTER = 0.0
    subject = HuggingFace(folder)
    parts = () if name == "plain" else (treatment(name),)
    local.LanguageModel.load(tiny_folder())  # imports are not counted
    live, opened = peers.timed(lambda: subjects.treated(Arm(subject, parts), Rng(0), 0))
    _, scored = peers.timed(lambda: live.log_likelihood([("The river", " runs to the sea.")]))
    both = {key: round(opened[key] + scored[key], 3) for key in opened}
    peers.show(how=name, opened=opened, scored=scored, both=both)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--once", nargs=2, metavar=("ARM", "FOLDER"))
    asked = options.parse_args()
    if asked.once:
        once(*asked.once, asked.threads)
        return
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ARMS}
    with tempfile.TemporaryDirectory() as place:
        cache = {**os.environ, "EQUIPOISE_CACHE": place}
        folder = Path(place) / "plain"
        folder.mkdir()
        for file in peers.model_folder().iterdir():
            if file.name != "equipoise.json":  # what transformers would have written
                (folder / file.name).symlink_to(file)
        for run in range(-1, asked.runs):  # the first one fills the cache
            for name in ARMS:
                words = [sys.executable, __file__, "--threads", str(asked.threads)]
                words += ["--once", name, str(folder)]
                answer = subprocess.run(words, env=cache, check=True, stdout=PIPE, text=True)
                row = json.loads(answer.stdout.splitlines()[-1])
                peers.show(run=run, **row)
                if run >= 0:
                    found[name].append(row)
    middle = {
        (name, what, clock): statistics.median(row[what][clock] for row in rows)
        for name, rows in found.items()
        for what in ("opened", "both")
        for clock in ("wall", "cpu")
    }
    peers.show(
        how="summary",
        times_plain={
            f"{name}, {what}, {clock}": round(value / middle["plain", what, clock], 2)
            for (name, what, clock), value in middle.items()
            if name != "plain"
        },
        aim=1.3,
    )


if __name__ == "__main__":
    main()
