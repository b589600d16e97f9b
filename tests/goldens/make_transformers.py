"""Makes the golden models in tests/goldens/families: every family in transformers, by name.

For each family, at least three configurations (one for each of its classes if there are more) are
drawn from the seeds 1, 2, .., and weights from the same seeds. The models are computed in float64
with eager attention: the residual stream before the first layer and after each layer, the states
after the last norm, logits or scores, and the greedy tokens of `generate`. The daemon's tests read
the committed files and never run this script.

  python make_transformers.py [--only roberta,qwen3] [--out FOLDER]
"""

import argparse
import contextlib
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

LENGTHS = (1, 2, 9, 23)
GREEDY_STEPS = 8
GREEDY_MARGIN = 1e-3
SEEDS = 3
FLOAT32 = torch.float32
FIRST_ID = 5  # Lower ids are padding, end and mask tokens; some families place these elsewhere.


class Draw:
    """Draws the random choices of a configuration."""

    def __init__(self, seed: int, number: int):
        self.rng = np.random.default_rng(seed)
        self.seed, self.number = seed, number  # `number` counts the configurations of a family

    def __call__(self, *values):
        return values[self.rng.integers(len(values))]

    def sizes(self, **more) -> dict:
        """Returns the sizes under the keys that most families use."""
        heads = self(2, 4)
        return {"vocab_size": self(41, 48), "hidden_size": heads * self(6, 8),
                "num_hidden_layers": self(2, 3), "num_attention_heads": heads,
                "intermediate_size": self(20, 28), "max_position_embeddings": 40,
                "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3} | more

    def grouped(self, **more) -> dict:
        """Returns `sizes` with grouped queries."""
        return self.sizes(num_key_value_heads=self(1, 2), tie_word_embeddings=self(True, False),
                          rms_norm_eps=self(1e-5, 1e-6)) | more



def bert_like(d: Draw) -> dict:
    return d.sizes(hidden_act=d("gelu", "gelu_new", "relu"), type_vocab_size=d(1, 2),
                   layer_norm_eps=d(1e-5, 1e-12), num_labels=d(1, 3))


def distilbert(d: Draw) -> dict:
    heads = d(2, 4)
    return {"vocab_size": d(41, 48), "dim": heads * d(6, 8), "n_heads": heads, "n_layers": d(2, 3),
            "hidden_dim": d(20, 28), "max_position_embeddings": 40, "activation": d("gelu", "relu"),
            "sinusoidal_pos_embds": d(True, False), "num_labels": d(1, 3)}


def llama3(d: Draw) -> dict:
    scalings = (
        {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
        {"rope_type": "yarn", "rope_theta": 1e3, "factor": 4.0, "beta_fast": 2.0,
         "original_max_position_embeddings": 32},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0})
    return d.grouped(head_dim=d(6, 10), rope_parameters=scalings[d.seed % 3],
                     attention_bias=d(True, False), mlp_bias=d(True, False))


def windows(d: Draw, layers: int) -> dict:
    """Returns layer types, at least one with and one without a window."""
    types = [d("sliding_attention", "full_attention") for _ in range(layers)]
    types[:2] = ["sliding_attention", "full_attention"]
    return {"sliding_window": d(4, 7), "layer_types": types}


def qwen3(d: Draw) -> dict:
    sizes = d.grouped(head_dim=d(6, 10), attention_bias=d(True, False), num_labels=d(1, 3))
    return sizes | (windows(d, sizes["num_hidden_layers"]) | {"use_sliding_window": True}
                    if d(True, False) else {})


def two_bases(types: list[str], local: float, whole: float) -> dict:
    return {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
        "full_attention": {"rope_type": "default", "rope_theta": whole}}}


def gemma2(d: Draw) -> dict:
    sizes = d.grouped(head_dim=d(6, 10), query_pre_attn_scalar=d(5, 13), num_labels=2,
                      final_logit_softcapping=d(None, 3.0), attn_logit_softcapping=d(None, 1.5))
    return sizes | windows(d, sizes["num_hidden_layers"])


def gemma3(d: Draw) -> dict:
    sizes = d.grouped(head_dim=d(6, 10), query_pre_attn_scalar=d(5, 13))
    layers = windows(d, sizes["num_hidden_layers"])
    return sizes | layers | two_bases(layers["layer_types"], 50.0, 1000.0)


def olmo3(d: Draw) -> dict:
    sizes = d.grouped()
    layers = windows(d, sizes["num_hidden_layers"])
    bases = two_bases(layers["layer_types"], 50.0, 1000.0)
    bases["rope_parameters"]["full_attention"] |= {
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0,
        "original_max_position_embeddings": 32}
    return sizes | layers | bases


def modernbert(d: Draw) -> dict:
    sizes = d.sizes(hidden_activation="gelu", norm_eps=1e-5, norm_bias=d(True, False),
                    attention_bias=d(True, False), mlp_bias=d(True, False),
                    classifier_pooling=d("cls", "mean"), classifier_bias=d(True, False),
                    cls_token_id=2, sep_token_id=3, num_labels=3)
    layers = windows(d, sizes["num_hidden_layers"])
    layers |= {"local_attention": 2 * layers.pop("sliding_window")}
    return sizes | layers | two_bases(layers["layer_types"], 50.0, 1000.0)


def phi3(d: Draw) -> dict:
    sizes = d.grouped(sliding_window=d(None, 5))
    half = sizes["hidden_size"] // sizes["num_attention_heads"] // 2
    partial = 1.0 if half < 4 else d(1.0, 0.5)
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": partial}
    if d(True, False):
        factors = int(half * partial)
        rope |= {"rope_type": "longrope", "original_max_position_embeddings": 40,
                 "short_factor": [1.0 + 0.2 * i for i in range(factors)],
                 "long_factor": [2.0 + 0.5 * i for i in range(factors)]}
    return sizes | {"rope_parameters": rope, "original_max_position_embeddings": 40}


def gpt_neox(d: Draw) -> dict:
    heads = d(2, 4)
    return d.sizes(hidden_size=8 * heads, num_attention_heads=heads, hidden_act=d("gelu", "relu"),
                   use_parallel_residual=d(True, False), attention_bias=d(True, False),
                   rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                    "partial_rotary_factor": d(0.25, 0.5, 1.0)})


def opt(d: Draw) -> dict:
    sizes = d.sizes(activation_function=d("relu", "gelu"))
    inner = sizes.pop("intermediate_size")
    return sizes | {"ffn_dim": inner, "word_embed_proj_dim": sizes["hidden_size"]}


def t5(d: Draw) -> dict:
    return {"vocab_size": d(41, 48), "d_model": d(20, 24), "d_kv": d(6, 9), "d_ff": d(20, 28),
            "num_layers": d(2, 3), "num_heads": d(2, 3), "relative_attention_num_buckets": d(8, 12),
            "relative_attention_max_distance": d(12, 20), "n_positions": 40,
            "feed_forward_proj": d("relu", "gated-gelu"), "pad_token_id": 0, "eos_token_id": 1}


def gte(d: Draw) -> dict:
    return d.sizes(hidden_act="gelu", type_vocab_size=d(1, 2), layer_norm_eps=1e-12,
                   rope_parameters={"rope_type": "default", "rope_theta": d(1e3, 1e4)})


def llama(d: Draw) -> dict:
    return d.grouped(head_dim=d(6, 10), rope_parameters={
        "rope_type": "default", "rope_theta": d(1e3, 1e4)}, num_labels=d(1, 3),
        attention_bias=d(True, False), mlp_bias=d(True, False))


def gpt2(d: Draw) -> dict:
    heads = d(2, 4)
    return {"vocab_size": d(41, 48), "n_embd": heads * d(6, 8), "n_layer": d(2, 3),
            "n_head": heads, "n_inner": d(None, 20), "n_positions": 40,
            "activation_function": d("gelu_new", "relu"), "layer_norm_epsilon": d(1e-5, 1e-6),
            "bos_token_id": 2, "eos_token_id": 3}


def qwen2(d: Draw) -> dict:
    sizes = d.grouped(num_labels=d(1, 3))
    return sizes | (windows(d, sizes["num_hidden_layers"]) | {"use_sliding_window": True}
                    if d(True, False) else {})


def smollm3(d: Draw) -> dict:
    sizes = d.grouped(attention_bias=d(True, False), mlp_bias=d(True, False), num_labels=d(1, 3),
                      rope_parameters={"rope_type": "default", "rope_theta": d(1e3, 1e4)})
    layers = sizes["num_hidden_layers"]
    return sizes | {"no_rope_layers": [0, 1] + [d(0, 1) for _ in range(layers - 2)],
                    "use_sliding_window": False}


def deberta_v2(d: Draw) -> dict:
    """Returns the keys of published checkpoints: the first seed is like v3, the second has a row
    for each distance, and the others have one term, their own projections and positions in the
    embedding."""
    case = d.seed % 4
    sizes = d.sizes(hidden_act=d("gelu", "gelu_new"), layer_norm_eps=1e-7, num_labels=3,
                    pooler_hidden_act=d("gelu", "relu"), type_vocab_size=0,
                    relative_attention=True, position_buckets=d(8, 12), max_relative_positions=-1,
                    pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True,
                    position_biased_input=False)
    if case == 1:
        return sizes
    if case == 2:
        return sizes | {"position_buckets": -1, "max_relative_positions": 12}
    return sizes | {"pos_att_type": ["c2p"] if case == 3 else ["p2c"], "norm_rel_ebd": "none",
                    "share_att_key": False, "position_biased_input": True, "type_vocab_size": 2,
                    "max_relative_positions": d(-1, 20)}


def partial_rope(d: Draw, *parts: float) -> dict:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": d(1e3, 1e4),
                                "partial_rotary_factor": d(*parts)}}


def phi(d: Draw) -> dict:
    heads = d(2, 4)
    return d.sizes(hidden_size=8 * heads, num_attention_heads=heads, num_key_value_heads=d(1, 2),
                   hidden_act=d("gelu_new", "gelu"), layer_norm_eps=d(1e-5, 1e-6),
                   tie_word_embeddings=False, num_labels=3) | partial_rope(d, 0.5, 1.0)


def stablelm(d: Draw) -> dict:
    sizes = phi(d) | {"hidden_act": "silu", "use_qkv_bias": d(True, False)}
    return sizes | {"use_parallel_residual": d.number == 2} | partial_rope(d, 0.25, 0.5)


def starcoder2(d: Draw) -> dict:
    return d.sizes(num_key_value_heads=d(1, 2), hidden_act=d("gelu_pytorch_tanh", "relu"),
                   norm_epsilon=d(1e-5, 1e-6), use_bias=d.number != 2, num_labels=3,
                   sliding_window=d(None, 5), tie_word_embeddings=d(True, False))


def granite(d: Draw) -> dict:
    return d.grouped(embedding_multiplier=d(3.0, 12.0), attention_multiplier=d(0.2, 0.5),
                     residual_multiplier=d(0.22, 1.5), logits_scaling=d(0.6, 1.7),
                     attention_bias=d(True, False), mlp_bias=d(True, False))


def eurobert(d: Draw) -> dict:
    return d.grouped(attention_bias=d(True, False), mlp_bias=d(True, False), num_labels=3,
                     classifier_pooling=d("bos", "mean"), mask_token_id=4)


def with_embedding(d: Draw, **more) -> dict:
    """Returns sizes whose first configuration, a masked language model, has no narrow embedding."""
    sizes = bert_like(d) | more
    return sizes | {"embedding_size": sizes["hidden_size"] if d.number == 1 else d(6, 10)}


def albert(d: Draw) -> dict:
    return with_embedding(d, num_hidden_layers=d(3, 4), num_hidden_groups=d(1, 2),
                          inner_group_num=1)


def jina_v3(d: Draw) -> dict:
    return bert_like(d) | {"rope_parameters": {"rope_type": "default", "rope_theta": d(1e3, 1e4)}}


def ministral3(d: Draw) -> dict:
    return d.grouped(head_dim=d(6, 10), num_labels=3, sliding_window=d(None, 5), rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": d(4.0, 16.0), "beta_fast": 4.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.1})


def experts(d: Draw, count: str, **more) -> dict:
    """Returns grouped sizes of a model with experts, each of which few rows choose."""
    sizes = d.grouped(num_labels=3, rope_parameters={
        "rope_type": "default", "rope_theta": d(1e3, 1e4)}, **more)
    return sizes | {count: d(4, 7), "num_experts_per_tok": d(1, 2, 3)}


def qwen3_moe(d: Draw) -> dict:
    """Returns a model whose first layer is dense in the second configuration, and whose experts
    are in every second layer in the third."""
    case = d.seed % 4
    sizes = experts(d, "num_experts", head_dim=d(6, 10), moe_intermediate_size=d(10, 14),
                    attention_bias=d(True, False), num_hidden_layers=3,
                    norm_topk_prob=d(True, False))
    return sizes | ({"mlp_only_layers": [0]} if case == 2 else
                    {"decoder_sparse_step": 2} if case == 3 else {})


def granite_moe(d: Draw) -> dict:
    return experts(d, "num_local_experts", attention_bias=d(True, False),
                   embedding_multiplier=d(3.0, 0.5), attention_multiplier=d(0.3, 0.6),
                   residual_multiplier=d(0.22, 1.5), logits_scaling=d(2.0, 8.0))


def ernie(d: Draw) -> dict:
    return d.grouped(head_dim=d(6, 10), use_bias=d(True, False), hidden_act="silu",
                     rope_parameters={"rope_type": "default", "rope_theta": d(1e3, 1e4)})


def hunyuan(d: Draw) -> dict:
    scaling = ({"rope_type": "dynamic", "alpha": d(5.0, 1000.0), "factor": 1.0} if d.number != 2
               else {"rope_type": "default"})
    return d.grouped(head_dim=d(6, 10), attention_bias=d(True, False), num_labels=d(1, 3),
                     rope_parameters=scaling | {"rope_theta": d(1e3, 1e4)})


def both_ways(draw):
    """Returns a draw whose attention is in both directions."""
    return lambda d: draw(d) | {"is_causal": False}


# The configuration's class, its random draw, and the model classes, one for each seed. Add new
# families at the end, because a family's number is part of its seeds.
FAMILIES = {
    "roberta": ("RobertaConfig", bert_like, (
        "RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaModel",
        "RobertaForTokenClassification", "RobertaForQuestionAnswering")),
    "xlm_roberta": ("XLMRobertaConfig", bert_like, (
        "XLMRobertaForSequenceClassification", "XLMRobertaModel", "XLMRobertaForMaskedLM",
        "XLMRobertaForTokenClassification", "XLMRobertaForQuestionAnswering")),
    "camembert": ("CamembertConfig", bert_like, (
        "CamembertForMaskedLM", "CamembertModel", "CamembertForSequenceClassification",
        "CamembertForTokenClassification", "CamembertForQuestionAnswering")),
    "distilbert": ("DistilBertConfig", distilbert, (
        "DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertModel",
        "DistilBertForTokenClassification", "DistilBertForQuestionAnswering")),
    "mpnet": ("MPNetConfig", bert_like, (
        "MPNetForMaskedLM", "MPNetForSequenceClassification", "MPNetModel",
        "MPNetForTokenClassification", "MPNetForQuestionAnswering")),
    "qwen3": ("Qwen3Config", qwen3, (
        "Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification",
        "Qwen3ForTokenClassification")),
    "mistral": ("MistralConfig", lambda d: d.grouped(head_dim=d(6, 10), sliding_window=d(4, 7)), (
        "MistralForCausalLM", "MistralModel", "MistralForCausalLM")),
    "llama3": ("LlamaConfig", llama3, (
        "LlamaForCausalLM", "LlamaForSequenceClassification", "LlamaForCausalLM")),
    "modernbert": ("ModernBertConfig", modernbert, (
        "ModernBertForMaskedLM", "ModernBertForSequenceClassification", "ModernBertModel",
        "ModernBertForTokenClassification", "ModernBertForQuestionAnswering")),
    "phi3": ("Phi3Config", phi3, ("Phi3ForCausalLM",)),
    "olmo2": ("Olmo2Config", lambda d: d.grouped(), ("Olmo2ForCausalLM",)),
    "olmo3": ("Olmo3Config", olmo3, ("Olmo3ForCausalLM",)),
    "gemma": ("GemmaConfig", lambda d: d.grouped(head_dim=d(6, 10)), ("GemmaForCausalLM",)),
    "gemma2": ("Gemma2Config", gemma2, ("Gemma2ForCausalLM",)),
    "gemma3": ("Gemma3TextConfig", gemma3, (
        "Gemma3ForCausalLM", "Gemma3TextModel", "Gemma3ForCausalLM")),
    "nomic_bert": ("NomicBertConfig", lambda d: d.sizes(hidden_act=d("silu", "gelu")), (
        "NomicBertModel", "NomicBertForMaskedLM", "NomicBertModel",
        "NomicBertForTokenClassification")),
    "gte": ("GteConfig", gte, (
        "GteModel", "GteForSequenceClassification", "GteForMaskedLM", "GteForTokenClassification")),
    "gpt_neox": ("GPTNeoXConfig", gpt_neox, ("GPTNeoXForCausalLM",)),
    "opt": ("OPTConfig", opt, ("OPTForCausalLM",)),
    "t5": ("T5Config", t5, (
        "T5EncoderModel", "T5EncoderModel", "T5EncoderModel", "T5ForTokenClassification")),
    "bert": ("BertConfig", bert_like, (
        "BertForMaskedLM", "BertModel", "BertForSequenceClassification",
        "BertForTokenClassification", "BertForQuestionAnswering")),
    "gpt2": ("GPT2Config", gpt2, ("GPT2LMHeadModel", "GPT2Model", "GPT2LMHeadModel")),
    "llama": ("LlamaConfig", llama, (
        "LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification",
        "LlamaForTokenClassification")),
    "qwen2": ("Qwen2Config", qwen2, (
        "Qwen2ForCausalLM", "Qwen2Model", "Qwen2ForSequenceClassification",
        "Qwen2ForTokenClassification")),
    "smollm3": ("SmolLM3Config", smollm3, (
        "SmolLM3ForCausalLM", "SmolLM3Model", "SmolLM3ForSequenceClassification",
        "SmolLM3ForTokenClassification")),
    "deberta_v2": ("DebertaV2Config", deberta_v2, (
        "DebertaV2ForMaskedLM", "DebertaV2ForSequenceClassification", "DebertaV2Model",
        "DebertaV2ForTokenClassification", "DebertaV2ForQuestionAnswering")),
    "eurobert": ("EuroBertConfig", eurobert, (
        "EuroBertForMaskedLM", "EuroBertForSequenceClassification", "EuroBertModel",
        "EuroBertForTokenClassification")),
    "phi": ("PhiConfig", phi, (
        "PhiForCausalLM", "PhiModel", "PhiForSequenceClassification",
        "PhiForTokenClassification")),
    "stablelm": ("StableLmConfig", stablelm, (
        "StableLmForCausalLM", "StableLmForCausalLM", "StableLmModel",
        "StableLmForSequenceClassification", "StableLmForTokenClassification")),
    "starcoder2": ("Starcoder2Config", starcoder2, (
        "Starcoder2ForCausalLM", "Starcoder2ForCausalLM", "Starcoder2Model",
        "Starcoder2ForSequenceClassification", "Starcoder2ForTokenClassification")),
    "granite": ("GraniteConfig", granite, (
        "GraniteForCausalLM", "GraniteModel", "GraniteForCausalLM")),
    "electra": ("ElectraConfig", with_embedding, (
        "ElectraForMaskedLM", "ElectraForSequenceClassification", "ElectraModel",
        "ElectraForTokenClassification", "ElectraForQuestionAnswering")),
    "albert": ("AlbertConfig", albert, (
        "AlbertForMaskedLM", "AlbertForSequenceClassification", "AlbertModel",
        "AlbertForTokenClassification", "AlbertForQuestionAnswering")),
    "jina_v3": ("JinaEmbeddingsV3Config", jina_v3, (
        "JinaEmbeddingsV3ForMaskedLM", "JinaEmbeddingsV3ForSequenceClassification",
        "JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForTokenClassification",
        "JinaEmbeddingsV3ForQuestionAnswering")),
    "ministral3": ("Ministral3Config", ministral3, (
        "Ministral3ForCausalLM", "Ministral3Model", "Ministral3ForSequenceClassification",
        "Ministral3ForTokenClassification")),
    "qwen2_both": ("Qwen2Config", both_ways(qwen2), ("Qwen2Model",)),
    "mistral_both": ("MistralConfig", both_ways(
        lambda d: d.grouped(head_dim=d(6, 10), sliding_window=d(4, 7))), ("MistralModel",)),
    "llama_both": ("LlamaConfig", both_ways(llama), ("LlamaModel",)),
    "mixtral": ("MixtralConfig", lambda d: experts(
        d, "num_local_experts", head_dim=d(6, 10), sliding_window=d(None, 5)), (
        "MixtralForCausalLM", "MixtralModel", "MixtralForSequenceClassification",
        "MixtralForTokenClassification")),
    "qwen3_moe": ("Qwen3MoeConfig", qwen3_moe, (
        "Qwen3MoeForCausalLM", "Qwen3MoeModel", "Qwen3MoeForSequenceClassification",
        "Qwen3MoeForTokenClassification")),
    "olmoe": ("OlmoeConfig", lambda d: experts(d, "num_experts", norm_topk_prob=d(True, False)), (
        "OlmoeForCausalLM", "OlmoeModel", "OlmoeForCausalLM")),
    "granite_moe": ("GraniteMoeConfig", granite_moe, (
        "GraniteMoeForCausalLM", "GraniteMoeModel", "GraniteMoeForCausalLM")),
    "ernie": ("Ernie4_5Config", ernie, (
        "Ernie4_5ForCausalLM", "Ernie4_5Model", "Ernie4_5ForCausalLM")),
    "hunyuan": ("HunYuanDenseV1Config", hunyuan, (
        "HunYuanDenseV1ForCausalLM", "HunYuanDenseV1ForSequenceClassification",
        "HunYuanDenseV1Model")),
}


def redraw(model, rng) -> None:
    """Draws larger weights, because most initial weights are too small to affect an output."""
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        values = torch.from_numpy(rng.standard_normal(shape)).float()
        if len(shape) == 1:
            centre = 0 if name.endswith("bias") or parameter.mean() == 0 else 1
            values = centre + 0.2 * values
        else:
            table = "emb" in name or "shared" in name or "wte" in name or "relative" in name
            values *= 0.5 if table else 1.2 / shape[-1] ** 0.5
        parameter.data.copy_(values)


def layers_of(model):
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    return max(lists, key=lambda found: sum(p.numel() for p in found.parameters()))


def head_input_of(model):
    """Returns the module whose input is the daemon's output state, or None."""
    embeddings = model.get_output_embeddings()
    return None if embeddings is None else embeddings


def run(model, ids: torch.Tensor) -> dict:
    """Returns {name: output} for one sequence."""
    seen, handles = {}, []

    def first(output):
        return (output if isinstance(output, torch.Tensor) else output[0])[0].detach()

    # A layer may run several times, as in ALBERT.
    layers = layers_of(model)

    def keep_first_input(_, inputs, keywords):
        seen.setdefault("state_0", first(inputs[0] if inputs else keywords["hidden_states"]))

    handles.append(layers[0].register_forward_pre_hook(keep_first_input, with_kwargs=True))
    outputs = itertools.count(1)
    for layer in layers:
        handles.append(layer.register_forward_hook(
            lambda _, __, output: seen.__setitem__(f"state_{next(outputs)}", first(output))))
    head = head_input_of(model)
    if head is not None:
        handles.append(head.register_forward_pre_hook(
            lambda _, inputs: seen.__setitem__("states", first(inputs[0]))))
    output = model(ids[None])
    for handle in handles:
        handle.remove()
    logits = getattr(output, "logits", None)
    if hasattr(output, "start_logits"):
        seen["token_scores"] = torch.stack([output.start_logits[0], output.end_logits[0]], dim=1)
    elif logits is None:
        seen["states"] = output.last_hidden_state[0]
    elif logits.dim() == 3:
        of_tokens = type(model).__name__.endswith("ForTokenClassification")
        seen["token_scores" if of_tokens else "logits"] = logits[0]
    else:
        seen["scores"] = logits[0]
    return seen


def greedy(model, ids: torch.Tensor) -> torch.Tensor | None:
    """Returns the tokens that `generate` appends, or None if a token wins by too small a margin."""
    out = model.generate(ids[None], attention_mask=torch.ones_like(ids[None]), do_sample=False,
                         max_new_tokens=GREEDY_STEPS, min_new_tokens=GREEDY_STEPS,
                         eos_token_id=None, output_logits=True, return_dict_in_generate=True)
    best = torch.stack(out.logits)[:, 0].topk(2).values
    return out.sequences[0, len(ids):] if (best[:, 0] - best[:, 1]).min() > GREEDY_MARGIN else None


@contextlib.contextmanager
def all_in_double(family: str):
    """Makes transformers compute in float64 the parts that it always computes in float32: softmax,
    norms and rotary positions. Relative position buckets stay in float32, because that decides
    their borders."""
    saved = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    if family not in ("t5", "mpnet"):
        torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = saved


def expected_of(model, causal: bool, vocab: int, rng) -> dict:
    rows, sequences = [], []
    for length in LENGTHS:
        for _ in range(50):
            ids = torch.from_numpy(rng.integers(FIRST_ID, vocab, length))
            row = run(model, ids)
            if causal and "logits" in row:
                row["greedy"] = greedy(model, ids)
                if row["greedy"] is None:
                    continue
            break
        else:
            raise SystemExit("no sequence has clear greedy tokens")
        rows.append(row)
        sequences.append(ids)
    expected = {"lengths": torch.tensor(LENGTHS, dtype=torch.int32),
                "input_ids": torch.cat(sequences).int()}
    for key in rows[0]:
        if key == "greedy":
            expected[key] = torch.stack([row[key] for row in rows]).int()
        elif key == "scores":
            expected[key] = torch.stack([row[key] for row in rows]).to(FLOAT32)
        else:
            expected[key] = torch.cat([row[key] for row in rows]).to(FLOAT32)
    return {name: values.contiguous() for name, values in expected.items()}


def drawn(family: str, seed: int):
    """Returns the architecture, the configuration and the draw that makes the weights."""
    config_class, draw, classes = FAMILIES[family]
    d = Draw(1000 * (1 + list(FAMILIES).index(family)) + seed, seed)
    architecture, values = classes[(seed - 1) % len(classes)], draw(d)
    if architecture.endswith("ForQuestionAnswering"):
        values["num_labels"] = 2
    return architecture, getattr(transformers, config_class)(**values), d


def make(path: Path, family: str, seed: int, change=lambda _: None) -> str:
    """Makes a golden; `change` alters both models before they run."""
    architecture, config, d = drawn(family, seed)
    if family == "gemma3" and architecture == "Gemma3TextModel":  # As in EmbeddingGemma.
        config = type(config)(**(config.to_dict() | {"use_bidirectional_attention": True}))
    # The other implementations of experts refuse float64.
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = getattr(transformers, architecture)._from_config(config, **eager)
    model = model.eval()
    redraw(model, d.rng)
    change(model)
    model.save_pretrained(path)
    (path / "generation_config.json").unlink(missing_ok=True)
    text = json.loads((path / "config.json").read_text())
    text.pop("transformers_version", None)
    (path / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    causal = "Causal" in architecture or architecture == "GPT2LMHeadModel"
    with all_in_double(family):
        double = type(model)._from_config(config, **eager).double().eval()
        double.load_state_dict(model.state_dict())
        change(double)
        expected = expected_of(double, causal, config.vocab_size, d.rng)
    # The daemon's states between layers are divided by the multiplier.
    if family in ("granite", "granite_moe"):
        for key in [key for key in expected if key.startswith("state_")]:
            expected[key] = expected[key] / config.residual_multiplier
    save_file(expected, path / "expected.safetensors")
    return architecture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "families")
    parser.add_argument("--only", default="", help="families, with commas between them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # More threads would change the order of sums.
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    chosen = arguments.only.split(",") if arguments.only else FAMILIES
    for family in chosen:
        for seed in range(1, max(SEEDS, len(FAMILIES[family][2])) + 1):
            path = arguments.out / f"{family}_{seed}"
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            print(f"{path.name:16} {make(path, family, seed)}", flush=True)


if __name__ == "__main__":
    main()
