#include "weft/config/schema.h"

namespace weft {
namespace {

constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .low_open = true}; }
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
/// [0, 1)
constexpr Range share() { return {.low = 0, .high = 1, .high_open = true}; }

const Only kRope{"model.family", {"", "llama", "moe"}};
const Only kMoe{"model.family", {"moe"}};
const Only kExperts{"model.family", {"", "moe"}};  // also of a config.json
const Only kAdamw{"optimizer.name", {"adamw"}};
const Only kSgd{"optimizer.name", {"sgd"}};
const Only kFp16{"precision.compute", {"fp16"}};  // with kAutoScale
constexpr std::string_view kAutoScale = "precision.loss_scale";
const std::vector<std::string_view> kTiers{"auto", "device", "host", "nvme"};

// clang-format off
#define AT(member) [](Config& c) -> auto& { return c.member; }

const std::vector<KeySpec>& table() {
  static const std::vector<KeySpec> keys{
    {.key = "seed", .field = AT(seed), .range = at_least(0),
     .help = "Seed of weights, dropout and data order."},

    {.key = "model.hf", .field = AT(model.hf), .unset_zero = true, .path = true,
     .aliases = {"model_name_or_path", "pretrained", "checkpoint"},
     .help = "Folder with config.json and, to start from them, safetensors weights."},
    {.key = "model.family", .field = AT(model.family), .choices = {"gpt2", "llama", "moe"},
     .unset_zero = true, .aliases = {"model_type", "architecture"},
     .help = "Family when no hf folder is given; llama also covers mistral, qwen2 and qwen3."},
    {.key = "model.hidden_size", .field = AT(model.hidden_size), .range = at_least(1),
     .aliases = {"n_embd", "d_model", "dim"}, .help = "Width of the residual stream."},
    {.key = "model.intermediate_size", .field = AT(model.intermediate_size), .range = at_least(1),
     .aliases = {"ffn_hidden_size", "n_inner", "ffn_dim"}, .help = "Width inside the MLP."},
    {.key = "model.num_hidden_layers", .field = AT(model.num_hidden_layers), .range = at_least(1),
     .aliases = {"num_layers", "n_layer", "n_layers"}, .help = "Layers."},
    {.key = "model.num_attention_heads", .field = AT(model.num_attention_heads), .range = at_least(1),
     .aliases = {"n_head", "n_heads", "num_heads"}, .help = "Query heads."},
    {.key = "model.num_key_value_heads", .field = AT(model.num_key_value_heads), .range = at_least(1),
     .only = kRope, .aliases = {"n_kv_heads", "num_query_groups", "num_kv_heads"},
     .help = "Key and value heads; divides the query heads."},
    {.key = "model.head_dim", .field = AT(model.head_dim), .range = at_least(1), .only = kRope,
     .aliases = {"kv_channels"}, .help = "Features per head; unset: hidden_size / heads."},
    {.key = "model.vocab_size", .field = AT(model.vocab_size), .range = at_least(1),
     .help = "Rows of the embedding; unset: that of the tokenizer."},
    {.key = "model.max_position_embeddings", .field = AT(model.max_position_embeddings),
     .range = at_least(1), .aliases = {"n_positions", "n_ctx", "block_size"},
     .help = "Longest sequence of the model."},
    {.key = "model.rms_norm_eps", .field = AT(model.rms_norm_eps), .range = above(0),
     .aliases = {"layer_norm_epsilon", "norm_epsilon", "norm_eps"}, .help = "Epsilon of the norms."},
    {.key = "model.rope_theta", .field = AT(model.rope_theta), .range = above(0), .only = kRope,
     .aliases = {"rotary_base"}, .help = "Base of the rotary embedding."},
    {.key = "model.rope_parameters", .field = AT(model.rope_parameters), .only = kRope,
     .aliases = {"rope_scaling"}, .help = "Rotary variant as in config.json: rope_type, factor, …"},
    {.key = "model.tie_word_embeddings", .field = AT(model.tie_word_embeddings),
     .aliases = {"tie_embeddings", "weight_tying"}, .help = "Head shares the embedding."},
    {.key = "model.hidden_act", .field = AT(model.hidden_act),
     .aliases = {"activation_function", "activation"}, .help = "Activation of the MLP."},
    {.key = "model.attention_bias", .field = AT(model.attention_bias), .only = kRope,
     .aliases = {"add_qkv_bias"}, .help = "Biases of the attention projections."},
    {.key = "model.mlp_bias", .field = AT(model.mlp_bias), .only = kRope,
     .help = "Biases of the MLP projections."},
    {.key = "model.gated_mlp", .field = AT(model.gated_mlp), .only = kMoe, .aliases = {"swiglu"},
     .help = "MLPs and experts have a gate (unset: true); without one no hf folder can be exported."},
    {.key = "model.qk_norm", .field = AT(model.qk_norm), .only = kRope,
     .aliases = {"qk_layernorm"}, .help = "RMS norm of queries and keys per head (qwen3)."},
    {.key = "model.sliding_window", .field = AT(model.sliding_window), .range = at_least(1),
     .only = kRope, .help = "Attention window in tokens; unset: all previous tokens."},
    {.key = "model.initializer_range", .field = AT(model.initializer_range), .range = at_least(0),
     .aliases = {"init_std"}, .help = "Standard deviation of new matrices; unset: 0.02."},
    {.key = "model.dropout", .field = AT(model.dropout), .range = share(),
     .aliases = {"resid_pdrop", "embd_pdrop", "hidden_dropout"},
     .help = "Dropout of embeddings and residual branches."},
    {.key = "model.num_experts", .field = AT(model.num_experts), .range = at_least(1), .only = kMoe,
     .aliases = {"num_local_experts", "n_routed_experts"}, .help = "Routed experts per layer."},
    {.key = "model.num_experts_per_tok", .field = AT(model.num_experts_per_tok),
     .range = at_least(1), .only = kMoe, .aliases = {"moe_router_topk", "top_k"},
     .help = "Experts per token."},
    {.key = "model.num_shared_experts", .field = AT(model.num_shared_experts), .range = at_least(0),
     .only = kMoe, .aliases = {"n_shared_experts"}, .help = "Experts that see every token."},
    {.key = "model.moe_intermediate_size", .field = AT(model.moe_intermediate_size),
     .range = at_least(1), .only = kMoe, .help = "Width inside one expert."},
    {.key = "model.norm_topk_prob", .field = AT(model.norm_topk_prob), .only = kMoe,
     .help = "Scale the chosen experts' weights to sum 1."},
    {.key = "model.router_score", .field = AT(model.router_score), .choices = {"softmax", "sigmoid"},
     .only = kMoe, .aliases = {"scoring_func", "moe_router_score_function"},
     .help = "Scores of the experts; unset: softmax. sigmoid has a selection bias (docs/moe.md)."},
    {.key = "model.routed_scaling_factor", .field = AT(model.routed_scaling_factor),
     .range = above(0), .only = kMoe, .help = "Factor on the experts' weights, with sigmoid; unset: 1."},
    {.key = "model.n_group", .field = AT(model.n_group), .range = at_least(1), .only = kMoe,
     .aliases = {"moe_router_num_groups"}, .help = "Groups of experts, with sigmoid; unset: 1."},
    {.key = "model.topk_group", .field = AT(model.topk_group), .range = at_least(1), .only = kMoe,
     .aliases = {"moe_router_group_topk"}, .help = "Groups a token may choose from; unset: all."},
    {.key = "model.first_k_dense_replace", .field = AT(model.first_k_dense_replace),
     .range = at_least(0), .only = kMoe, .aliases = {"num_dense_layers"},
     .help = "Layers at the begin with an ordinary MLP of intermediate_size."},
    {.key = "model.router_aux_loss_coef", .field = AT(model.router_aux_loss_coef),
     .range = at_least(0), .only = kExperts, .aliases = {"moe_aux_loss_coeff", "aux_loss_alpha"},
     .help = "Weight of the load balance loss; unset: 0.001, 0 with sigmoid, or that of hf."},
    {.key = "model.router_z_loss_coef", .field = AT(model.router_z_loss_coef), .range = at_least(0),
     .only = kExperts, .aliases = {"moe_z_loss_coeff"},
     .help = "Weight of the loss on large router logits; unset: 0."},
    {.key = "model.router_bias_rate", .field = AT(model.router_bias_rate), .range = at_least(0),
     .only = kExperts, .aliases = {"moe_router_bias_update_rate", "bias_update_speed"},
     .help = "Step of the selection bias; unset: 0.001, with hf 0. Only with sigmoid scores."},
    {.key = "model.capacity_factor", .field = AT(model.capacity_factor), .range = above(0),
     .only = kExperts, .aliases = {"moe_expert_capacity_factor"},
     .help = "Slots per expert over the even share; unset: nothing is dropped."},

    {.key = "data.train", .field = AT(data.train), .path = true,
     .aliases = {"data_path", "train_data", "dataset"},
     .help = "Training files: .txt, .jsonl or the prefix of a .bin/.idx pair."},
    {.key = "data.weights", .field = AT(data.weights), .range = at_least(0),
     .help = "Share of each training file; empty: the files are joined."},
    {.key = "data.valid", .field = AT(data.valid), .path = true,
     .aliases = {"validation", "valid_data"}, .help = "Validation files."},
    {.key = "data.valid_fraction", .field = AT(data.valid_fraction), .range = share(),
     .aliases = {"validation_split", "split"}, .help = "Part of the training data kept for validation."},
    {.key = "data.tokenizer", .field = AT(data.tokenizer), .path = true,
     .aliases = {"tokenizer_path", "tokenizer_model", "vocab_file"},
     .help = "\"bytes\", or a tokenizer.json or the folder that holds one."},
    {.key = "data.seq_len", .field = AT(data.seq_len), .range = at_least(1),
     .aliases = {"seq_length", "sequence_length", "max_seq_len", "block_size", "context_length"},
     .help = "Tokens per sample."},
    {.key = "data.shuffle", .field = AT(data.shuffle), .help = "Permute the samples of each epoch."},
    {.key = "data.allow_special", .field = AT(data.allow_special),
     .help = "Text may spell control tokens."},
    {.key = "data.reset_positions", .field = AT(data.reset_positions),
     .aliases = {"reset_position_ids"}, .help = "Positions restart after a document."},
    {.key = "data.reset_attention", .field = AT(data.reset_attention),
     .aliases = {"reset_attention_mask"}, .help = "Tokens see their own document only."},
    {.key = "data.mask_boundary", .field = AT(data.mask_boundary), .aliases = {"eod_mask_loss"},
     .help = "Ignore the label that crosses into the next document."},

    {.key = "train.steps", .field = AT(train.steps), .range = at_least(0),
     .aliases = {"max_steps", "train_iters", "num_steps", "max_iters", "iterations"},
     .help = "Optimizer steps of the whole run."},
    {.key = "train.global_batch", .field = AT(train.global_batch), .range = at_least(1),
     .unset_zero = true, .aliases = {"global_batch_size", "train_batch_size", "batch_size"},
     .help = "Sequences per step = micro_batch x accumulation x parallel.data; any two give the "
             "third, unset factors are 1."},
    {.key = "train.micro_batch", .field = AT(train.micro_batch), .range = at_least(1),
     .unset_zero = true,
     .aliases = {"micro_batch_size", "local_batch_size", "per_device_train_batch_size",
                 "train_micro_batch_size_per_gpu"},
     .help = "Sequences of one data-parallel rank at a time."},
    {.key = "train.accumulation", .field = AT(train.accumulation), .range = at_least(1),
     .unset_zero = true, .aliases = {"gradient_accumulation_steps", "grad_accumulation_steps"},
     .help = "Micro-batches per step."},
    {.key = "train.microbatch_order", .field = AT(train.microbatch_order),
     .choices = {"auto", "horizontal", "vertical"},
     .help = "horizontal: one micro-batch after the other; vertical: all of a layer first."},
    {.key = "train.grad_clip", .field = AT(train.grad_clip), .range = at_least(0),
     .aliases = {"gradient_clipping", "clip_grad", "max_grad_norm", "max_norm"},
     .help = "Largest global L2 norm of the gradient; 0 = off."},
    {.key = "train.eval_every", .field = AT(train.eval_every), .range = at_least(0),
     .aliases = {"eval_interval", "eval_steps"}, .help = "Steps between evaluations; 0 = only at the end."},
    {.key = "train.eval_batch", .field = AT(train.eval_batch), .range = at_least(0),
     .aliases = {"per_device_eval_batch_size", "eval_batch_size"},
     .help = "Sequences per evaluation batch; 0 = micro_batch."},
    {.key = "train.log_every", .field = AT(train.log_every), .range = at_least(1),
     .aliases = {"log_interval", "logging_steps", "steps_per_print"}, .help = "Steps between log lines."},

    {.key = "optimizer.name", .field = AT(optimizer.name), .choices = {"adamw", "sgd"},
     .aliases = {"optimizer", "type"}, .help = "Optimizer."},
    {.key = "optimizer.lr", .field = AT(optimizer.lr), .range = at_least(0),
     .aliases = {"learning_rate", "max_lr", "peak_lr"}, .help = "Peak learning rate."},
    {.key = "optimizer.betas", .field = AT(optimizer), .range = share(), .only = kAdamw,
     .aliases = {"beta1", "beta2", "adam_beta1", "adam_beta2"}, .help = "Decay of the two moments."},
    {.key = "optimizer.eps", .field = AT(optimizer.eps), .range = above(0), .only = kAdamw,
     .aliases = {"epsilon", "adam_eps", "adam_epsilon"}, .help = "Added to the root of the second moment."},
    {.key = "optimizer.weight_decay", .field = AT(optimizer.weight_decay), .range = at_least(0),
     .aliases = {"wd"}, .help = "Decoupled decay of matrices; never of norms and biases."},
    {.key = "optimizer.momentum", .field = AT(optimizer.momentum), .range = share(), .only = kSgd,
     .help = "Momentum."},
    {.key = "optimizer.moments", .field = AT(optimizer.moments), .choices = {"fp32", "bf16"},
     .aliases = {"exp_avg_dtype", "optimizer_dtype", "state_dtype"},
     .help = "Type of the moments between steps; bf16: rounded stochastically, half the bytes."},

    {.key = "schedule.name", .field = AT(schedule.name),
     .choices = {"constant", "linear", "cosine", "wsd"},
     .aliases = {"lr_scheduler_type", "lr_decay_style", "scheduler", "decay"},
     .help = "Learning rate after the warm-up."},
    {.key = "schedule.warmup_steps", .field = AT(schedule.warmup_steps), .range = at_least(0),
     .aliases = {"warmup", "lr_warmup_iters", "warmup_iters", "num_warmup_steps"},
     .help = "Step s of the warm-up, from 1, trains with lr * s / warmup_steps."},
    {.key = "schedule.min_lr", .field = AT(schedule.min_lr), .range = at_least(0),
     .only = {"schedule.name", {"linear", "cosine", "wsd"}}, .aliases = {"lr_min", "eta_min"},
     .help = "Learning rate of the last step and after it."},
    {.key = "schedule.decay_steps", .field = AT(schedule.decay_steps), .range = at_least(0),
     .only = {"schedule.name", {"wsd"}}, .aliases = {"lr_wsd_decay_iters", "cooldown"},
     .help = "Length of the final decay; 0 = a tenth of the run."},
    {.key = "schedule.lr_scaling", .field = AT(schedule.lr_scaling),
     .choices = {"none", "linear", "sqrt"},
     .help = "Scales lr by global_batch / base_batch or its root; min_lr stays."},
    {.key = "schedule.base_batch", .field = AT(schedule.base_batch), .range = at_least(1),
     .unset_zero = true, .only = {"schedule.lr_scaling", {"linear", "sqrt"}},
     .help = "Global batch for which lr was chosen."},

    {.key = "precision.compute", .field = AT(precision.compute),
     .choices = {"fp32", "bf16", "fp16", "fp64"}, .aliases = {"dtype", "precision", "bf16", "fp16"},
     .help = "Type of matmuls and activations; master weights stay fp32. fp64: ref only."},
    {.key = "precision.accumulate", .field = AT(precision.accumulate), .choices = {"fp32"},
     .aliases = {"grad_accum_dtype"}, .help = "Type of the gradient accumulators."},
    {.key = "precision.loss_scale", .field = AT(precision.loss_scale), .range = above(0),
     .automatic = true, .help = "A number is a static scale; auto: dynamic for fp16, none otherwise."},
    {.key = "precision.dynamic.initial", .field = AT(precision.dynamic.initial), .range = above(0),
     .only = kFp16, .only_auto = kAutoScale,
     .aliases = {"initial_scale_power"}, .help = "First loss scale."},
    {.key = "precision.dynamic.growth_interval", .field = AT(precision.dynamic.growth_interval),
     .range = at_least(1), .only = kFp16, .only_auto = kAutoScale, .aliases = {"loss_scale_window"},
     .help = "Good steps before the scale grows."},
    {.key = "precision.dynamic.growth_factor", .field = AT(precision.dynamic.growth_factor),
     .range = above(1), .only = kFp16, .only_auto = kAutoScale, .help = "Factor of the growth."},
    {.key = "precision.dynamic.backoff_factor", .field = AT(precision.dynamic.backoff_factor),
     .range = {.low = 0, .high = 1, .low_open = true, .high_open = true}, .only = kFp16, .only_auto = kAutoScale,
     .help = "Factor after an overflow."},
    {.key = "precision.dynamic.hysteresis", .field = AT(precision.dynamic.hysteresis),
     .range = at_least(1), .only = kFp16, .only_auto = kAutoScale, .help = "Overflows before the scale shrinks."},
    {.key = "precision.dynamic.min_scale", .field = AT(precision.dynamic.min_scale),
     .range = above(0), .only = kFp16, .only_auto = kAutoScale,
     .aliases = {"min_loss_scale"}, .help = "Least loss scale."},
    {.key = "precision.dynamic.reset", .field = AT(precision.dynamic.reset), .only = kFp16, .only_auto = kAutoScale,
     .help = "A resumed run starts again from the initial scale instead of the saved one."},

    {.key = "device.backend", .field = AT(device.backend), .choices = {"cpu", "cuda", "ref", "null"},
     .help = "ref: plain loops; null: plans, computes nothing."},
    {.key = "device.threads", .field = AT(device.threads), .range = between(0, 4096),
     .only = {"device.backend", {"cpu"}}, .aliases = {"num_threads", "num_workers"},
     .help = "Threads per rank; 0 = cores / local ranks."},

    {.key = "parallel.data", .field = AT(parallel.data), .range = between(1, 1048576),
     .aliases = {"dp", "data_parallel_size", "data_parallel_degree"}, .help = "Data-parallel ranks."},
    {.key = "parallel.op", .field = AT(parallel.op), .range = between(1, 1048576),
     .aliases = {"tp", "tensor", "tensor_parallel", "tensor_model_parallel_size"},
     .help = "Ranks that share each operator (tensor parallelism)."},
    {.key = "parallel.pipeline", .field = AT(parallel.pipeline), .range = between(1, 1048576),
     .aliases = {"pp", "pipeline_stages", "pipeline_model_parallel_size"}, .help = "Pipeline stages."},
    {.key = "parallel.expert", .field = AT(parallel.expert), .range = between(1, 1048576),
     .aliases = {"ep", "expert_model_parallel_size"},
     .help = "Ranks that share the experts; divides parallel.data and model.num_experts."},
    {.key = "parallel.sequence", .field = AT(parallel.sequence), .aliases = {"sequence_parallel"},
     .help = "Shard the residual stream over op along the sequence."},
    {.key = "parallel.zero", .field = AT(parallel.zero), .range = between(0, 3),
     .aliases = {"zero_stage", "stage"},
     .help = "0 none, 1 optimizer states, 2 + gradients, 3 + weights over data."},
    {.key = "parallel.strategy", .field = AT(parallel.strategy),
     .choices = {"manual", "semi", "auto"}, .help = "How operators without a given shard are cut."},
    {.key = "parallel.shard", .field = AT(parallel.shard),
     .help = "Per module pattern: { input = […], weight = […] } or { strategy = \"((dp,1),…)\" }."},

    {.key = "memory.device", .field = AT(memory.device), .range = at_least(1), .bytes = true,
     .automatic = true, .help = "Budget per rank."},
    {.key = "memory.host", .field = AT(memory.host), .range = at_least(1), .bytes = true,
     .automatic = true, .aliases = {"offload_cpu_size", "max_in_cpu"},
     .help = "Budget per node of the warm tier."},
    {.key = "memory.nvme", .field = AT(memory.nvme), .path = true,
     .aliases = {"nvme_path", "offload_path"}, .help = "Folders of the cold tier; empty = off."},
    {.key = "memory.nvme_limit", .field = AT(memory.nvme_limit), .range = at_least(1),
     .bytes = true, .automatic = true, .aliases = {"offload_disk_size"},
     .help = "Budget per node of the cold tier."},

    {.key = "offload.optimizer", .field = AT(offload.optimizer), .choices = kTiers,
     .help = "Home of the optimizer states: a tier or { device = 0.1, host = 0.6, nvme = 0.3 }."},
    {.key = "offload.weights", .field = AT(offload.weights), .choices = kTiers,
     .help = "Home of the weights."},
    {.key = "offload.gradients", .field = AT(offload.gradients), .choices = kTiers,
     .help = "Home of the gradient accumulators."},
    {.key = "offload.activations", .field = AT(offload.activations), .choices = kTiers,
     .help = "Home of the layer-boundary activations."},
    {.key = "offload.update_on", .field = AT(offload.update_on), .choices = {"auto", "device", "host"},
     .help = "Where the optimizer step runs."},
    {.key = "offload.late_update", .field = AT(offload.late_update), .choices = {"auto", "on", "off"},
     .help = "Whether the update runs at the begin of the next step, hidden behind its forward pass; "
             "auto: when a state lives on NVMe."},
    {.key = "offload.prefetch", .field = AT(offload.prefetch), .range = at_least(0), .bytes = true,
     .automatic = true, .help = "Bytes of the prefetch window, charged to the device budget."},
    {.key = "offload.groups", .field = AT(offload.groups), .choices = kTiers,
     .help = "Tier per parameter pattern."},

    {.key = "recompute.policy", .field = AT(recompute.policy),
     .choices = {"none", "full", "selective", "auto"},
     .aliases = {"recompute_granularity", "gradient_checkpointing", "activation_checkpointing"},
     .help = "Which activations are computed again in the backward pass."},
    {.key = "recompute.every", .field = AT(recompute.every), .range = at_least(1),
     .only = {"recompute.policy", {"full"}}, .aliases = {"recompute_num_layers"},
     .help = "Layers per checkpoint."},

    {.key = "checkpoint.every_steps", .field = AT(checkpoint.every_steps), .range = at_least(0),
     .aliases = {"save_interval", "save_steps", "interval"}, .help = "Steps between checkpoints; 0 = off."},
    {.key = "checkpoint.every_minutes", .field = AT(checkpoint.every_minutes),
     .range = at_least(0), .help = "Minutes between checkpoints; 0 = off."},
    {.key = "checkpoint.keep", .field = AT(checkpoint.keep), .range = at_least(1),
     .aliases = {"save_total_limit", "keep_last"}, .help = "Newest checkpoints that stay."},
    {.key = "checkpoint.async", .field = AT(checkpoint.async), .aliases = {"async_save"},
     .help = "Write from a snapshot while training goes on."},
    {.key = "checkpoint.final", .field = AT(checkpoint.final_save),
     .help = "Save the last step whatever the intervals."},

    {.key = "monitor.tensorboard", .field = AT(monitor.tensorboard),
     .help = "Write TensorBoard event files."},
    {.key = "monitor.prometheus_port", .field = AT(monitor.prometheus_port),
     .range = between(0, 65535), .help = "Port of the metrics page; 0 = off."},
    {.key = "monitor.dashboard_port", .field = AT(monitor.dashboard_port),
     .range = between(0, 65535), .help = "Port of the live page; 0 = off."},
    {.key = "monitor.bind", .field = AT(monitor.bind), .help = "Address of both pages."},
    {.key = "monitor.trace_steps", .field = AT(monitor.trace_steps), .range = at_least(1),
     .help = "Steps whose timeline is written as Chrome trace JSON."},

    {.key = "alarm.nonfinite", .field = AT(alarm.nonfinite), .choices = {"stop", "skip"},
     .help = "What a non-finite loss or gradient does; under fp16 it is an overflow of the loss "
             "scale, which skips the step."},
    {.key = "alarm.max_skips", .field = AT(alarm.max_skips), .range = at_least(1),
     .help = "Skipped steps in a row (fp16 overflows too) that stop the run."},
    {.key = "alarm.grad_norm", .field = AT(alarm.grad_norm), .range = at_least(0),
     .help = "Gradient norm above which the alarm goes; 0 = off."},
    {.key = "alarm.stall_seconds", .field = AT(alarm.stall_seconds), .range = at_least(0),
     .help = "Seconds without progress that stop the run; 0 = off."},
    {.key = "alarm.command", .field = AT(alarm.command),
     .help = "Command run on an alarm, with a JSON document on its stdin."},
  };
  return keys;
}
#undef AT
// clang-format on

}  // namespace

std::span<const KeySpec> config_schema() { return table(); }

const KeySpec* find_key(std::string_view key) {
  for (const KeySpec& spec : table()) {
    if (spec.key == key) return &spec;
  }
  return nullptr;
}

bool is_bare_key(std::string_view key) {
  if (key.empty()) return false;
  for (const char c : key) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '-') return false;
  }
  return true;
}

std::string_view section_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

std::string_view leaf_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

}  // namespace weft
