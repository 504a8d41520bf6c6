"""The other side of transformers_test.cpp.

    transformers_peer.py make OUT          a small random DeepSeek-V4: OUT/saved by save_pretrained, OUT/run_time in run-time names
    transformers_peer.py compare A B DTYPE loads both folders with transformers; every tensor of B must be that of A, rounded to
                                           DTYPE (float32 or bfloat16) except those that a checkpoint keeps in f32
    transformers_peer.py dequantise P F    reads the published FP4 + FP8 layout in P with the safetensors package, dequantises it by
                                           the formulas of the specification, and compares every tensor with the f32 folder F
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

torch.set_num_threads(1)
WINDOW, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
KEPT_F32 = ("sinks", "position_bias", "e_score_correction_bias", "hc.fn", "hc.base", "hc.scale", "hc_fn", "hc_base", "hc_scale", "tid2eid",
            "compressor.kv_norm.weight", "indexer.kv_norm.weight")  # norms of compressors: f32 where they came as f32


def make(out):
    torch.manual_seed(5)
    config = DeepseekV4Config(
        vocab_size=96, hidden_size=48, moe_intermediate_size=24, num_hidden_layers=4, num_attention_heads=4, head_dim=32,
        partial_rotary_factor=0.25, q_lora_rank=40, o_groups=2, o_lora_rank=20, layer_types=[WINDOW, CSA, HCA, CSA],
        compress_rates={CSA: 4, HCA: 16}, mlp_layer_types=["hash_moe"] * 2 + ["moe"] * 2, n_routed_experts=5, num_experts_per_tok=2,
        sliding_window=8, index_n_heads=4, index_head_dim=16, index_topk=3, swiglu_limit=10.0, num_nextn_predict_layers=1,
        max_position_embeddings=1024, pad_token_id=None, tie_word_embeddings=False,
        rope_parameters={"main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
                         "compress": {"rope_type": "yarn", "rope_theta": 160000.0, "partial_rotary_factor": 0.25, "factor": 16.0,
                                      "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
                                      "attention_factor": 1.0}})
    model = DeepseekV4ForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape))
            if name.endswith("tid2eid"):
                buffer.copy_(torch.stack([torch.randperm(5)[:2] for _ in range(buffer.shape[0])]))
    model.save_pretrained(out / "saved")
    run_time = out / "run_time"
    run_time.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, run_time / "model.safetensors")
    (run_time / "config.json").write_text((out / "saved" / "config.json").read_text())


def load(folder):
    model, info = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(kind), f"{folder}: {kind}: {info[kind]}"
    return model


def compare(a, b, dtype):
    first, second = load(a), load(b)
    tensors, others = first.state_dict(), second.state_dict()
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        wanted = tensor if name.endswith(KEPT_F32) else tensor.to(dtype).to(tensor.dtype)
        assert torch.equal(wanted, others[name]), f"{name} differs"
    ids = torch.arange(40).unsqueeze(0)
    if dtype == torch.float32:
        assert torch.equal(first(ids).logits, second(ids).logits), "logits differ"
    print(json.dumps({"tensors": len(tensors)}))


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def dequantised(codes, scales):
    assert scales.dtype == torch.float8_e8m0fnu, scales.dtype
    factors = torch.ldexp(torch.ones(()), scales.view(torch.uint8).int() - 127)
    if codes.dtype == torch.float8_e4m3fn:
        values, block = codes.float(), (128, 128)
    else:
        assert codes.dtype == torch.int8, codes.dtype
        bytes_ = codes.view(torch.uint8).long()
        values, block = torch.stack([E2M1[bytes_ & 15], E2M1[bytes_ >> 4]], -1).flatten(-2), (1, 32)
    spread = factors.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return values * spread[: values.shape[0], : values.shape[1]]


def dequantise(published, wide):
    stored, wanted = load_file(published / "model.safetensors"), load_file(wide / "model.safetensors")
    num_quantised = 0
    for name, tensor in wanted.items():
        value, scales = stored.pop(name), stored.pop(name.removesuffix("weight") + "scale", None)
        if scales is not None:
            value, num_quantised = dequantised(value, scales), num_quantised + 1
        assert torch.equal(value.to(tensor.dtype), tensor), f"{name} differs"
    assert not stored, f"left over: {sorted(stored)}"
    assert num_quantised > 50, num_quantised


if sys.argv[1] == "make":
    make(Path(sys.argv[2]))
elif sys.argv[1] == "compare":
    compare(Path(sys.argv[2]), Path(sys.argv[3]), getattr(torch, sys.argv[4]))
else:
    dequantise(Path(sys.argv[2]), Path(sys.argv[3]))
