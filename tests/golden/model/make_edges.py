"""Makes the fixture of the quantised profiles: a small DeepSeek-V4 whose sizes leave partial blocks everywhere, and reference dumps by profile_ref.py.

    python make_edges.py [OUT=edges]                 needs only torch and safetensors

Edges on purpose: hidden 132 = 128+4, moe_intermediate 36 = 32+4, non-rope dims 68 = 64+4, index_head_dim 64 = 2*32, q_lora 36, o_groups*o_lora 2*66 = 128+4
(weight blocks and activation groups cross the o-group border); an all-zero edge block, an all-zero fp4 group, groups with a tiny maximum (1e-20, 1e-30),
amax exactly 448*2^k and 6*2^k, and one bf16 ulp above. Matrices and norms are stored bf16 (what spec 6.2 stores), gate.bias, sinks, ape and mHC f32.
"""
import json, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
sys.path.insert(0, str(Path(__file__).resolve().parent))
import profile_ref

D, V, HD, RD, NH, QL, G, OL, E, K, MI, HC, IH, ID = 132, 64, 72, 4, 2, 36, 2, 66, 4, 2, 36, 2, 8, 64
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
RATES, KINDS = {CSA: 4, HCA: 8}, ["sliding_attention", CSA, HCA]
YARN = dict(rope_type="yarn", rope_theta=400.0, partial_rotary_factor=RD / HD, factor=4.0, original_max_position_embeddings=512, beta_fast=32.0, beta_slow=1.0, attention_factor=1.0)
CONFIG = dict(
    architectures=["DeepseekV4ForCausalLM"], model_type="deepseek_v4", vocab_size=V, hidden_size=D, num_hidden_layers=len(KINDS), num_attention_heads=NH,
    num_key_value_heads=1, head_dim=HD, qk_rope_head_dim=RD, partial_rotary_factor=RD / HD, q_lora_rank=QL, o_groups=G, o_lora_rank=OL, sliding_window=8,
    layer_types=KINDS, compress_rates=RATES, mlp_layer_types=["hash_moe", "moe", "moe"], n_routed_experts=E, num_experts_per_tok=K, n_shared_experts=1,
    moe_intermediate_size=MI, scoring_func="sqrtsoftplus", norm_topk_prob=True, routed_scaling_factor=1.5, swiglu_limit=4.0, index_n_heads=IH, index_head_dim=ID,
    index_topk=3, hc_mult=HC, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-6, rope_theta=10000.0, compress_rope_theta=400.0, max_position_embeddings=2048,
    num_nextn_predict_layers=1, tie_word_embeddings=False, attention_bias=False, hidden_act="silu", bos_token_id=0, eos_token_id=1, dtype="bfloat16",
    rope_parameters=dict(main=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=RD / HD), compress=YARN))
EXAMPLES = ("layers.2.attn.wo_a.weight", "layers.0.ffn.experts.2.w2.weight")

gen = torch.Generator().manual_seed(4711)
P = {}
normal = lambda *shape: torch.randn(*shape, generator=gen)


def matrix(name, out, inp, gain=1.2):
    P[name] = (normal(out, inp) * gain * inp ** -0.5).bfloat16()


def norm(name, n):
    P[name] = (1 + 0.1 * normal(n)).bfloat16()


def mhc(prefix, rows, scales):
    P[prefix + "_fn"], P[prefix + "_base"] = normal(rows, HC * D) * 0.06, normal(rows) * 0.5
    P[prefix + "_scale"] = torch.rand(scales, generator=gen) + 0.5


def compressor(p, r, c, width):
    P[p + ".ape"] = normal(r, c * width) * 0.5
    matrix(p + ".wkv.weight", c * width, D), matrix(p + ".wgate.weight", c * width, D), norm(p + ".norm.weight", width)


def block(p, kind, hashed):
    norm(p + "attn_norm.weight", D), norm(p + "ffn_norm.weight", D)
    mhc(p + "hc_attn", (2 + HC) * HC, 3), mhc(p + "hc_ffn", (2 + HC) * HC, 3)
    a, f = p + "attn.", p + "ffn."
    matrix(a + "wq_a.weight", QL, D), norm(a + "q_norm.weight", QL), matrix(a + "wq_b.weight", NH * HD, QL)
    matrix(a + "wkv.weight", HD, D), norm(a + "kv_norm.weight", HD), matrix(a + "wo_a.weight", G * OL, NH * HD // G), matrix(a + "wo_b.weight", D, G * OL)
    P[a + "attn_sink"] = normal(NH)
    if kind in RATES:
        compressor(a + "compressor", RATES[kind], 2 if kind == CSA else 1, HD)
    if kind == CSA:
        matrix(a + "indexer.wq_b.weight", IH * ID, QL), matrix(a + "indexer.weights_proj.weight", IH, D), compressor(a + "indexer.compressor", 4, 2, ID)
    matrix(f + "gate.weight", E, D)
    if hashed:
        P[f + "gate.tid2eid"] = torch.stack([torch.randperm(E, generator=gen)[:K] for _ in range(V)])
    else:
        P[f + "gate.bias"] = normal(E) * 0.2
    for e in [f + f"experts.{i}." for i in range(E)] + [f + "shared_experts."]:
        matrix(e + "w1.weight", MI, D, 1.6), matrix(e + "w3.weight", MI, D, 1.6), matrix(e + "w2.weight", D, MI)


def head(p):
    norm(p + "norm.weight", D), mhc(p + "hc_head", HC, 1)


def edges():
    wo_a, w2 = P[EXAMPLES[0]], P[EXAMPLES[1]]
    wo_a[128:] = 0                                                   # an all-zero edge block (4 x 72)
    wo_a[:128] *= 448 / 512 / wo_a[:128].abs().max()
    wo_a[5, 30] = 448 / 512                                          # amax exactly 448 * 2^-9: scale 2^-9, no rounding up
    w2[5, :32] = 0                                                   # an all-zero fp4 group
    w2[6, 32:] = (w2[6, 32:].double() * 1e-30).bfloat16()            # tiny maxima take their own scale: no floor for weights (decision 3)
    w2[7, :32] = (w2[7, :32].double() * 1e-20).bfloat16()
    w2[8, :32] = w2[8, :32].clamp(-.09, .09); w2[8, 3] = 6 / 64      # amax exactly 6 * 2^-6
    w2[9, :32] = w2[9, :32].clamp(-.09, .09); w2[9, 3] = 6 / 64 + 2 ** -11   # one bf16 ulp above: scale 2^-5


def main():
    P["embed.weight"] = normal(V, D).bfloat16()
    matrix("head.weight", V, D)
    head("")
    for l, kind in enumerate(KINDS):
        block(f"layers.{l}.", kind, CONFIG["mlp_layer_types"][l] == "hash_moe")
    block("mtp.0.", "sliding_attention", False)
    head("mtp.0.")
    for n in ("enorm", "hnorm"):
        norm(f"mtp.0.{n}.weight", D)
    for n in ("e_proj", "h_proj"):
        matrix(f"mtp.0.{n}.weight", D, D)
    edges()
    ids = torch.randint(2, V, (2, 32), generator=gen)
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "edges")
    out.mkdir(exist_ok=True)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in P.items()}, out / "model.safetensors")
    for name in profile_ref.PROFILES:
        model = profile_ref.Model(out, profile_ref.PROFILES[name])
        profile_ref.dump(model, profile_ref.run(model, ids, mtp=True), ids, out / f"{name}.safetensors", EXAMPLES)
    print(len(P), "tensors,", sum(v.numel() for v in P.values()), "values")


if __name__ == "__main__":
    main()
