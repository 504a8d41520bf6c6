"""Cuts oracle_quant.jsonl out of the reference dumps: a weight as bf16, and the codes and scale bytes that it must give.

    python make_oracle_quant.py ORACLE_FOLDER > oracle_quant.jsonl     (needs torch and safetensors)
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

EXAMPLES = [  # dump, weights, name in the dump, name in the weights
    ("tiny_q_fp8", "tiny_q/params", "layers.2.attn.wo_a.weight", "layers.2.attn.wo_a.weight"),
    ("tiny_q_fp8", "tiny_q/params", "layers.0.ffn.experts.2.w2.weight", "layers.0.ffn.experts.2.w2.weight"),
    ("tiny_q_fp8_fp4", "tiny_q/params", "layers.0.ffn.experts.2.w2.weight", "layers.0.ffn.experts.2.w2.weight"),
    ("tiny_v4_fp8", "tiny_v4/model", "layers.0.attn.wq_b.weight", "model.layers.0.attn.wq_b.weight"),
    ("tiny_v4_fp8", "tiny_v4/model", "layers.2.ffn.experts.1.w2.weight", "model.layers.2.ffn.experts.1.w2.weight"),
    ("tiny_v4_fp8_fp4", "tiny_v4/model", "layers.2.ffn.experts.1.w2.weight", "model.layers.2.ffn.experts.1.w2.weight"),
]

oracle = Path(sys.argv[1])
for dump, weights, name, stored in EXAMPLES:
    quantised = load_file(oracle / "profiles" / f"{dump}.safetensors")
    weight = load_file(oracle / f"{weights}.safetensors")[stored].bfloat16().contiguous()
    codes, scales = quantised[f"quant.{name}.bytes"], quantised[f"quant.{name}.scales"]
    print(json.dumps({
        "name": f"{dump}/{name}",
        "format": "e4m3" if codes.shape == weight.shape else "e2m1",
        "shape": list(weight.shape),
        "bf16_hex": weight.view(torch.uint8).numpy().tobytes().hex(),
        "codes_hex": codes.numpy().tobytes().hex(),
        "scale_shape": list(scales.shape),
        "scales_hex": scales.numpy().tobytes().hex(),
    }))
