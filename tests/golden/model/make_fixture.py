"""Makes the f32 fixture of tests/model from transformers, and captures any other transformers model in the same form.

    python make_fixture.py [OUT=small]               a small random model with every mechanism on (transformers 5.23, HF_HUB_OFFLINE=1)
    python make_fixture.py --from FOLDER OUT         a transformers folder that has input_ids.safetensors [B, S]

OUT/config.json, OUT/model.safetensors (DeepSeek's native names) and OUT/f32.safetensors: `ids` [T] and `lengths` [documents] (documents one after
the other), `logits`, `loss` (mean cross entropy of all next tokens), `streams.<l>` after each layer, `grad.<name>` (stacks of experts named
as experts.{}), `router.<l>` and `indexer.<l>` (ids ascending, -1 = none), `router_gap.<l>` and `indexer_gap.<l>`: the margin by which each
token's set was chosen (inf where nothing could change it).
"""
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
sys.path.insert(0, str(Path(__file__).resolve().parent))
import profile_ref

WINDOW, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
DOCUMENTS = (61, 30)
ROTARY = 8 / 24
# YaRN's ramp runs over pairs 0 to 3: dim(32) < 0 and dim(1) = 8 ln(128 / 2 pi) / (2 ln 400) = 2.01.
CONFIG = dict(
    vocab_size=89, hidden_size=40, moe_intermediate_size=20, num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=1, head_dim=24,
    partial_rotary_factor=ROTARY, q_lora_rank=28, o_groups=3, o_lora_rank=10, layer_types=[WINDOW, CSA, HCA, CSA, HCA],
    compress_rates={CSA: 4, HCA: 8}, mlp_layer_types=["hash_moe", "moe", "hash_moe", "moe", "moe"], n_routed_experts=5, num_experts_per_tok=3,
    n_shared_experts=1, scoring_func="sqrtsoftplus", norm_topk_prob=True, routed_scaling_factor=2.5, swiglu_limit=2.0, sliding_window=7,
    index_n_heads=12, index_head_dim=16, index_topk=3, hc_mult=3, hc_sinkhorn_iters=7, hc_eps=1e-5, rms_norm_eps=1e-5,
    max_position_embeddings=1024, num_nextn_predict_layers=1, tie_word_embeddings=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=1,
    pad_token_id=None, rope_theta=500.0, compress_rope_theta=400.0,
    rope_parameters={"main": dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=ROTARY),
                     "compress": dict(rope_type="yarn", rope_theta=400.0, partial_rotary_factor=ROTARY, factor=4.0,
                                      original_max_position_embeddings=128, beta_fast=32.0, beta_slow=1.0, attention_factor=1.0)})


def value_of(name, t, gen):
    """Random values that keep every mechanism awake, by the native name."""
    normal = torch.randn(t.shape, generator=gen)
    if name.endswith("attn_sink"):
        return normal
    if name.endswith(("ape", "_base")):
        return 0.5 * normal
    if name.endswith("_scale"):
        return 0.5 + torch.rand(t.shape, generator=gen)
    if name.endswith("_fn"):
        return 0.12 * normal
    if "norm" in name:
        return 1 + 0.1 * normal
    if name.endswith("gate.bias"):
        return 0.2 * normal
    return normal if name == "embed.weight" else 1.2 * t.shape[-1] ** -0.5 * normal


def native_name(name):
    for old, new in profile_ref.RENAMES:
        name = profile_ref.re.sub(old, new, name)
    return name


def build():
    torch.manual_seed(1)
    config = DeepseekV4Config(**CONFIG)
    config._attn_implementation = config._experts_implementation = "eager"
    model, gen = DeepseekV4ForCausalLM(config).float().eval(), torch.Generator().manual_seed(31)
    with torch.no_grad():
        for name, t in model.state_dict(keep_vars=True).items():
            if name.endswith("tid2eid"):
                t.copy_(torch.stack([torch.randperm(config.n_routed_experts, generator=gen)[:t.shape[1]] for _ in t]))
            else:
                t.copy_(value_of(native_name(name), t, gen))
    return model, [torch.randint(2, config.vocab_size, (n,), generator=gen) for n in DOCUMENTS]


def mtp_weights(c):
    """An MTP block of random weights (transformers has none)."""
    d, m, heads, gen = c.hidden_size, c.hc_mult, c.num_attention_heads * c.head_dim, torch.Generator().manual_seed(32)
    mi, shapes = c.moe_intermediate_size, {}
    for site in ("attn", "ffn"):
        shapes |= {f"hc_{site}_fn": ((2 + m) * m, m * d), f"hc_{site}_base": ((2 + m) * m,), f"hc_{site}_scale": (3,), f"{site}_norm.weight": (d,)}
    shapes |= {"hc_head_fn": (m, m * d), "hc_head_base": (m,), "hc_head_scale": (1,), "norm.weight": (d,), "enorm.weight": (d,), "hnorm.weight": (d,)}
    shapes |= {"e_proj.weight": (d, d), "h_proj.weight": (d, d), "attn.wq_a.weight": (c.q_lora_rank, d), "attn.q_norm.weight": (c.q_lora_rank,),
               "attn.wq_b.weight": (heads, c.q_lora_rank), "attn.wkv.weight": (c.head_dim, d), "attn.kv_norm.weight": (c.head_dim,),
               "attn.wo_a.weight": (c.o_groups * c.o_lora_rank, heads // c.o_groups), "attn.wo_b.weight": (d, c.o_groups * c.o_lora_rank),
               "attn.attn_sink": (c.num_attention_heads,), "ffn.gate.weight": (c.n_routed_experts, d), "ffn.gate.bias": (c.n_routed_experts,)}
    for e in ["shared_experts"] + [f"experts.{i}" for i in range(c.n_routed_experts)]:
        shapes |= {f"ffn.{e}.w1.weight": (mi, d), f"ffn.{e}.w3.weight": (mi, d), f"ffn.{e}.w2.weight": (d, mi)}
    return {f"mtp.0.{n}": value_of(n, torch.empty(s), gen) for n, s in shapes.items()}


def split_experts(tensors):
    """Native names, each expert on its own."""
    out = {}
    for name, t in tensors.items():
        name, base = native_name(name), native_name(name).rpartition(".")[0]
        if name.endswith("experts.gate_up_proj"):
            for e, w in enumerate(t):
                out[f"{base}.{e}.w1.weight"], out[f"{base}.{e}.w3.weight"] = w.chunk(2)
        elif name.endswith("experts.down_proj"):
            out |= {f"{base}.{e}.w2.weight": w for e, w in enumerate(t)}
        else:
            out[name] = t
    return out


def gradients(model):
    out = {}
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        name, base = native_name(name), native_name(name).rpartition(".")[0]
        if name.endswith("experts.gate_up_proj"):
            out[f"{base}.{{}}.w1.weight"], out[f"{base}.{{}}.w3.weight"] = p.grad.chunk(2, 1)
        else:
            out[base + ".{}.w2.weight" if name.endswith("experts.down_proj") else name] = p.grad
    return {"grad." + k: v for k, v in out.items()}


def margin(scores, k):
    """How far the k-th best is above the next one, per row; inf where there is no choice."""
    best = scores.sort(-1, descending=True)[0]
    gap = best[:, k - 1] - best[:, k] if best.shape[1] > k else torch.full((len(best),), torch.inf)
    return torch.where(gap.isnan(), torch.inf, gap)                       # -inf - -inf: fewer than k entries are visible


def record_choices(model, record):
    """Hooks that note choices and their margins of one document."""
    hooks, topk = [], model.config.index_topk
    for l, layer in enumerate(model.model.layers):
        gate = layer.mlp.gate

        def routed(module, args, out, l=l, gate=gate):
            record[f"router.{l}"] = out[2].sort(-1)[0]
            if hasattr(gate, "e_score_correction_bias"):
                record[f"router_gap.{l}"] = margin(gate.score_fn(out[0]) + gate.e_score_correction_bias, gate.top_k)

        def scored(module, args, out, l=l):
            S, T = out.shape[1:]
            visible = torch.arange(T) < (torch.arange(S)[:, None] + 1) // 4
            record[f"indexer_gap.{l}"] = margin(out[0].masked_fill(~visible, -torch.inf), min(topk, T))

        def chosen(module, args, out, l=l):
            ids = torch.where(out[0] < 0, 1 << 40, out[0]).sort(-1)[0]
            ids = torch.cat([ids, ids.new_full((len(ids), topk - ids.shape[1]), 1 << 40)], 1)
            record[f"indexer.{l}"] = torch.where(ids == 1 << 40, -1, ids)

        def streams(module, args, out, l=l):
            record[f"streams.{l}"] = out[0]

        hooks += [gate.register_forward_hook(routed), layer.register_forward_hook(streams)]
        if layer.self_attn.layer_type == CSA:
            indexer = layer.self_attn.compressor.indexer
            hooks += [indexer.register_forward_hook(chosen), indexer.scorer.register_forward_hook(scored)]
    return hooks


def capture(model, documents):
    out, losses = [], []
    for ids in documents:
        record = {"ids": ids}
        hooks = record_choices(model, record)
        record["logits"] = model(input_ids=ids[None], use_cache=False).logits[0]
        [h.remove() for h in hooks]
        losses.append(torch.nn.functional.cross_entropy(record["logits"][:-1], ids[1:], reduction="sum"))
        out.append(record)
    loss = sum(losses) / sum(len(d) - 1 for d in documents)
    loss.backward()
    result = {k: torch.cat([r[k] for r in out]).detach() for k in out[0]} | gradients(model)
    result |= {"loss": loss.detach().reshape(1), "lengths": torch.tensor([len(d) for d in documents])}
    return {k: v.to(torch.int32) if k.startswith(("router.", "indexer.")) else v for k, v in result.items()}


def main():
    args = sys.argv[1:]
    foreign = args[:1] == ["--from"]
    out = Path(args[-1] if args else "small")
    out.mkdir(parents=True, exist_ok=True)
    if foreign:
        model = DeepseekV4ForCausalLM.from_pretrained(args[1], dtype=torch.float32, attn_implementation="eager").eval()
        model.config._experts_implementation = "eager"
        documents = list(load_file(Path(args[1]) / "input_ids.safetensors")["input_ids"])
        config, mtp = json.loads((Path(args[1]) / "config.json").read_text()) | {"num_nextn_predict_layers": 0}, {}
    else:
        model, documents = build()
        config, mtp = model.config.to_dict(), mtp_weights(model.config)
    oracle = capture(model, documents)
    weights = split_experts({n: t.detach() for n, t in model.state_dict().items()}) | mtp
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, out / "model.safetensors")
    if not foreign:
        oracle |= mtp_reference(out, documents)
    save_file({k: v.contiguous() for k, v in oracle.items()}, out / "f32.safetensors")
    gaps = {k: f"{v.min():.1e}" for k, v in oracle.items() if "_gap" in k}
    print(f"{sum(v.numel() for v in weights.values())} values, {sum(k.startswith('grad.') for k in oracle)} gradients, loss {oracle['loss'].item():.6f}, smallest margins {gaps}")
    if foreign and (known := Path(args[1]) / "logits.safetensors").exists():
        print("against the stored logits:", (oracle["logits"] - load_file(known)["logits"].flatten(0, 1)).abs().max().item())


def mtp_reference(folder, documents):
    """MTP in f32 by profile_ref: S-1 positions of each document."""
    model, rows = profile_ref.Model(folder, profile_ref.PROFILES["f32"]), []
    for ids in documents:
        model.rec = {}
        model.forward(ids)
        model.mtp(ids)
        rows.append(model.rec)
    names = ("mtp.input", "mtp.streams", "mtp.logits")
    return {k: torch.cat([r[k] for r in rows]).float() for k in names} | {"router.mtp": torch.cat([r["router.mtp"] for r in rows]).to(torch.int32)}


if __name__ == "__main__":
    main()
