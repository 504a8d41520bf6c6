"""check_log_probs.py MODEL: the same ids through transformers, llama.cpp and furlong; how far log-probs are apart."""

import argparse
import json
import os
import subprocess
import sys

import torch

import model as models
from lines import print_line, say

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="folder that make_model.py wrote")
parser.add_argument("--furlong", help="the program")
parser.add_argument("--llama-bench", help="the program that setup.sh built")
parser.add_argument("--length", type=int, default=200)
parser.add_argument("--limit", type=float, default=1e-3, help="largest difference that counts as agreement")
arguments = parser.parse_args()

torch.set_num_threads(1)
model = models.load_model(arguments.model)
random = torch.Generator().manual_seed(5)
ids = torch.randint(5, 4000, (1, arguments.length), generator=random)
with torch.no_grad():
    log_probs = model(input_ids=ids, use_cache=False).logits.double().log_softmax(-1)
wanted = log_probs[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
numbers = ids[0].tolist()


def output_of(command, text):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def furlong(*options):
    command = [arguments.furlong, "score", arguments.model, "--profile=f32", "--threads=1", *options]
    return json.loads(output_of(command, json.dumps({"ids": numbers}) + "\n"))["log_probs"]


answers = {}
if arguments.furlong:
    answers["furlong engine"] = furlong("--side=engine")
    answers["furlong actor"] = furlong("--side=actor")
gguf = os.path.join(arguments.model, "model.gguf")
if arguments.llama_bench and os.path.exists(gguf):
    answers["llama.cpp"] = json.loads(output_of([arguments.llama_bench, "score", gguf], " ".join(map(str, numbers))))
elif arguments.llama_bench:
    say(f"skipped llama.cpp: there is no {gguf}")

worst = 0.0
for name, answer in answers.items():
    apart = (torch.tensor(answer, dtype=torch.float64) - wanted).abs()
    worst = max(worst, apart.max().item())
    print_line(what="log_probs", a="transformers", b=name, tokens=len(answer), max_apart=float(f"{apart.max():.3g}"))
sys.exit(worst > arguments.limit)
