"""Models with experts for make_goldens.py: their configurations, the balance loss of docs/moe.md, and a
DeepSeek-MoE of the first generation put together from modules of the library."""

import json
import re

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts, Qwen3MoeTopKRouter

SMALL = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=32, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False,
)
ROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=500.0))
MIXTRAL = dict(
    SMALL, **ROPE, model_type="mixtral", intermediate_size=12, num_local_experts=4,
    num_experts_per_tok=2, router_aux_loss_coef=0.05, sliding_window=None,
)
QWEN3_MOE = dict(
    SMALL, **ROPE, model_type="qwen3_moe", intermediate_size=24, moe_intermediate_size=12,
    num_experts=5, num_experts_per_tok=2, norm_topk_prob=False, decoder_sparse_step=1,
    mlp_only_layers=[0], router_aux_loss_coef=0.05, head_dim=8,
)
DOTS1 = dict(
    SMALL, **ROPE, model_type="dots1", intermediate_size=24, moe_intermediate_size=8, n_routed_experts=8,
    n_shared_experts=2, num_experts_per_tok=3, first_k_dense_replace=1, n_group=4, topk_group=2,
    norm_topk_prob=True, routed_scaling_factor=1.5, sliding_window=None, max_window_layers=2,
    aux_loss_alpha=0.05,
)
DEEPSEEK = dict(
    SMALL, model_type="deepseek", intermediate_size=24, moe_intermediate_size=8, n_routed_experts=6,
    n_shared_experts=2, num_experts_per_tok=2, first_k_dense_replace=1, moe_layer_freq=1,
    norm_topk_prob=False, scoring_func="softmax", aux_loss_alpha=0.05, seq_aux=True,
    rope_theta=500.0, attention_bias=False,
)
# name -> (config fields, is it trained?)
MODELS = {
    "mixtral": (MIXTRAL, True),
    "qwen3_moe": (QWEN3_MOE, True),
    "qwen3_moe_normalised": (
        dict(QWEN3_MOE, num_hidden_layers=3, norm_topk_prob=True, decoder_sparse_step=2,
             mlp_only_layers=[]),
        False,
    ),
    "deepseek": (DEEPSEEK, True),
    "dots1": (DOTS1, True),
}

TYPES = {fields["model_type"] for fields, _ in MODELS.values()}


class DeepseekMoe(torch.nn.Module):
    """Softmax over all experts, weights as they are, and shared experts as one MLP."""

    def __init__(self, fields):
        super().__init__()
        config = Qwen3MoeConfig(**{
            "hidden_size": fields["hidden_size"], "hidden_act": fields["hidden_act"],
            "moe_intermediate_size": fields["moe_intermediate_size"],
            "num_experts": fields["n_routed_experts"],
            "num_experts_per_tok": fields["num_experts_per_tok"],
            "norm_topk_prob": fields["norm_topk_prob"]})
        shared = LlamaConfig(
            hidden_size=fields["hidden_size"], num_attention_heads=1, hidden_act=fields["hidden_act"],
            intermediate_size=fields["moe_intermediate_size"] * fields["n_shared_experts"])
        self.gate = Qwen3MoeTopKRouter(config)
        self.experts = Qwen3MoeExperts(config)
        self.shared_experts = LlamaMLP(shared)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        _, weights, chosen = self.gate(rows)
        return self.experts(rows, chosen, weights).reshape(x.shape) + self.shared_experts(x)


def build_deepseek(common, fields):
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act",
             "tie_word_embeddings", "attention_bias")
    config = LlamaConfig(**common, **{name: fields[name] for name in names},
                         rope_parameters=dict(rope_type="default", rope_theta=fields["rope_theta"]))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = LlamaForCausalLM(config)
    for index, layer in enumerate(model.model.layers):
        if index >= fields["first_k_dense_replace"]:
            layer.mlp = DeepseekMoe(fields)
    return model


def save_deepseek(model, folder, fields):
    """As the authors of the model publish it: one tensor per matrix of an expert."""
    tensors = {}
    for name, value in model.state_dict().items():
        stacked = re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)", name)
        if stacked is None:
            tensors[name] = value
            continue
        for expert, matrix in enumerate(value):
            at = f"{stacked[1]}.{expert}"
            if stacked[2] == "down_proj":
                tensors[f"{at}.down_proj.weight"] = matrix
            else:
                gate, up = matrix.chunk(2)
                tensors[f"{at}.gate_proj.weight"], tensors[f"{at}.up_proj.weight"] = gate, up
    folder.mkdir(parents=True)
    save_file({k: v.clone().contiguous() for k, v in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    config = dict(fields, architectures=["DeepseekForCausalLM"], vocab_size=model.config.vocab_size,
                  torch_dtype="float32")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def coefficient(fields):
    return fields.get("router_aux_loss_coef", fields.get("aux_loss_alpha", 0.0))


class Routers:
    """Keeps what the routers of a model say in one forward pass, layer by layer."""

    def __init__(self, model):
        self.calls = []
        self.hooks = [
            module.register_forward_hook(lambda module, _, out: self.calls.append((module, out)))
            for name, module in model.named_modules() if name.endswith("mlp.gate")]

    def take(self):
        for hook in self.hooks:
            hook.remove()
        return self.calls


def aux_losses(calls, batch):
    """[layer, sequence]: the balance loss of docs/moe.md."""
    losses = []
    for router, (logits, _, chosen) in calls:
        experts = logits.shape[-1]
        for one, picks in zip(logits.chunk(batch), chosen.chunk(batch)):
            if hasattr(router, "e_score_correction_bias"):  # sigmoid: shares of the scores
                scores = one.sigmoid()
                share = (scores / scores.sum(-1, keepdim=True)).mean(0)
                load = torch.bincount(picks.flatten(), minlength=experts) / len(one)
                losses.append(experts * (load * share).sum())
            else:
                losses.append(load_balancing_loss_func((one,), experts, router.top_k))
    return torch.stack(losses).reshape(len(calls), batch)


def expert_tokens(calls):
    """[layer, expert]: assignments."""
    return torch.stack([torch.bincount(out[2].flatten(), minlength=out[0].shape[-1])
                        for _, out in calls]).to(torch.int32)


def narrowest_choice(calls):
    """The least distance between an expert that was chosen and one that was not: rounding must not
    change the choice. Groups are not looked at."""
    least = float("inf")
    for router, (logits, _, chosen) in calls:
        scores = logits.sigmoid() if hasattr(router, "e_score_correction_bias") else logits.softmax(-1)
        scores = scores + getattr(router, "e_score_correction_bias", 0)
        for row, picks in zip(scores, chosen):
            if hasattr(router, "num_group"):
                groups = row.view(router.num_group, -1).topk(2, -1)[0].sum(-1)
                keep = groups.topk(router.topk_group)[1]
                order = groups.sort(descending=True)[0]
                least = min(least, (order[router.topk_group - 1] - order[router.topk_group]).item())
                mask = torch.full_like(row.view(router.num_group, -1), float("-inf"))
                mask[keep] = 0
                row = row + mask.flatten()
            order = row.sort(descending=True)[0]
            least = min(least, (order[len(picks) - 1] - order[len(picks)]).item())
    return least
