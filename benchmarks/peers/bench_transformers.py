"""bench_transformers.py MODEL: transformers alone. Generation at batch 1 and 64, and forward and backward."""

import argparse

import torch

import model as models
from lines import best_of, load, print_line

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="folder that make_model.py wrote")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeat", type=int, default=3)
parser.add_argument("--prompt", type=int, default=16)
parser.add_argument("--new", type=int, default=64)
parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
parser.add_argument("--train-rows", type=int, default=64, help="rows of 64 tokens; 0: no forward and backward")
arguments = parser.parse_args()

torch.set_num_threads(arguments.threads)
model = models.load_model(arguments.model)
random = torch.Generator().manual_seed(7)
common = {"peer": "transformers", "threads": arguments.threads}

for batch in arguments.batches:
    ids = torch.randint(5, 4000, (batch, arguments.prompt), generator=random)
    before = load()

    def generate():
        model.generate(
            ids,
            max_new_tokens=arguments.new,
            min_new_tokens=arguments.new,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            pad_token_id=2,
        )

    watch = best_of(arguments.repeat, generate)
    tokens = batch * arguments.new
    print_line(
        **common,
        what="generate",
        batch=batch,
        prompt=arguments.prompt,
        new=arguments.new,
        seconds=watch.seconds,
        cpu_s=watch.cpu,
        tokens_per_s=tokens / watch.seconds,
        load=before,
    )

if arguments.train_rows > 0:
    model.train()
    ids = torch.randint(5, 4000, (arguments.train_rows, 64), generator=random)
    before = load()

    def learn():
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        model.zero_grad()

    watch = best_of(arguments.repeat, learn)
    print_line(
        **common,
        what="forward_backward",
        rows=arguments.train_rows,
        length=64,
        seconds=watch.seconds,
        cpu_s=watch.cpu,
        tokens_per_s=ids.numel() / watch.seconds,
        load=before,
    )
