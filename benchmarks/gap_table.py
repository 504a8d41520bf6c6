#!/usr/bin/env python3
"""The gap between rollout and actor over a training run, for combinations of precision.

usage: benchmarks/gap_table.py [--steps 100] [--seed 0] [--out runs/gap] [--start MODEL] [--only NAME]...

Trains the demo once per row, from the same policy (MODEL; by default the demo's after its warm-up and one step, made here)
with the same data and seed, and prints a Markdown table of |log-prob of the actor -
log-prob that the engine reported| in nats: mean over all tokens of all steps, the mean over steps of each step's 99th
percentile, and the largest of any token. Needs a built program (./dev build) and the demo's data (./dev demo makes them).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROWS = {
    # name: (engine profile, actor profile, further settings)
    "f32 / f32": ("f32", "f32", []),
    "bf16 / bf16": ("bf16", "bf16", []),
    "fp8 / fp8": ("fp8", "fp8", []),
    "fp8_fp4 / fp8_fp4": ("fp8_fp4", "fp8_fp4", []),
    "fp8 / bf16": ("fp8", "bf16", []),
    "fp8 / bf16, routing replay": ("fp8", "bf16", ["actor.routing_replay=true"]),
    "fp8 / bf16, TIS": ("fp8", "bf16", ["actor.loss.tis=true"]),
    "fp8 / bf16, KV simulation": ("fp8", "bf16", ["actor.simulate_kv=true"]),
    "fp8 / bf16, KV and indexer simulation": ("fp8", "bf16", ["actor.simulate_kv=true", "actor.simulate_index=true"]),
    "fp8 / bf16, both simulations, routing replay": (
        "fp8", "bf16", ["actor.simulate_kv=true", "actor.simulate_index=true", "actor.routing_replay=true"]),
}


def start_policy(root, out, seed):
    folder = out / "start"
    if not (folder / "model").exists():
        subprocess.run([root / "build/release/furlong", "train", root / "recipes/demo.toml", f"--run.dir={folder}", "--run.steps=1",
                        f"--run.seed={seed}", "--eval.at_start=false", "--eval.at_end=false"], cwd=root, check=True)
    return folder / "model"


def run(root, name, start, arguments, out):
    steps, seed = arguments.steps, arguments.seed
    engine, actor, settings = ROWS[name]
    folder = out / name.replace(" / ", "-").replace(", ", "-").replace(" ", "_")
    command = [root / "build/release/furlong", "train", root / "recipes/demo.toml", f"--run.dir={folder}",
               f"--run.steps={steps}", f"--run.seed={seed}", "--model.config=", f"--model.path={start}", "--warmup.steps=0",
               "--eval.every=0", "--eval.at_start=false", "--eval.at_end=false", f"--checkpoint.every={steps}", f"--rollout.engine.profile={engine}", f"--actor.profile={actor}"]
    command += [f"--{setting}" for setting in settings]
    begin = time.monotonic()
    with open(out / (folder.name + ".log"), "w") as log:
        code = subprocess.run(command, cwd=root, stdout=log, stderr=log).returncode
    if code != 0:
        sys.exit(f"{name}: exit code {code}, see {log.name}")
    steps_read = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    steps_read = [step for step in steps_read if "gap/mean" in step]
    return steps_read, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/gap"))
    parser.add_argument("--start", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=list(ROWS))
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    out = (root / arguments.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    start = arguments.start.resolve() if arguments.start else start_policy(root, out, arguments.seed)
    print(f"load {os.getloadavg()[0]:.1f}, {arguments.steps} steps, seed {arguments.seed}\n")
    print("| engine / actor | mean | p99 | max | reward, last 10 steps | time |\n|---|---|---|---|---|---|", flush=True)
    for name in arguments.only or ROWS:
        steps, seconds = run(root, name, start, arguments, out)
        mean = sum(step["gap/mean"] for step in steps) / len(steps)
        p99 = sum(step["gap/p99"] for step in steps) / len(steps)
        largest = max(step["gap/max"] for step in steps)
        reward = sum(step["reward/mean"] for step in steps[-10:]) / len(steps[-10:])
        print(f"| {name} | {mean:.2g} | {p99:.2g} | {largest:.2g} | {reward:.3f} | {seconds:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
