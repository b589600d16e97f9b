"""Makes the golden models whose published keys or tensor names differ from those of transformers.

Most of them are models of make_transformers.py, saved under the keys and names of the code or the
checkpoint on the hub: GTE with its NTK scaling ("new"), NomicBERT with the keys of GPT-2, Qwen3 and
Llama with attention in both directions, and the language models of Gemma 3 and Mistral 3, which
also read images. JinaBERT and NomicBERT with experts are in no version of transformers and are
computed here, in float64. jina_tasks is jina-embeddings-v3 with the adapters of tasks in its
checkpoint: transformers computes it with the matrices of a task added to the weights, as the code
on the hub does.

  python make_published.py [--only new,jina_bert] [--out FOLDER]
"""

import argparse
import json
import math
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from make_transformers import (
    FIRST_ID,
    FLOAT32,
    LENGTHS,
    Draw,
    all_in_double,
    drawn,
    expected_of,
    make,
    redraw,
)
from safetensors.torch import load_file, save_file


def rewrite(path: Path, config, rename=lambda name: name) -> None:
    """Replaces config.json by `config` of it, and renames the tensors."""
    file = path / "config.json"
    values = config(json.loads(file.read_text()))
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    weights = path / "model.safetensors"
    tensors = {rename(name): tensor for name, tensor in load_file(weights).items()}
    save_file(tensors, weights, {"format": "pt"})


def ntk_frequencies(theta: float, dims: int, factor: float, mixed_b) -> torch.Tensor:
    """Returns the frequencies of GTE's code (kexue.fm/archives/9706)."""
    base = theta * (factor if mixed_b is None else 1)
    frequencies = 1.0 / base ** (torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    if mixed_b is None:
        return frequencies / factor ** (2 / dims)
    a = math.log(factor) / (dims / 2) ** mixed_b
    numbers = torch.arange(1, dims // 2 + 1, dtype=torch.float64)
    return frequencies / (a * numbers ** mixed_b).exp()


def new(path: Path, seed: int) -> None:
    _, config, _ = drawn("gte", seed)
    theta = config.rope_parameters["rope_theta"]
    dims = config.hidden_size // config.num_attention_heads
    factor, mixed_b = 1.5 + seed, 1.5 if seed == 3 else None

    def scale(model) -> None:
        frequencies = ntk_frequencies(theta, dims, factor, mixed_b)
        for module in model.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq = frequencies.to(module.inv_freq.dtype)

    make(path, "gte", seed, scale)
    scaling = {"type": "ntk", "factor": factor} | ({"mixed_b": mixed_b} if mixed_b else {})

    def publish(values: dict) -> dict:
        values.pop("rope_parameters")
        return values | {
            "architectures": [values["architectures"][0].replace("Gte", "New")],
            "model_type": "new", "rope_theta": theta, "rope_scaling": scaling, "pack_qkv": True,
            "layer_norm_type": "layer_norm", "position_embedding_type": "rope",
            "logn_attention_scale": False, "logn_attention_clip1": False, "unpad_inputs": False,
            "use_memory_efficient_attention": False}

    rewrite(path, publish, lambda name: name.replace("gte.", "new."))


def nomic_published(path: Path, seed: int) -> None:
    make(path, "nomic_bert", seed)

    def publish(values: dict) -> dict:
        return {
            "architectures": values["architectures"], "model_type": "nomic_bert",
            "id2label": values.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"}),
            "vocab_size": values["vocab_size"], "n_embd": values["hidden_size"],
            "n_inner": values["intermediate_size"], "n_layer": values["num_hidden_layers"],
            "n_head": values["num_attention_heads"],
            "n_positions": values["max_position_embeddings"],
            "max_trained_positions": values["max_position_embeddings"],
            "activation_function": {"silu": "swiglu", "gelu": "geglu"}[values["hidden_act"]],
            "layer_norm_epsilon": values["layer_norm_eps"],
            "type_vocab_size": values["type_vocab_size"], "causal": False, "prenorm": False,
            "parallel_block": False, "use_rms_norm": None, "qkv_proj_bias": False,
            "mlp_fc1_bias": False, "mlp_fc2_bias": False, "rotary_emb_fraction": 1.0,
            "rotary_emb_base": values["rope_parameters"]["rope_theta"],
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None, "scale_attn_by_inverse_layer_idx": False,
            "scale_attn_weights": True, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
            "use_flash_attn": True, "pad_vocab_size_multiple": 64}

    rewrite(path, publish)


def both_directions(model) -> None:
    model.config.is_causal = False


def qwen3_projected(path: Path, seed: int) -> None:
    """Adds the dense layer, and the embedding that it makes of the mean of a sequence's states."""
    make(path, "qwen3", 4 * seed + 2, both_directions)  # These numbers are of Qwen3Model.

    def publish(values: dict) -> dict:
        values.pop("is_causal", None)
        return values | {"architectures": ["Qwen3BidirectionalModel"], "num_labels": 11}

    rewrite(path, publish, lambda name: f"model.{name}")
    tensors = load_file(path / "model.safetensors")
    hidden = tensors["model.embed_tokens.weight"].shape[1]
    generator = torch.Generator().manual_seed(seed)
    tensors["linear.weight"] = torch.randn(11, hidden, generator=generator) / hidden ** 0.5
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    expected = load_file(path / "expected.safetensors")
    rows = expected["states"].double().split(expected["lengths"].tolist())
    means = torch.stack([row.mean(0) for row in rows])
    embedding = means @ tensors["linear.weight"].double().T
    save_file(expected | {"embedding": embedding.to(FLOAT32)}, path / "expected.safetensors")


def llama_bidirec(path: Path, seed: int) -> None:
    number = (2, 6, 3)[seed - 1]  # Two of LlamaModel, one classifier.
    make(path, "llama", number, both_directions)
    if number == 3:
        pool_mean(path)

    def publish(values: dict) -> dict:
        values.pop("is_causal", None)
        name = values["architectures"][0]
        return values | {
            "architectures": [name.replace("LlamaModel", "LlamaBidirectionalModel").replace(
                "LlamaFor", "LlamaBidirectionalFor")],
            "model_type": "llama_bidirec", "pooling": "avg", "temperature": 1.0}

    rewrite(path, publish)


def pool_mean(path: Path) -> None:
    """Replaces the scores of the last state by those of the mean of the states."""
    model = transformers.LlamaModel.from_pretrained(path).double().eval()
    model.config.is_causal = False
    score = load_file(path / "model.safetensors")["score.weight"].double()
    expected = load_file(path / "expected.safetensors")
    rows, first = [], 0
    for length in expected["lengths"].tolist():
        ids = expected["input_ids"][None, first:first + length].long()
        rows.append(model(ids).last_hidden_state[0].mean(dim=0) @ score.T)
        first += length
    expected["scores"] = torch.stack(rows).to(FLOAT32)
    save_file(expected, path / "expected.safetensors")


def tower(path: Path, family: str, number: int, named: tuple[str, str], old: bool) -> None:
    """Saves a language model as the part of a model that also reads images, with the names of
    published checkpoints if `old`, else with those of transformers 5."""
    make(path, family, number)

    def publish(values: dict) -> dict:
        text = {key: value for key, value in values.items() if key not in (
            "architectures", "tie_word_embeddings", "eos_token_id", "dtype")}
        return {"architectures": [named[0]], "model_type": named[1], "text_config": text,
                "tie_word_embeddings": values.get("tie_word_embeddings", True),
                "vision_config": {"model_type": "siglip_vision_model"},
                "eos_token_id": values["eos_token_id"], "dtype": values["dtype"]}

    def rename(name: str) -> str:
        if old:
            return f"language_model.{name}"
        return name.replace("model.", "model.language_model.")

    rewrite(path, publish, rename)
    weights = load_file(path / "model.safetensors")
    weights["vision_tower.vision_model.embeddings.position_embedding.weight"] = torch.ones(2, 3)
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def gemma3_tower(path: Path, seed: int) -> None:
    number = (1, 3, 4)[seed - 1]  # Of Gemma3ForCausalLM; number 2 is another class.
    tower(path, "gemma3", number, ("Gemma3ForConditionalGeneration", "gemma3"), seed != 2)


def mistral3_tower(path: Path, seed: int) -> None:
    family, number = (("mistral", 1), ("ministral3", 1), ("ministral3", 5))[seed - 1]
    tower(path, family, number, ("Mistral3ForConditionalGeneration", "mistral3"), seed != 2)


def alibi(heads: int, length: int) -> torch.Tensor:
    """Returns [heads, length, length] biases (arXiv 2108.12409), the same in both directions."""
    def slopes(n: int) -> list[float]:
        if math.log2(n).is_integer():
            first = 2 ** -(2 ** -(math.log2(n) - 3))
            return [first * first ** i for i in range(n)]
        near = 2 ** math.floor(math.log2(n))
        return slopes(near) + slopes(2 * near)[0::2][:n - near]

    places = torch.arange(length, dtype=torch.float64)
    distance = (places[:, None] - places[None]).abs()
    return -torch.tensor(slopes(heads), dtype=torch.float64)[:, None, None] * distance


def jina_states(p: dict, config: dict, ids: torch.Tensor) -> list[torch.Tensor]:
    """Returns the states after the embedding and after each layer."""
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"],
                            config["layer_norm_eps"])

    def dense(x, name):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    heads, inner = config["num_attention_heads"], config["intermediate_size"]
    act = F.gelu if config["feed_forward_type"] == "geglu" else F.relu
    words, types = (p[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
    x = words[ids] + types[0]
    states = [norm(x, "embeddings.LayerNorm")]
    for n in range(config["num_hidden_layers"]):
        x, layer = states[-1], f"encoder.layer.{n}"
        q, k, v = (dense(x, f"{layer}.attention.self.{name}").unflatten(-1, (heads, -1)).transpose(
            0, 1) for name in ("query", "key", "value"))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + alibi(heads, len(ids))
        y = (scores.softmax(dim=-1) @ v).transpose(0, 1).flatten(1)
        x = norm(dense(y, f"{layer}.attention.output.dense") + x,
                 f"{layer}.attention.output.LayerNorm")
        gated = dense(x, f"{layer}.mlp.gated_layers")
        y = dense(act(gated[:, :inner]) * gated[:, inner:], f"{layer}.mlp.wo")
        states.append(norm(y + x, f"{layer}.mlp.layernorm"))
    return states


def jina_bert(path: Path, seed: int) -> None:
    d = Draw(90_000 + seed, seed)
    heads = (2, 3, 6)[seed - 1]  # Not all are powers of two.
    hidden, inner = 8 * heads, d(20, 28)
    config = {"architectures": ["JinaBertModel"], "model_type": "bert", "vocab_size": d(41, 48),
              "hidden_size": hidden, "num_hidden_layers": d(2, 3), "num_attention_heads": heads,
              "intermediate_size": inner, "max_position_embeddings": 64, "type_vocab_size": 2,
              "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "alibi",
              "feed_forward_type": "reglu" if seed == 2 else "geglu", "emb_pooler": "mean",
              "attn_implementation": "torch"}

    def draw(*shape, scale=0.2, mean=0.0):
        return (mean + scale * torch.from_numpy(d.rng.standard_normal(shape))).float()

    p = {"embeddings.word_embeddings.weight": draw(config["vocab_size"], hidden, scale=0.5),
         "embeddings.token_type_embeddings.weight": draw(2, hidden, scale=0.5)}
    norms = ["embeddings.LayerNorm"]
    for n in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{n}"
        shapes = {f"attention.self.{name}": (hidden, hidden) for name in ("query", "key", "value")}
        shapes |= {"attention.output.dense": (hidden, hidden), "mlp.wo": (hidden, inner)}
        for name, shape in shapes.items():
            p[f"{layer}.{name}.weight"] = draw(*shape, scale=1.2 / shape[1] ** 0.5)
            p[f"{layer}.{name}.bias"] = draw(shape[0])
        p[f"{layer}.mlp.gated_layers.weight"] = draw(2 * inner, hidden, scale=1.2 / hidden ** 0.5)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.mlp.layernorm"]
    for name in norms:
        p[f"{name}.weight"], p[f"{name}.bias"] = draw(hidden, mean=1.0), draw(hidden)
    save_statement(path, d, config, p, jina_states)


def nomic_states(p: dict, config: dict, ids: torch.Tensor) -> list[torch.Tensor]:
    """Returns the states after the embedding and after each layer, by the code on the hub."""
    heads, experts = config["n_head"], config["num_experts"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"],
                            config["layer_norm_epsilon"])

    def dense(x, name):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def rotate(x):  # [heads, length, head_dim]
        half = x.shape[-1] // 2
        steps = torch.arange(half, dtype=torch.float64) / half
        places = torch.arange(x.shape[1], dtype=torch.float64)
        angles = places[:, None] / config["rotary_emb_base"] ** steps
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(),
                          b * angles.cos() + a * angles.sin()], dim=-1)

    def mix(x, layer):
        """Returns the sum of the results of each row's experts."""
        w1, w2 = (p[f"{layer}.mlp.experts.mlp.{name}"].unflatten(0, (experts, -1))
                  for name in ("w1", "w2"))
        weights = dense(x, f"{layer}.mlp.router.layer").softmax(dim=-1)
        best, chosen = weights.topk(config["moe_top_k"], dim=-1)
        rows = [sum(weight * (F.gelu(row @ w1[expert].T) @ w2[expert])
                    for weight, expert in zip(row_weights, row_experts))
                for row, row_weights, row_experts in zip(x, best, chosen)]
        return torch.stack(rows) + p[f"{layer}.mlp.experts.bias"]

    words, types = (p[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
    states = [norm(words[ids] + types[0], "emb_ln")]
    for n in range(config["n_layer"]):
        x, layer = states[-1], f"encoder.layers.{n}"
        q, k, v = dense(x, f"{layer}.attn.Wqkv").unflatten(-1, (3, heads, -1)).permute(1, 2, 0, 3)
        scores = rotate(q) @ rotate(k).transpose(1, 2) / q.shape[-1] ** 0.5
        y = (scores.softmax(dim=-1) @ v).transpose(0, 1).flatten(1)
        x = norm(dense(y, f"{layer}.attn.out_proj") + x, f"{layer}.norm1")
        if n % config["moe_every_n_layers"] == 1:
            y = mix(x, layer)
        else:
            y = dense(F.gelu(dense(x, f"{layer}.mlp.fc1")), f"{layer}.mlp.fc2")
        states.append(norm(y + x, f"{layer}.norm2"))
    return states


def nomic_moe(path: Path, seed: int) -> None:
    """Makes a model like nomic-embed-text-v2-moe."""
    d = Draw(91_000 + seed, seed)
    heads = d(2, 4)
    hidden, inner, experts = 8 * heads, d(20, 28), d(4, 7)
    config = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert",
              "vocab_size": d(41, 48), "n_embd": hidden, "n_inner": inner, "n_layer": 4,
              "n_head": heads, "n_positions": 64, "max_trained_positions": 64,
              "activation_function": "gelu", "layer_norm_epsilon": 1e-5, "type_vocab_size": 1,
              "causal": False, "prenorm": False, "parallel_block": False, "use_rms_norm": None,
              "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True,
              "rotary_emb_fraction": 1.0, "rotary_emb_base": d(1e3, 1e4),
              "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
              "rotary_scaling_factor": None, "scale_attn_weights": True,
              "moe_every_n_layers": d(2, 3), "moe_top_k": d(1, 2), "num_experts": experts,
              "moe_impl": "megablocks", "moe_normalize_expert_weights": False,
              "expert_choice_router": False, "num_shared_experts": 0, "ffn_div": 1,
              "moe_resid_pdrop": 0.0, "router_aux_loss_coef": 0.1, "pad_token_id": 1,
              "pad_vocab_size_multiple": 64, "use_flash_attn": True}

    def draw(*shape, scale=0.2, mean=0.0):
        return (mean + scale * torch.from_numpy(d.rng.standard_normal(shape))).float()

    p = {"embeddings.word_embeddings.weight": draw(config["vocab_size"], hidden, scale=0.5),
         "embeddings.token_type_embeddings.weight": draw(1, hidden, scale=0.5)}
    norms = ["emb_ln"]
    for n in range(config["n_layer"]):
        layer = f"encoder.layers.{n}"
        shapes = {"attn.Wqkv": (3 * hidden, hidden), "attn.out_proj": (hidden, hidden)}
        if n % config["moe_every_n_layers"] == 1:
            for name in ("w1", "w2"):
                p[f"{layer}.mlp.experts.mlp.{name}"] = draw(
                    experts * inner, hidden, scale=1.2 / hidden ** 0.5)
            p[f"{layer}.mlp.router.layer.weight"] = draw(experts, hidden, scale=1.2 / hidden ** 0.5)
            p[f"{layer}.mlp.experts.bias"] = draw(hidden)
        else:
            shapes |= {"mlp.fc1": (inner, hidden), "mlp.fc2": (hidden, inner)}
        for name, shape in shapes.items():
            p[f"{layer}.{name}.weight"] = draw(*shape, scale=1.2 / shape[1] ** 0.5)
            p[f"{layer}.{name}.bias"] = draw(shape[0])
        norms += [f"{layer}.norm1", f"{layer}.norm2"]
    for name in norms:
        p[f"{name}.weight"], p[f"{name}.bias"] = draw(hidden, mean=1.0), draw(hidden)
    save_statement(path, d, config, p, nomic_states)


def save_statement(path: Path, d: Draw, config: dict, p: dict, states_of) -> None:
    """Saves a model with the states that `states_of` computes in float64."""
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(p, path / "model.safetensors", {"format": "pt"})
    double = {name: tensor.double() for name, tensor in p.items()}
    sequences = [torch.from_numpy(d.rng.integers(FIRST_ID, config["vocab_size"], length))
                 for length in LENGTHS]
    rows = [states_of(double, config, ids) for ids in sequences]
    expected = {"lengths": torch.tensor(LENGTHS, dtype=torch.int32),
                "input_ids": torch.cat(sequences).int(),
                "states": torch.cat([row[-1] for row in rows]).to(FLOAT32)}
    for k in range(len(rows[0])):
        expected[f"state_{k}"] = torch.cat([row[k] for row in rows]).to(FLOAT32)
    save_file(expected, path / "expected.safetensors")


TASKS = {"retrieval.query": "Represent the query: ", "retrieval.passage": "Represent it: ",
         "text-matching": ""}


def jina_tasks(path: Path, seed: int) -> None:
    _, config, d = drawn("jina_v3", seed)
    kind = transformers.JinaEmbeddingsV3Model
    model = kind._from_config(config, attn_implementation="eager").eval()
    redraw(model, d.rng)
    model.save_pretrained(path)
    base = load_file(path / "model.safetensors")
    rank, alpha = d(1, 2, 4), d(1, 8)
    published, changes = {}, {task: {} for task in TASKS}
    for name, weight in base.items():
        module = name.removesuffix(".weight")
        if weight.dim() != 2:
            published[f"roberta.{name}"] = weight
            continue
        out, width = weight.shape
        table = "embeddings" in name
        shapes = ((out, rank), (rank, width)) if table else ((rank, width), (out, rank))
        a, b = (torch.from_numpy(d.rng.standard_normal((len(TASKS), *shape))).float()
                for shape in shapes)
        a, b = a / a.shape[2] ** 0.5, b * 0.5 * rank / alpha / b.shape[2] ** 0.5
        prefix = f"roberta.{module}.parametrizations.weight"
        published[f"{prefix}.original"] = weight
        published |= {f"{prefix}.0.lora_A": a, f"{prefix}.0.lora_B": b}
        for i, task in enumerate(TASKS):
            factors = (a[i], b[i]) if table else (b[i], a[i])
            changes[task][name] = alpha / rank * (factors[0].double() @ factors[1].double())

    def states(change: dict) -> dict:
        merged = {name: tensor.double() + change.get(name, 0) for name, tensor in base.items()}
        save_file(merged, path / "model.safetensors", {"format": "pt"})
        double = kind.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval()
        with all_in_double("jina_v3"):
            return expected_of(double, False, config.vocab_size, np.random.default_rng(seed))

    expected = states({})
    for task in TASKS:
        expected[f"states_{task}"] = states(changes[task])["states"]
    save_file(expected, path / "expected.safetensors")
    save_file(published, path / "model.safetensors", {"format": "pt"})
    hub = "jinaai/xlm-roberta-flash-implementation--"

    def publish(values: dict) -> dict:
        theta = values.pop("rope_parameters")["rope_theta"]
        values.pop("transformers_version", None)
        return values | {
            "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta",
            "auto_map": {"AutoConfig": f"{hub}configuration_xlm_roberta.XLMRobertaFlashConfig",
                         "AutoModel": f"{hub}modeling_lora.XLMRobertaLoRA"},
            "position_embedding_type": "rotary", "rotary_emb_base": theta,
            "load_trained_adapters": True, "lora_adaptations": list(TASKS), "lora_rank": rank,
            "lora_alpha": alpha, "lora_dropout_p": 0.0, "lora_main_params_trainable": False,
            "task_instructions": TASKS, "emb_pooler": "mean", "matryoshka_dimensions": [4, 8],
            "truncate_dim": None, "use_flash_attn": True, "use_reentrant": False}

    rewrite(path, publish)


MODELS = {"new": new, "nomic_published": nomic_published, "qwen3_projected": qwen3_projected,
          "llama_bidirec": llama_bidirec, "gemma3_tower": gemma3_tower,
          "mistral3_tower": mistral3_tower, "jina_bert": jina_bert, "nomic_moe": nomic_moe,
          "jina_tasks": jina_tasks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "families")
    parser.add_argument("--only", default="", help="models, with commas between them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # More threads would change the order of sums.
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in arguments.only.split(",") if arguments.only else MODELS:
        for seed in (1, 2, 3):
            path = arguments.out / f"{name}_{seed}"
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            MODELS[name](path, seed)
            print(path.name, flush=True)


if __name__ == "__main__":
    main()
