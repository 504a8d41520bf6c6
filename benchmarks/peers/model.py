"""The benchmark models, built in transformers from the configuration files that Furlong's own benchmarks read."""

import json

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM


def read_config(path):
    """A config.json as Furlong reads it, as transformers wants it."""
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    fields.pop("model_type")
    rope_dim = fields.pop("qk_rope_head_dim")
    fields["partial_rotary_factor"] = rope_dim / fields["head_dim"]
    for parameters in fields["rope_parameters"].values():
        parameters["partial_rotary_factor"] = fields["partial_rotary_factor"]
        parameters.setdefault("rope_type", "default")
        if parameters["rope_type"] == "yarn":
            parameters["attention_factor"] = 1.0  # else transformers scales cos and sin, which the model does not
    return DeepseekV4Config(**fields, num_key_value_heads=1, pad_token_id=2)


def random_model(config, seed=0):
    """Random weights, f32, large enough that every part of the model shows in the log-probs.

    transformers leaves the table of the hash layers at zero; here each id gets experts of its own.
    """
    torch.manual_seed(seed)
    model = DeepseekV4ForCausalLM(config).float().eval()
    random = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("tid2eid"):
                order = torch.rand(buffer.shape[0], config.n_routed_experts, generator=random).argsort(1)
                buffer.copy_(order[:, : buffer.shape[1]])
            elif name.endswith("e_score_correction_bias"):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=random))
        for name, parameter in model.named_parameters():
            if name.endswith(("sinks", "position_bias")):
                parameter.copy_(torch.randn(parameter.shape, generator=random))
            elif parameter.dim() > 1:
                parameter.mul_(4)
    return model


def load_model(folder, experts="grouped_mm"):
    model = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.config._experts_implementation = experts
    return model.eval()
