"""Reference forward of DeepSeek-V4 in Furlong's precision profiles, written from spec/deepseek_v4.md and spec/decisions.md alone (torch and safetensors only).

    python profile_ref.py DIR --profile {f32,bf16,fp8,fp8_fp4} [--sums {f64,f32,seq,perm}] [--no-quant] [--no-kv-sim] [--no-index-sim] [--mtp] [--tokens BxS] [--dump FILE]

DIR holds config.json, input_ids.safetensors [B, S] and the f32 (or bf16) parameters: params_hfnames.safetensors (transformers' run-time names) or model.safetensors (native names).
One sequence at a time, no cache. Section numbers are the specification's; D<n> is a number of decisions.md; C<n> is a choice listed in README.md.
All sums run in one type (--sums): f64 (the reference: rounds only where the profile rounds), f32 (torch's order), seq (f32, one product after the other as D5 says), perm (f32, K permuted).
"""
import argparse, json, math, re
from dataclasses import dataclass, replace
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file

@dataclass
class Profile:                     # D1
    bf16: bool = False             # round to bf16 where appendix A says bf16
    quant: bool = False            # quantised weights and activations (section 6, D2)
    fp4: bool = False              # routed experts e2m1 1x32 instead of e4m3 128x128
    kv_sim: bool = False           # e4m3 groups of 64 on the non-rope dims of KV
    index_sim: bool = False        # Hadamard and e2m1 groups of 32 on indexer q and k

PROFILES = dict(f32=Profile(), bf16=Profile(bf16=True), fp8=Profile(True, True, False, True, True), fp8_fp4=Profile(True, True, True, True, True))

# ---------------------------------------------------------------------------------------------------------------- section 6: formats and quantisation
def pow2_scale(amax, top):
    """6.5, 6.6: the smallest power of two s with s*top >= amax, from the exponent bits of the f32 quotient; C9: clamped to what E8M0 holds."""
    mant, exp = torch.frexp(amax.float() / top)               # quotient = mant * 2^exp, mant in [1/2, 1)
    return torch.pow(2., (exp - (mant == 0.5).int()).clamp(-127, 127).double())

def e4m3(x):
    """6.1: round to nearest even on the E4M3 grid, clamped."""
    return x.clamp(-448, 448).float().to(torch.float8_e4m3fn).to(x.dtype)

E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)

def e2m1(x):
    """6.1: ties to the even code; C8: a negative value that rounds to zero becomes -0 (code 8)."""
    m = x.abs()
    code = (m > .25).long() + (m >= .75) + (m > 1.25) + (m >= 1.75) + (m > 2.5) + (m >= 3.5) + (m > 5)
    return (E2M1[code] * torch.where(torch.signbit(x), -1., 1.)).to(x.dtype)

def groups(x, n):
    """[.., K] -> [.., ceil(K/n), n]; a short last group is filled with zeros, which change neither its amax nor a sum (D2)."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % n)).unflatten(-1, (-1, n))

def quant_act(x, n, fmt="e4m3"):
    """6.6: dynamic activation quantisation along the last axis in groups of n. Returns element values [.., groups, n] and scales [.., groups, 1]."""
    q = groups(x, n)
    floor, top, rnd = (1e-4, 448, e4m3) if fmt == "e4m3" else (6 * 2. ** -126, 6, e2m1)
    s = pow2_scale(q.abs().amax(-1, keepdim=True).clamp(min=floor), top).to(x.dtype)
    return rnd((q / s).clamp(-top, top)), s

def simulate(x, n, fmt):
    """6.6: quantise and return to the same type ("sim"); exact in bf16."""
    q, s = quant_act(x, n, fmt)
    return (q * s).flatten(-2)[..., :x.shape[-1]]

def quant_weight(w, fmt):
    """6.5, D3: w [N, K] f64 holding bf16 values -> element values [N, K] and scales per block, 128 x 128 (e4m3) or 1 x 32 (e2m1), short at the edges."""
    bn, bk, top, rnd = (128, 128, 448, e4m3) if fmt == "e4m3" else (1, 32, 6, e2m1)
    (N, K), padded = w.shape, torch.nn.functional.pad(w, (0, -w.shape[1] % bk, 0, -w.shape[0] % bn))
    blocks = padded.unflatten(1, (-1, bk)).unflatten(0, (-1, bn))                                   # [nb, bn, kb, bk]
    amax = blocks.abs().amax((1, 3), keepdim=True)
    s = torch.where(amax > 0, pow2_scale(torch.where(amax > 0, amax, 1.), top), 2. ** -22)          # D3: only an all-zero block has the floor 2^-22
    q = torch.where(amax > 0, rnd((blocks / s).clamp(-top, top)), 0.)
    return q.flatten(2).flatten(0, 1)[:N, :K], s[:, 0, :, 0]

def pack(q, s, fmt):
    """6.1, 6.2: stored bytes. e4m3: one byte each; e2m1: low nibble = even k (an odd K is padded with code 0). Scale byte e means 2^(e-127)."""
    sb = (torch.frexp(s)[1] - 1 + 127).to(torch.uint8)
    if fmt == "e4m3":
        return q.float().to(torch.float8_e4m3fn).view(torch.uint8), sb
    mag = (q.abs().unsqueeze(-1) == E2M1).int().argmax(-1) + 8 * torch.signbit(q)
    c = groups(mag, 2)
    return (c[..., 0] + 16 * c[..., 1]).to(torch.uint8), sb

QUANTISED = re.compile(r"(attn\.(wq_a|wq_b|wkv|wo_a|wo_b)|attn\.indexer\.wq_b|shared_experts\.w[123]|experts\.\d+\.w[123]|mtp\.0\.[eh]_proj)\.weight$")    # 6.2, D2
KEPT_F32 = re.compile(r"(gate\.bias|attn_sink|ape|hc_\w+|compressor\.norm\.weight)$")                                                                        # D4, C1

# ---------------------------------------------------------------------------------------------------------------- section 7: names
RENAMES = [(r"^model\.", ""), (r"^lm_head", "head"), (r"^embed_tokens", "embed"), (r"hc_head\.hc_", "hc_head_"), (r"(attn|ffn)_hc\.", r"hc_\1_"),
           ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn", "attn"), (r"\.mlp\.", ".ffn."), ("sinks", "attn_sink"),
           ("q_a_proj", "wq_a"), ("q_a_norm", "q_norm"), ("q_b_proj", "wq_b"), ("o_a_proj", "wo_a"), ("o_b_proj", "wo_b"), (r"scorer\.", ""), ("e_score_correction_bias", "bias"),
           (r"compressor\.indexer\.(kv_proj|gate_proj|kv_norm|position_bias)", r"indexer.compressor.\1"), (r"compressor\.indexer\.", "indexer."),
           (r"compressor\.kv_norm", "compressor.norm"), (r"compressor\.gate_proj", "compressor.wgate"), ("position_bias", "ape"), ("kv_proj", "wkv"),
           (r"experts\.gate_proj", "experts.w1"), (r"experts\.up_proj", "experts.w3"), (r"experts\.down_proj\.weight", "experts.w2.weight")]

def load_params(folder):
    """Native names, each expert on its own (D2: fused storage is quantised before fusing)."""
    out, hf = {}, Path(folder) / "params_hfnames.safetensors"
    for name, t in load_file(hf if hf.exists() else hf.with_name("model.safetensors")).items():
        for a, b in RENAMES:
            name = re.sub(a, b, name)
        base = name.rpartition(".")[0]
        if name.endswith("experts.gate_up_proj"):
            for e, w in enumerate(t):
                out[f"{base}.{e}.w1.weight"], out[f"{base}.{e}.w3.weight"] = w.chunk(2)
        elif name.endswith("experts.down_proj"):
            out |= {f"{base}.{e}.w2.weight": w for e, w in enumerate(t)}
        else:
            out[name] = t
    return out

class Model:
    def __init__(self, folder, profile, sums="f64"):
        self.cfg = c = json.loads((Path(folder) / "config.json").read_text())
        self.pr, self.sums, self.dt = profile, sums, torch.float64 if sums == "f64" else torch.float32
        self.params, self.cache, self.rec, self.force = load_params(folder), {}, {}, {}
        self.nh, self.hd, self.rd, self.hc, self.eps, self.heps = c["num_attention_heads"], c["head_dim"], c["qk_rope_head_dim"], c["hc_mult"], c["rms_norm_eps"], c["hc_eps"]
        assert not profile.index_sim or c["index_head_dim"] & (c["index_head_dim"] - 1) == 0, "D2: the Hadamard transform needs a power of two"

    # ------------------------------------------------------------------------------------------------------------ numerics
    def R(self, x):
        """Round to bf16 (through f32) where the profile rounds."""
        return x.to(torch.bfloat16).to(self.dt) if self.pr.bf16 else x
    def P(self, name):
        """D4: the published value: the master rounded to bf16, except what stays f32. Profile f32 keeps the master."""
        if name not in self.cache:
            t = self.params[name]
            self.cache[name] = (t if not self.pr.bf16 or KEPT_F32.search(name) else t.bfloat16()).to(self.dt)
        return self.cache[name]
    def ein(self, eq, a, b):
        """A product with one contracted index, summed in the order of self.sums."""
        ia, ib, out = eq.replace("->", ",").split(",")
        k = next(i for i in ia if i in ib and i not in out)
        da, db = ia.index(k), ib.index(k)
        if self.sums == "perm":
            p = torch.randperm(a.shape[da], generator=torch.Generator().manual_seed(a.shape[da]))
            a, b = a.index_select(da, p), b.index_select(db, p)
        if self.sums != "seq":
            return torch.einsum(eq, a, b)
        return sum(torch.einsum(eq.replace(k, ""), a.select(da, i), b.select(db, i)) for i in range(a.shape[da]))
    weight_fmt = lambda self, name: "e2m1" if self.pr.fp4 and ".experts." in name else "e4m3"
    def qweight(self, name):
        if (key := ("q", name)) not in self.cache:              # D4: always from the bf16 value
            self.cache[key] = [t.to(self.dt) for t in quant_weight(self.params[name].bfloat16().double(), self.weight_fmt(name))]
        return self.cache[key]
    def linear(self, x, name):
        """y = W x (x [T, K]); bf16 result. 6.7: quantised weights see activations in groups of 128, one f32 partial sum per K-block (128, for fp4 32)."""
        if not (self.pr.quant and QUANTISED.search(name)):
            return self.R(self.ein("tk,nk->tn", x, self.P(name)))
        xq, sx = quant_act(x, 128)                               # [T, kb, 128], [T, kb, 1]
        wq, sw = self.qweight(name)
        step = 32 if self.weight_fmt(name) == "e2m1" else 128
        wq, K = groups(wq, step), x.shape[-1]
        sw = sw if step == 32 else sw.repeat_interleave(128, 0)[:wq.shape[0]]
        xq, acc = groups(xq.flatten(1)[:, :K], step), 0
        for b in range(wq.shape[1]):
            acc = acc + self.ein("tk,nk->tn", xq[:, b], wq[:, b]) * (sx[:, b * step // 128] * sw[:, b])
        return self.R(acc)
    def rms(self, x, name=None):
        """Section 2: f32 inside, one cast, after the weight."""
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.R(y if name is None else self.P(name) * y)
    def choose(self, key, ids):        # records a choice, or takes the given one; self.force may also hold streams.<l>: then each layer starts from given streams
        self.rec[key] = self.force.get(key, ids)
        return self.rec[key]

    # ------------------------------------------------------------------------------------------------------------ section 3: mHC, all f32
    def hc_gates(self, X, p):                                    # 3.2: raw = fn . x, then times q
        x = X.flatten(1)
        return self.ein("tk,nk->tn", x, self.P(p + "_fn")) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
    def hc_pre(self, X, p):                                      # 3.2
        hc, m, base, s = self.hc, self.hc_gates(X, p), self.P(p + "_base"), self.P(p + "_scale")
        pre = torch.sigmoid(m[:, :hc] * s[0] + base[:hc]) + self.heps
        post = 2 * torch.sigmoid(m[:, hc:2 * hc] * s[1] + base[hc:2 * hc])
        C = torch.softmax((m[:, 2 * hc:] * s[2] + base[2 * hc:]).unflatten(-1, (hc, hc)), -1) + self.heps
        C = C / (C.sum(-2, keepdim=True) + self.heps)
        for _ in range(self.cfg["hc_sinkhorn_iters"] - 1):
            C = C / (C.sum(-1, keepdim=True) + self.heps)
            C = C / (C.sum(-2, keepdim=True) + self.heps)
        return self.R(self.ein("ti,tid->td", pre, X)), post, C
    def hc_post(self, f, X, post, C):                            # 3.3: comb transposed; one rounding
        return self.R(post[:, :, None] * f[:, None] + self.ein("tij,tid->tjd", C, X))
    def hc_head(self, X, p):                                     # 3.4
        pre = torch.sigmoid(self.hc_gates(X, p) * self.P(p + "_scale") + self.P(p + "_base")) + self.heps
        return self.R(self.ein("ti,tid->td", pre, X))

    # ------------------------------------------------------------------------------------------------------------ section 4: attention
    def rope(self, x, t, compressed, inverse=False):
        """4.4: interleaved pairs of the last rd dims, bf16 result. x [T, .., D], t [T]."""
        c, rd = self.cfg, self.rd
        base, i = c["compress_rope_theta"] if compressed else c["rope_theta"], torch.arange(rd // 2, dtype=torch.float64)
        f = base ** (-2 * i / rd)
        if compressed:
            y = c["rope_parameters"]["compress"]
            dim = lambda turns: rd * math.log(y["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(base))
            low, high = max(math.floor(dim(y["beta_fast"])), 0), min(math.ceil(dim(y["beta_slow"])), rd - 1)
            ramp = ((i - low) / (high - low + (.001 if low == high else 0))).clamp(0, 1)
            f = f / y["factor"] * ramp + f * (1 - ramp)
        a = (t.to(self.dt)[:, None] * f.to(self.dt)).view(len(t), *[1] * (x.dim() - 2), rd // 2)
        co, si = a.cos(), a.sin() * (-1 if inverse else 1)
        e, o = x[..., -rd::2], x[..., -rd + 1::2]
        return self.R(torch.cat([x[..., :-rd], torch.stack([e * co - o * si, e * si + o * co], -1).flatten(-2)], -1))
    def kv_sim(self, kv):                                        # 4.3, 6.6: non-rope dims only, after rope
        nd = self.hd - self.rd
        return torch.cat([simulate(kv[..., :nd], 64, "e4m3"), kv[..., nd:]], -1) if self.pr.kv_sim else kv
    def index_sim(self, x):
        """4.6, 6.6: orthonormal Sylvester-Hadamard over all index_head_dim dims, bf16 (C4), then e2m1 in groups of 32."""
        H = torch.ones(1, 1, dtype=self.dt)
        while self.pr.index_sim and len(H) < x.shape[-1]:
            H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
        return simulate(self.R((x @ H) * x.shape[-1] ** -.5), 32, "e2m1") if self.pr.index_sim else x
    def pool(self, kv, sc):                                      # 4.5: softmax over rows per channel, f32
        return (torch.softmax(sc, 1) * kv).sum(1)

    def compress(self, a, p, r, D, overlap):
        """4.5: finished blocks only; projections stay f32 (C3); pooled value rounded once, then norm and rope."""
        T = len(a) // r
        kv, sc = (self.ein("tk,nk->tn", a[:T * r], self.P(f"{p}.{n}.weight")).unflatten(0, (T, r)) for n in ("wkv", "wgate"))
        sc = sc + self.P(p + ".ape")
        if overlap:                                              # previous block: first D channels; own block: last D channels
            shift = lambda x, fill: torch.cat([torch.cat([torch.full_like(x[:1, :, :D], fill), x[:-1, :, :D]]), x[:, :, D:]], 1)
            kv, sc = shift(kv, 0.), shift(sc, -math.inf)
        e = self.rms(self.R(self.pool(kv, sc)), p + ".norm.weight")
        return self.rope(e, torch.arange(T) * r, True)

    def indexer(self, a, qr, l, T, visible):
        """4.6: block ids [S, topk], ascending, -1 = none."""
        p, c = f"layers.{l}.attn.indexer", self.cfg
        ih, id_, pos = c["index_n_heads"], c["index_head_dim"], torch.arange(len(a))
        ik = self.index_sim(self.compress(a, p + ".compressor", 4, id_, True))
        iq = self.index_sim(self.rope(self.linear(qr, p + ".wq_b.weight").unflatten(-1, (ih, id_)), pos, True))
        wt = self.R(self.linear(a, p + ".weights_proj.weight") * (id_ ** -.5 * ih ** -.5))                       # C5
        score = self.ein("th,thn->tn", wt, self.ein("thd,nd->thn", iq, ik).relu()).masked_fill(~visible, -math.inf)      # C6: f32, not rounded
        k = min(c["index_topk"], T)
        ids = torch.sort(score, dim=-1, descending=True, stable=True)[1][:, :k]                                  # D6: ties to the lower index
        ids = torch.where(visible.gather(1, ids), ids, T).sort(-1)[0]
        ids = torch.cat([ids, ids.new_full((len(a), c["index_topk"] - k), T)], 1)
        return self.choose(f"indexer.{l}", torch.where(ids == T, -1, ids))

    def attention(self, a, p, kind, l):
        c, S, nh, hd, pos, comp = self.cfg, len(a), self.nh, self.hd, torch.arange(len(a)), kind != "sliding_attention"
        qr = self.rms(self.linear(a, p + ".wq_a.weight"), p + ".q_norm.weight")                                  # 4.2
        q = self.rope(self.rms(self.linear(qr, p + ".wq_b.weight").unflatten(-1, (nh, hd))), pos, comp)          # C2: bf16 after the norm and after rope
        kv = self.rms(self.linear(a, p + ".wkv.weight"), p + ".kv_norm.weight")                                  # 4.3
        keys = self.kv_sim(self.rope(kv, pos, comp))
        seen = (pos[None] <= pos[:, None]) & (pos[None] > pos[:, None] - c["sliding_window"])
        if comp:
            r, csa = c["compress_rates"][kind], "sparse" in kind
            e = self.kv_sim(self.compress(a, p + ".compressor", r, hd, csa))
            T, visible = len(e), torch.arange(len(e))[None] < (pos[:, None] + 1) // r
            if csa and T:
                ids = self.indexer(a, qr, l, T, visible)
                visible = torch.zeros(S, T + 1, dtype=torch.bool).scatter(1, torch.where(ids < 0, T, ids), True)[:, :T]
            keys, seen = torch.cat([keys, e]), torch.cat([seen, visible], 1)                                     # D5: window by position, then blocks by index
        s = (self.ein("thd,nd->thn", q, keys) * hd ** -.5).masked_fill(~seen[:, None], -math.inf)                # 4.7
        M = torch.maximum(s.amax(-1, keepdim=True), sink := self.P(p + ".attn_sink")[None, :, None])
        w = torch.exp(s - M)                                                                                     # C7: probabilities not rounded
        o = self.R(self.ein("thn,nd->thd", w, keys) / (w.sum(-1, keepdim=True) + torch.exp(sink - M)))
        o = self.rope(o, pos, comp, inverse=True).reshape(S, c["o_groups"], -1)                                  # 4.8
        return self.linear(self.out_a(o, p + ".wo_a.weight"), p + ".wo_b.weight")
    def out_a(self, o, name):
        """4.8, D2: wo_a dequantised to bf16, activations not quantised. Blocks are those of the stored [g*ol, nh*hd/g] matrix (C10)."""
        w = self.P(name)
        if self.pr.quant:
            q, s = self.qweight(name)
            w = q * s.repeat_interleave(128, 0)[:q.shape[0]].repeat_interleave(128, 1)[:, :q.shape[1]]
        return self.R(self.ein("tgk,gok->tgo", o, w.unflatten(0, (self.cfg["o_groups"], -1)))).flatten(1)

    # ------------------------------------------------------------------------------------------------------------ section 5: MoE
    def router(self, x, p, ids, key):                            # 5.1, all f32
        l = self.ein("tk,nk->tn", x, self.P(p + ".gate.weight"))
        s = torch.where(l < -30, torch.exp(l / 2), (torch.log1p(torch.exp(-l.abs())) + l.clamp(min=0)).sqrt())
        if p + ".gate.tid2eid" in self.params:
            pick = self.params[p + ".gate.tid2eid"][ids].long()
        else:                                                    # D6
            pick = torch.sort(s + self.P(p + ".gate.bias"), dim=-1, descending=True, stable=True)[1][:, :self.cfg["num_experts_per_tok"]]
        pick = self.choose(f"router.{key}", pick.sort(-1)[0])    # ascending expert id (D5)
        w = s.gather(1, pick)
        return pick, w / w.sum(-1, keepdim=True) * self.cfg["routed_scaling_factor"]
    def expert(self, x, p, w=1.):                                # 5.2
        L, g, u = self.cfg["swiglu_limit"], self.linear(x, p + ".w1.weight"), self.linear(x, p + ".w3.weight")
        g, u = g.clamp(max=L), u.clamp(-L, L)
        return self.linear(self.R(w * (torch.nn.functional.silu(g) * u)), p + ".w2.weight")
    def moe(self, x, p, ids, key):
        (pick, w), y = self.router(x, p, ids, key), torch.zeros_like(x)
        for e in range(self.cfg["n_routed_experts"]):            # D5: ascending expert id, shared last; every y_e is bf16, the sum f32
            t, k = (pick == e).nonzero(as_tuple=True)
            if len(t):
                y = y.index_add(0, t, self.expert(x[t], f"{p}.experts.{e}", w[t, k, None]))
        return self.R(y + self.expert(x, p + ".shared_experts")) # 5.3, D10

    # ------------------------------------------------------------------------------------------------------------ section 2: whole forward
    def block(self, X, p, kind, ids, key):
        y, post, C = self.hc_pre(X, p + "hc_attn")
        X = self.hc_post(self.attention(self.rms(y, p + "attn_norm.weight"), p + "attn", kind, key), X, post, C)
        y, post, C = self.hc_pre(X, p + "hc_ffn")
        return self.hc_post(self.moe(self.rms(y, p + "ffn_norm.weight"), p + "ffn", ids, key), X, post, C)
    def head(self, X, p=""):                                     # logits f32: bf16 operands, f32 sum, not rounded
        return self.ein("tk,nk->tn", self.rms(self.hc_head(X, p + "hc_head"), p + "norm.weight"), self.P("head.weight"))
    def forward(self, ids):
        """ids [S]; logits [S, V], streams and choices go to self.rec."""
        X = self.P("embed.weight")[ids][:, None].expand(-1, self.hc, -1)
        for l, kind in enumerate(self.cfg["layer_types"]):
            X = self.rec[f"streams.{l}"] = self.block(X, f"layers.{l}.", kind, ids, l)
            X = self.force.get(f"streams.{l}", X)
        self.rec["logits"] = self.head(X)
    def mtp(self, ids):
        """2.1, after forward(ids): position t combines X_t with the embedding of token t+1; S-1 positions. The two projections are rounded, then their sum (C11)."""
        L = self.cfg["num_hidden_layers"]
        X, nxt = self.rec[f"streams.{L - 1}"][:-1], ids[1:]
        e = self.linear(self.rms(self.P("embed.weight")[nxt], "mtp.0.enorm.weight"), "mtp.0.e_proj.weight")
        h = self.linear(self.rms(X, "mtp.0.hnorm.weight").flatten(0, 1), "mtp.0.h_proj.weight").unflatten(0, X.shape[:2])
        self.rec["mtp.input"] = X = self.R(e[:, None] + h)
        X = self.rec["mtp.streams"] = self.block(X, "mtp.0.", "sliding_attention", nxt, "mtp")
        self.rec["mtp.logits"] = self.head(X, "mtp.0.")

def run(model, ids, mtp=False, force=None):
    """ids [B, S]; the recorded tensors stacked over B."""
    out = []
    for b, row in enumerate(ids):
        model.rec, model.force = {}, {k: v[b].to(model.dt if "streams" in k else torch.long) for k, v in (force or {}).items()}
        model.forward(row)
        if mtp:
            model.mtp(row)
        out.append(model.rec)
    return {k: torch.stack([o[k] for o in out]) for k in out[0]}

def dump(model, out, ids, path, examples=()):
    """What run() recorded, in the types of the profile, and the stored bytes of some quantised weights."""
    kind = lambda k: torch.int32 if k.startswith(("router", "indexer.")) else torch.bfloat16 if model.pr.bf16 and ("streams" in k or k == "mtp.input") else torch.float32
    d = {"input_ids": ids} | {k: v.to(kind(k)) for k, v in out.items()}
    for n in examples:
        d[f"quant.{n}.bytes"], d[f"quant.{n}.scales"] = pack(*quant_weight(model.params[n].bfloat16().double(), model.weight_fmt(n)), model.weight_fmt(n))
    save_file({k: v.contiguous() for k, v in d.items()}, path)

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("--profile", choices=PROFILES, default="f32")
    ap.add_argument("--sums", choices=["f64", "f32", "seq", "perm"], default="f64")
    for flag in ("quant", "kv-sim", "index-sim"):
        ap.add_argument("--" + flag, action=argparse.BooleanOptionalAction, default=None)
    ap.add_argument("--dump"), ap.add_argument("--mtp", action="store_true")
    ap.add_argument("--tokens", help="BxS: the first B rows and S tokens of input_ids")
    ap.add_argument("--examples", nargs="*", default=[], help="weights whose quantised bytes and scales go into the dump")
    o = ap.parse_args()
    profile = replace(PROFILES[o.profile], **{k: v for k in ("quant", "kv_sim", "index_sim") if (v := getattr(o, k)) is not None})
    model, ids = Model(o.dir, profile, o.sums), load_file(Path(o.dir) / "input_ids.safetensors")["input_ids"]
    B, S = map(int, o.tokens.split("x")) if o.tokens else ids.shape
    ids = ids[:B, :S]
    out, want = run(model, ids, o.mtp), Path(o.dir) / "logits.safetensors"
    lp = out["logits"][:, :-1].log_softmax(-1)
    print(f"{Path(o.dir).name} {o.profile} sums {o.sums} ids {tuple(ids.shape)} mean loss {-lp.gather(-1, ids[:, 1:, None]).mean():.6f}")
    if want.exists():
        w = load_file(want)["logits"].double()[:B, :S]
        print(f"  against transformers f32: logits relative L2 {(out['logits'] - w).norm() / w.norm():.2e}, max abs {(out['logits'] - w).abs().max():.2e}")
    if o.dump:
        dump(model, out, ids, o.dump, o.examples)

if __name__ == "__main__":
    main()
