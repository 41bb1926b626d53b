#!/usr/bin/env python3
"""Writes tests/golden/models/: tiny models in Hugging Face layout and what the real library makes of
them. Neither the build nor the tests run this; they read the committed files.

    python3 -m venv build/venv
    build/venv/bin/pip install torch transformers==5.24.0 safetensors numpy
    build/venv/bin/python tools/goldens/make_goldens.py [NAME...]

Reference values are those of the library's own modules computed in float64 and stored as float32
("loss_f32" is its plain float32 loss). See tests/golden/README.md for the tensors of each file.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import moe_models

VOCAB = 67
BATCH = 3
SEQ = 16
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1
MAX_NORM = 1.0
ADAMW_STEPS = 10
SGD = dict(lr=0.1, momentum=0.9)
SGD_STEPS = 5

COMMON = dict(
    vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=None, use_cache=False
)
LLAMA = dict(
    model_type="llama", hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5,
    rope_parameters=dict(rope_type="default", rope_theta=500.0), tie_word_embeddings=False,
    attention_bias=False, mlp_bias=False, hidden_act="silu",
)
GPT2 = dict(
    model_type="gpt2", n_embd=16, n_layer=2, n_head=4, n_positions=24, n_inner=None,
    activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    layer_norm_epsilon=1e-5, tie_word_embeddings=True,
)
QWEN = dict(
    hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-6,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0), hidden_act="silu",
    use_sliding_window=False,
)
LLAMA3_ROPE = dict(
    rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=16,
)

# name -> (config fields, is it trained?). All get logits, loss and gradients.
MODELS = {
    "gpt2": (GPT2, True),
    "gpt2_erf_layer_scale": (
        dict(GPT2, activation_function="gelu", n_inner=20, scale_attn_by_inverse_layer_idx=True),
        False,
    ),
    "llama": (LLAMA, True),
    "llama_tied": (dict(LLAMA, num_hidden_layers=3, tie_word_embeddings=True), True),
    "llama_bias": (dict(LLAMA, attention_bias=True, mlp_bias=True), False),
    "llama_rope_linear": (
        dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        False,
    ),
    "llama_rope_llama3": (dict(LLAMA, head_dim=8, rope_parameters=LLAMA3_ROPE), False),
    "mistral": (
        {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias")}
        | dict(model_type="mistral", sliding_window=None), True,
    ),
    "mistral_window": (
        {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias")}
        | dict(model_type="mistral", sliding_window=4), False,
    ),
    "qwen2": (dict(QWEN, model_type="qwen2", tie_word_embeddings=True), True),
    "qwen2_window": (
        dict(QWEN, model_type="qwen2", num_hidden_layers=3, tie_word_embeddings=False,
             use_sliding_window=True, sliding_window=4, max_window_layers=1),
        False,
    ),
    "qwen3": (
        dict(QWEN, model_type="qwen3", hidden_size=20, num_attention_heads=3,
             num_key_value_heads=1, head_dim=8, tie_word_embeddings=False), True,
    ),
}
MODELS |= moe_models.MODELS
# Written with the field names of transformers 4 (rope_theta, rope_scaling, torch_dtype).
OLD_SPELLING = {"llama_rope_llama3", "llama_rope_linear", "qwen2"}


@contextlib.contextmanager
def float64_everywhere():
    """Inside, the "upcasts" to float32 in norms, softmax, RoPE and loss go to float64."""
    saved = torch.float32, torch.float, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = lambda self: self.to(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved
        torch.set_default_dtype(torch.float32)


def build(fields):
    if fields["model_type"] == "deepseek":
        return moe_models.build_deepseek(COMMON, fields).train()
    config = AutoConfig.for_model(**COMMON, **fields)
    options = {"experts_implementation": "eager"} if fields["model_type"] in moe_models.TYPES else {}
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", **options).train()


def randomise(model, seed):
    """No weight keeps a default: a bias, gain or head that is ignored must show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.2 * torch.randn(b.shape, generator=generator))
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.ndim == 1 and name.endswith("bias"):
                p.copy_(0.2 * noise)
            elif p.ndim == 1:
                p.copy_(1.0 + 0.3 * noise)
            elif name.endswith("mlp.gate.weight"):
                p.copy_(0.5 * noise)
            else:
                p.copy_(0.25 * noise)


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (BATCH, SEQ), generator=generator)
    labels = ids.clone()
    labels[0, :1] = -100  # no effect: the first label is never predicted
    labels[1, :9] = -100  # a masked prompt
    labels[2, 5] = labels[2, 11] = -100
    labels[2, 13:] = -100  # masked end
    shifted = torch.full_like(labels, -100)
    shifted[:, :-1] = labels[:, 1:]
    return ids, labels, shifted


def reference(fields, weights):
    with float64_everywhere():
        model = build(fields)
    missing, unexpected = model.load_state_dict(
        {k: v.double() for k, v in weights.items()}, strict=False)
    model = model.double()  # buffers
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    assert all(p.dtype == torch.float64 for p in model.parameters())
    return model


def loss_and_grads(model, ids, labels, coefficient):
    model.zero_grad(set_to_none=True)
    routers = moe_models.Routers(model)
    with float64_everywhere():
        out = model(input_ids=ids, labels=labels)
        calls = routers.take()
        aux = moe_models.aux_losses(calls, BATCH) if calls else None
    assert out.loss.dtype == torch.float64 and out.logits.dtype == torch.float64
    objective = out.loss
    if calls:
        assert aux.dtype == torch.float64
        assert moe_models.narrowest_choice(calls) > 1e-5
        objective = objective + coefficient * aux.mean()
    objective.backward()
    return out, aux, calls


def decay_groups(model):
    params = list(model.parameters())  # a tied matrix appears once
    return [
        dict(params=[p for p in params if p.ndim >= 2], weight_decay=WEIGHT_DECAY),
        dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0),
    ]


def train(fields, weights, ids, labels, optimizer_name):
    model = reference(fields, weights)
    adamw = optimizer_name == "adamw"
    optimizer = (
        torch.optim.AdamW(decay_groups(model), **ADAMW) if adamw
        else torch.optim.SGD(model.parameters(), **SGD)
    )
    losses, norms, aux_losses = [], [], []
    for _ in range(ADAMW_STEPS if adamw else SGD_STEPS):
        out, aux, _ = loss_and_grads(model, ids, labels, moe_models.coefficient(fields))
        aux_losses.append(0.0 if aux is None else aux.mean().item())
        limit = MAX_NORM if adamw else float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        losses.append(out.loss.item())
        optimizer.step()
    result = {
        f"{optimizer_name}.losses": torch.tensor(losses, dtype=torch.float64),
        f"{optimizer_name}.grad_norms": torch.tensor(norms, dtype=torch.float64),
    }
    if any(aux_losses):
        result[f"{optimizer_name}.aux_losses"] = torch.tensor(aux_losses, dtype=torch.float64)
    for name, p in parameters_and_biases(model):
        result[f"{name}@{optimizer_name}"] = p.detach().to(torch.float32).clone()
    return result


def parameters_and_biases(model):
    """The parameters, and the selection biases of routers, which no optimizer updates."""
    yield from model.named_parameters()
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            yield name, b


def old_spelling(config):
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    return config


def clean_config(folder, old):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if old:
        config = old_spelling(config)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def drop_extras(folder):
    for extra in ("generation_config.json",):
        (folder / extra).unlink(missing_ok=True)


def write_model(root, name, fields, trained, seed):
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    model = build(fields)
    randomise(model, seed)
    if fields["model_type"] == "deepseek":
        moe_models.save_deepseek(model, folder, COMMON | fields)
    else:
        model.save_pretrained(folder)
    drop_extras(folder)
    weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
    ids, labels, shifted = batch(seed + 1000)
    plain = model(input_ids=ids, labels=labels)

    ref = reference(fields, weights)
    out, aux, calls = loss_and_grads(ref, ids, labels, moe_models.coefficient(fields))
    drift = (out.logits.float() - plain.logits).abs().max() / plain.logits.abs().max()
    assert drift < 1e-5, f"{name}: float64 and float32 runs differ by {drift}"
    valid = (shifted != -100).sum()
    tensors = {
        "input_ids": ids.to(torch.int32),
        "labels": labels.to(torch.int32),
        "shifted_labels": shifted.to(torch.int32),
        "valid_labels": valid.to(torch.int64).reshape(1),
        "logits": out.logits.detach().to(torch.float32),
        "loss": out.loss.detach().reshape(1),
        "loss_f32": plain.loss.detach().reshape(1),
    }
    if calls:
        tensors["aux_losses"] = aux.detach()
        tensors["expert_tokens"] = moe_models.expert_tokens(calls)
    for pname, p in ref.named_parameters():
        tensors[f"{pname}@grad"] = p.grad.to(torch.float32).clone()
    if trained:
        tensors |= train(fields, weights, ids, labels, "adamw")
        tensors |= train(fields, weights, ids, labels, "sgd")
    if fields["model_type"] != "deepseek":
        clean_config(folder, name in OLD_SPELLING)
    if name in OLD_SPELLING:  # the library itself still reads it, and alike
        again = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").train()
        assert torch.equal(again(input_ids=ids).logits, plain.logits), name
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "golden.safetensors",
              metadata={"format": "pt"})
    size = sum(f.stat().st_size for f in folder.iterdir())
    assert size < 200_000, f"{name}: {size} bytes"
    print(f"{name:24} loss {out.loss.item():.6f} f32 {plain.loss.item():.6f} valid {valid} "
          f"drift {drift:.1e} {size} bytes")


def write_storage_variants(root):
    """Same weights as "llama": in shards, and in bf16. Only for import and export."""
    fields, _ = MODELS["llama"]
    model = AutoModelForCausalLM.from_pretrained(root / "llama")
    for name, dtype, limit in (("llama_sharded", torch.float32, "10KB"),
                               ("llama_bf16", torch.bfloat16, "1GB")):
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        model.to(dtype).save_pretrained(folder, max_shard_size=limit)
        drop_extras(folder)
        clean_config(folder, False)
        print(f"{name:24} {sorted(f.name for f in folder.iterdir())}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to write; default all")
    repo = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=repo / "tests/golden/models")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for index, (name, (fields, trained)) in enumerate(MODELS.items()):
        if not args.names or name in args.names:
            write_model(args.out, name, fields, trained, seed=7 + index)
    if not args.names:
        write_storage_variants(args.out)


if __name__ == "__main__":
    main()
