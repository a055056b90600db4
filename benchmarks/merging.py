"""Merging four models of 135M parameters: equipoise against mergekit.

    python benchmarks/merging.py [--models 4] [--method linear ties]

Models are SmolLM2 and copies with noise, made in a temporary folder. Each merge
is a process of its own, from folders to a folder, so that its processor seconds
and its peak memory are whole; tensors are compared afterwards. Rows of JSON; a
peer that does not import is left out, and the row says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _peers as peers

DENSITY = 0.2

# A child's ru_maxrss begins at its parent's size, so each process tells its own high-water mark.
_PEAK = """
with open("/proc/self/status") as status:
    peak = next(line for line in status if line.startswith("VmHWM")).split()[1]
print(peak, file=sys.stderr)
"""

OURS = """
import sys
import torch
from functools import partial
from safetensors.torch import save_file
from equipoise.methods.merging import WeightFiles, average, merged, ties, trim_thresholds
torch.set_num_threads(int(sys.argv[4]))
base, *models = (WeightFiles(each) for each in sys.argv[5:])
rule = average
if sys.argv[1] == "ties":
    found = trim_thresholds(base, models, float(sys.argv[3]), by_tensor=True)
    rule = {name: partial(ties, thresholds=least) for name, least in found.items()}
save_file(merged(base, models, rule), sys.argv[2] + "/model.safetensors",
          metadata={"format": "pt"})
"""

IN_A_TRIAL = """
import sys
import torch
from equipoise.core import Rng
from equipoise.kit.language.local import LanguageModel
from equipoise.methods.language.hf import HuggingFace
from equipoise.methods.merging.averaging import WeightAverage
from equipoise.methods.merging.task_vectors import Ties
torch.set_num_threads(int(sys.argv[4]))
models = tuple(HuggingFace(each) for each in sys.argv[6:])
part = WeightAverage(models) if sys.argv[1] == "linear" else Ties(
    models, density=float(sys.argv[3]), trim="tensor")
part.apply(LanguageModel.load(sys.argv[5]), Rng(0)).save(sys.argv[2])
"""

MERGEKIT = """
import sys
import torch
from mergekit.config import MergeConfiguration
from mergekit.merge import MergeOptions, run_merge
torch.set_num_threads(int(sys.argv[4]))
base, *models = sys.argv[5:]
linear = sys.argv[1] == "linear"
setting = {"weight": 1 / len(models)} if linear else {"weight": 1.0, "density": float(sys.argv[3])}
config = {"merge_method": sys.argv[1], "dtype": "float32",
          "models": [{"model": each, "parameters": setting} for each in models]}
if not linear:
    config |= {"base_model": base, "parameters": {"normalize": True, "lambda": 1.0}}
run_merge(MergeConfiguration.model_validate(config), sys.argv[2],
          MergeOptions(copy_tokenizer=False, quiet=True, write_model_card=False))
"""


def copies(folder: Path, count: int) -> list[Path]:
    """Return folders of models that differ from SmolLM2 by noise."""
    import torch
    from safetensors.torch import load_file, save_file

    source = peers.model_folder()
    made = [source]
    for number in range(count):
        place = folder / f"model-{number}"
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.safetensors"))
        draw = torch.Generator().manual_seed(number)
        tensors = load_file(source / "model.safetensors")
        for name, tensor in tensors.items():
            noise = torch.randn(tensor.shape, generator=draw)
            tensors[name] = tensor + 0.02 * tensor.std() * noise
        save_file(tensors, str(place / "model.safetensors"), metadata={"format": "pt"})
        made.append(place)
    return made


def measure(code: str, *words: str) -> dict[str, float] | None:
    """Run a script in a process of its own; return what it cost, or None if it failed."""
    import time

    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code + _PEAK, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        peers.show(how="failed", why=said.decode().strip()[-300:])
        return None
    return {
        "cpu": round(used.ru_utime + used.ru_stime, 2),
        "wall": round(time.perf_counter() - began, 2),
        "peak_mib": int(said.split()[-1]) // 1024,
    }


def largest_gap(one: Path, other: Path) -> float:
    """Return the largest difference between two folders' tensors."""
    from equipoise.kit.torch.weight_files import WeightFiles

    a, b = WeightFiles(one), WeightFiles(other)
    return max(float((a[name] - b[name]).abs().max()) for name in a if name in b)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--models", type=int, default=4)
    options.add_argument("--method", nargs="+", default=["linear", "ties"])
    options.add_argument("--threads", type=int, default=1)
    asked = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = copies(folder, asked.models)
        size = (models[0] / "model.safetensors").stat().st_size / 2**20
        for method in asked.method:
            found: dict[str, Any] = {}
            for how, code in (
                ("equipoise", OURS), ("equipoise, a treatment", IN_A_TRIAL), ("mergekit", MERGEKIT),
            ):  # fmt: skip
                out = folder / f"{method}-{how.replace(', ', '-').replace(' ', '-')}"
                out.mkdir()
                words = (method, str(out), str(DENSITY), str(asked.threads), *map(str, models))
                found[how] = measure(code, *words)
                if found[how] is None:
                    continue
                row = found[how] | {"models": found[how]["peak_mib"] / size}
                peers.show(how=how, method=method, **row)
                if how != "equipoise":
                    first = folder / f"{method}-equipoise"
                    peers.show(how=how, method=method, largest_difference=largest_gap(first, out))
            if found["equipoise"] and found["mergekit"]:
                for clock in ("cpu", "wall"):
                    ratio = found["equipoise"][clock] / found["mergekit"][clock]
                    peers.show(what=f"{method}, equipoise / mergekit", clock=clock, ratio=ratio)


if __name__ == "__main__":
    main()
