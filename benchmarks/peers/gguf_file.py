"""Writes a model of transformers as a GGUF file in f32, for llama.cpp (architecture deepseek4)."""

import sys

import numpy as np

RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}

GLOBALS = {
    "token_embd": "model.embed_tokens.weight",
    "output_norm": "model.norm.weight",
    "output": "lm_head.weight",
    "output_hc_fn": "model.hc_head.hc_fn",
    "output_hc_base": "model.hc_head.hc_base",
    "output_hc_scale": "model.hc_head.hc_scale",
}

# By gguf's name of a tensor: the name in transformers below "model.layers.N.". Those that a layer has not are left out.
OF_A_LAYER = {
    "ATTN_NORM": "input_layernorm.weight",
    "FFN_NORM": "post_attention_layernorm.weight",
    "HC_ATTN_FN": "attn_hc.fn",
    "HC_ATTN_BASE": "attn_hc.base",
    "HC_ATTN_SCALE": "attn_hc.scale",
    "HC_FFN_FN": "ffn_hc.fn",
    "HC_FFN_BASE": "ffn_hc.base",
    "HC_FFN_SCALE": "ffn_hc.scale",
    "ATTN_SINKS": "self_attn.sinks",
    "ATTN_Q_A": "self_attn.q_a_proj.weight",
    "ATTN_Q_A_NORM": "self_attn.q_a_norm.weight",
    "ATTN_Q_B": "self_attn.q_b_proj.weight",
    "ATTN_KV": "self_attn.kv_proj.weight",
    "ATTN_KV_NORM": "self_attn.kv_norm.weight",
    "ATTN_OUT_A": "self_attn.o_a_proj.weight",
    "ATTN_OUT_B": "self_attn.o_b_proj.weight",
    "ATTN_COMPRESSOR_WKV": "self_attn.compressor.kv_proj.weight",
    "ATTN_COMPRESSOR_WGATE": "self_attn.compressor.gate_proj.weight",
    "ATTN_COMPRESSOR_APE": "self_attn.compressor.position_bias",
    "ATTN_COMPRESSOR_NORM": "self_attn.compressor.kv_norm.weight",
    "INDEXER_COMPRESSOR_WKV": "self_attn.compressor.indexer.kv_proj.weight",
    "INDEXER_COMPRESSOR_WGATE": "self_attn.compressor.indexer.gate_proj.weight",
    "INDEXER_COMPRESSOR_APE": "self_attn.compressor.indexer.position_bias",
    "INDEXER_COMPRESSOR_NORM": "self_attn.compressor.indexer.kv_norm.weight",
    "INDEXER_PROJ": "self_attn.compressor.indexer.scorer.weights_proj.weight",
    "INDEXER_ATTN_Q_B": "self_attn.compressor.indexer.q_b_proj.weight",
    "FFN_GATE_INP": "mlp.gate.weight",
    "FFN_GATE_SHEXP": "mlp.shared_experts.gate_proj.weight",
    "FFN_UP_SHEXP": "mlp.shared_experts.up_proj.weight",
    "FFN_DOWN_SHEXP": "mlp.shared_experts.down_proj.weight",
}


def load_gguf(folder):
    """The gguf package of llama.cpp's source folder: that of the package index may not know the architecture."""
    sys.path.insert(0, f"{folder}/gguf-py")
    import gguf

    return gguf


class Fields:
    """Key-value fields of one architecture."""

    def __init__(self, writer, architecture):
        self.writer, self.prefix = writer, architecture + "."

    def integers(self, **values):
        for key, value in values.items():
            self.writer.add_uint32(self.prefix + key.replace("__", "."), int(value))

    def floats(self, **values):
        for key, value in values.items():
            self.writer.add_float32(self.prefix + key.replace("__", "."), float(value))


def write_fields(gguf, writer, config):
    fields = Fields(writer, "deepseek4")
    yarn = config.rope_parameters["compress"]
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    fields.integers(
        vocab_size=config.vocab_size,
        block_count=config.num_hidden_layers,
        context_length=config.max_position_embeddings,
        embedding_length=config.hidden_size,
        embedding_length_out=config.hidden_size * config.hc_mult,
        feed_forward_length=config.moe_intermediate_size,
        attention__head_count=config.num_attention_heads,
        attention__head_count_kv=1,
        attention__key_length=config.head_dim,
        attention__value_length=config.head_dim,
        attention__q_lora_rank=config.q_lora_rank,
        attention__sliding_window=config.sliding_window,
        attention__indexer__head_count=config.index_n_heads,
        attention__indexer__key_length=config.index_head_dim,
        attention__indexer__top_k=config.index_topk,
        attention__output_group_count=config.o_groups,
        attention__output_lora_rank=config.o_lora_rank,
        rope__dimension_count=round(config.head_dim * yarn["partial_rotary_factor"]),
        rope__scaling__original_context_length=yarn["original_max_position_embeddings"],
        expert_count=config.n_routed_experts,
        expert_used_count=config.num_experts_per_tok,
        expert_feed_forward_length=config.moe_intermediate_size,
        expert_shared_count=1,
        expert_gating_func=gguf.ExpertGatingFuncType.SQRTSOFTPLUS,
        hyper_connection__count=config.hc_mult,
        hyper_connection__sinkhorn_iterations=config.hc_sinkhorn_iters,
        hash_layer_count=config.mlp_layer_types.count("hash_moe"),
    )
    fields.floats(
        attention__layer_norm_rms_epsilon=config.rms_norm_eps,
        attention__compress_rope_freq_base=yarn["rope_theta"],
        expert_weights_scale=config.routed_scaling_factor,
        hyper_connection__epsilon=config.hc_eps,
        rope__freq_base=config.rope_parameters["main"]["rope_theta"],
        rope__scaling__factor=yarn["factor"],
        rope__scaling__yarn_beta_fast=yarn["beta_fast"],
        rope__scaling__yarn_beta_slow=yarn["beta_slow"],
    )
    writer.add_string("deepseek4.rope.scaling.type", "yarn")
    writer.add_bool("deepseek4.expert_weights_norm", True)
    writer.add_swiglu_clamp_exp([config.swiglu_limit] * config.num_hidden_layers)
    writer.add_swiglu_clamp_shexp([config.swiglu_limit] * config.num_hidden_layers)
    writer.add_attention_compress_ratios([RATIOS[kind] for kind in config.layer_types])


def write_layer(gguf, add, tensors, layer, width):
    def name(tensor):
        return gguf.TENSOR_NAMES[getattr(gguf.MODEL_TENSOR, tensor)].format(bid=layer)

    below = f"model.layers.{layer}."
    for tensor, source in OF_A_LAYER.items():
        if below + source in tensors:
            add(name(tensor) + ".weight", tensors[below + source])
    gate_up = tensors[below + "mlp.experts.gate_up_proj"]
    add(name("FFN_GATE_EXP") + ".weight", gate_up[:, :width])
    add(name("FFN_UP_EXP") + ".weight", gate_up[:, width:])
    add(name("FFN_DOWN_EXP") + ".weight", tensors[below + "mlp.experts.down_proj"])
    if below + "mlp.gate.tid2eid" in tensors:
        add(name("FFN_GATE_TID2EID") + ".weight", tensors[below + "mlp.gate.tid2eid"].astype(np.int32))
    else:
        add(name("FFN_EXP_PROBS_B") + ".bias", tensors[below + "mlp.gate.e_score_correction_bias"])


def write_gguf(llama_cpp, model, path):
    gguf = load_gguf(llama_cpp)
    if not hasattr(gguf, "TENSOR_NAMES"):
        gguf.TENSOR_NAMES = gguf.constants.TENSOR_NAMES
    writer = gguf.GGUFWriter(path, "deepseek4")
    write_fields(gguf, writer, model.config)
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}

    def add(name, values):
        writer.add_tensor(name, np.ascontiguousarray(values))

    for name, source in GLOBALS.items():
        add(name + ".weight", tensors[source])
    for layer in range(model.config.num_hidden_layers):
        write_layer(gguf, add, tensors, layer, model.config.moe_intermediate_size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
