"""make_model.py CONFIG.json FOLDER [--llama-cpp SOURCE]: a benchmark model as a folder of transformers, and as GGUF."""

import argparse
import json
import os

import gguf_file
import model as models

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("config")
parser.add_argument("folder")
parser.add_argument("--llama-cpp", help="source folder of llama.cpp; without it no model.gguf is written")
arguments = parser.parse_args()

config = models.read_config(arguments.config)
model = models.random_model(config)
model.save_pretrained(arguments.folder)
if arguments.llama_cpp:
    gguf_file.write_gguf(arguments.llama_cpp, model, os.path.join(arguments.folder, "model.gguf"))

experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
total = sum(p.numel() for p in model.parameters())
read = total - experts + experts * config.num_experts_per_tok // config.n_routed_experts
read -= config.vocab_size * config.hidden_size  # one row of the embedding
print(json.dumps({"model": arguments.folder, "parameters": total, "parameters_of_a_token": read}))
