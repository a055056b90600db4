"""What the harness costs: trivial units through engine and store, beside two peers.

Prints JSON lines. The peers run in the interpreter that ``--peer`` names (a venv
with inspect-ai and lm-eval); without one only our own rows appear. Every row
counts the processor seconds of a whole process, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

OURS = """
import json, os, resource, sys, time
from equipoise.trial import load, run
result = run(load("trial.yaml"), store="store.sqlite")
spent = time.process_time()
assert result.errors == 0
size = sum(os.path.getsize(f) for f in os.listdir(".") if f.startswith("store.sqlite"))
print(json.dumps({"what": "equipoise", "units": result.units, "cpu": spent,
    "per_cpu_s": result.units / spent, "bytes_a_unit": size / result.units,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "torch": "torch" in sys.modules}))
"""

MANY = """
import json, resource, time
from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.trial.engine import run
from equipoise.trial.trial import Arm, Claim, Trial
import sys
trial = Trial("many", {"coin": Arm(Coin(0.5))}, {"toss": Tosses(int(sys.argv[1]))},
              [Claim("coin", "above", 0.4, "toss")])
result = run(trial, store="many.sqlite")
spent = time.process_time()
print(json.dumps({"what": "equipoise, many units", "units": result.units, "cpu": spent,
    "per_cpu_s": result.units / spent,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""

LOOP = """
import json, sqlite3, time, random, sys
began = time.process_time()
base = sqlite3.connect("loop.sqlite")
base.execute("pragma journal_mode=wal")
base.execute("create table o (unit text, score real, output text)")
for start in range(0, int(sys.argv[1]), 500):
    rows = []
    for i in range(start, start + 500):
        question = f"Say the word number {i}: default output"
        answer = "Default output"
        rows.append((f"q{i}", float("default output" in answer.lower()),
                     json.dumps({"question": question, "answer": answer})))
    with base:
        base.executemany("insert into o values (?, ?, ?)", rows)
spent = time.process_time() - began
print(json.dumps({"what": "a plain loop into SQLite", "units": int(sys.argv[1]), "cpu": spent,
                  "per_cpu_s": int(sys.argv[1]) / spent}))
"""

INSPECT = """
import json, os, resource, sys, time
from inspect_ai import Task, eval as run
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate
n = int(sys.argv[1])
def answers():
    while True:
        found = ModelOutput.from_content("mockllm", "Default output")
        found.usage = ModelUsage(input_tokens=10, output_tokens=2, total_tokens=12)
        yield found
samples = [Sample(id=f"q{i}", input=f"Say the word number {i}: default output",
                  target="Default output") for i in range(n)]
task = Task(dataset=MemoryDataset(samples), solver=[generate()], scorer=includes())
model = get_model("mockllm/model", custom_outputs=answers())
(log,) = run(task, model=model, max_connections=1000, max_samples=1000, display="none",
             log_dir="inspect", log_format="eval")
spent = time.process_time()
path = log.location.removeprefix("file://")
print(json.dumps({"what": "inspect", "units": n, "cpu": spent, "per_cpu_s": n / spent,
    "bytes_a_unit": os.path.getsize(path) / n,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""

LM_EVAL = """
import json, os, resource, sys, time
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
import lm_eval
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager
os.makedirs("tasks", exist_ok=True)
with open("tasks/ask.yaml", "w") as file:
    file.write(f'''task: ask
dataset_path: json
dataset_kwargs: {{data_files: {{test: {os.getcwd()}/items.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\\\n"], max_gen_toks: 8}}
metric_list: [{{metric: exact_match}}]
''')
manager = TaskManager(include_path="tasks", include_defaults=False)
found = lm_eval.simple_evaluate(model=get_model("dummy")(), tasks=["ask"], task_manager=manager,
                                log_samples=True)
spent = time.process_time()
n = len(found["samples"]["ask"])
print(json.dumps({"what": "lm-evaluation-harness", "units": n, "cpu": spent,
    "per_cpu_s": n / spent,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def measure(python: str, code: str, folder: Path, *words: str) -> dict | None:
    """Run a script in a process of its own and return the row it prints last."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    environment["TQDM_DISABLE"] = "1"
    done = subprocess.run(
        [python, "-c", code, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(json.dumps({"what": "failed", "why": done.stderr.strip()[-300:]}), flush=True)
        return None
    print(lines[-1], flush=True)
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=5_000)
    parser.add_argument("--many", type=int, default=1_000_000, help="units for the memory row")
    parser.add_argument("--peer", help="a Python with inspect-ai and lm-eval")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        items = [
            {"id": f"q{i}", "question": f"Say the word number {i}: default output",
             "answer": "Default output"}
            for i in range(words.units)
        ]  # fmt: skip
        (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        (folder / "trial.yaml").write_text(
            "trial: overhead\n"
            "subject: {scripted: {constant: Default output}}\n"
            "arms: {plain: []}\n"
            "tasks: {ask: {free_response: {data: items.jsonl, match: contains}}}\n"
            "claims: [{arm: plain, above: 0.5, on: ask}]\n"
        )
        ours = measure(sys.executable, OURS, folder)
        measure(sys.executable, LOOP, folder, str(words.units))
        if words.many:
            measure(sys.executable, MANY, folder, str(words.many))
        for code in (INSPECT, LM_EVAL) if words.peer else ():
            peer = measure(words.peer, code, folder, str(words.units))
            if ours and peer:
                ratio = ours["per_cpu_s"] / peer["per_cpu_s"]
                row = {"what": f"equipoise / {peer['what']}, units a CPU second", "ratio": ratio}
                if "bytes_a_unit" in peer:
                    row["bytes"] = ours["bytes_a_unit"] / peer["bytes_a_unit"]
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
