"""Small random models of the SluiceForCausalLM family, as files and as numpy code."""

import json
import pathlib
import shutil

import numpy as np

D, HEADS, LAYERS, MLP, VOCAB, POSITIONS = 16, 2, 2, 24, 40, 12
LABELS = 3
# The tokenizers of tests/goldens.
TOKENIZERS = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "tokenizers"


def draw_tensors(seed, head, classifier, positions, vocab):
    random = np.random.default_rng(seed)

    def matrix(*shape):
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": matrix(vocab, D) * 4,
        "model.embed_positions.weight": matrix(positions, D) * 4,
        "model.norm.weight": 1 + 0.2 * matrix(D),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("q", "k", "v", "o"):
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = matrix(D, D)
        tensors[f"{prefix}mlp.up_proj.weight"] = matrix(MLP, D)
        tensors[f"{prefix}mlp.down_proj.weight"] = matrix(D, MLP)
        for name in ("input", "post_attention"):
            tensors[f"{prefix}{name}_layernorm.weight"] = 1 + 0.2 * matrix(D)
    if head:
        tensors["lm_head.weight"] = matrix(vocab, D)
    if classifier:
        tensors |= {"classifier.weight": matrix(LABELS, D), "classifier.bias": matrix(LABELS),
                    "pooler.dense.weight": matrix(D, D), "pooler.dense.bias": matrix(D)}
    return tensors


def write_safetensors(path, tensors, dtype="F32"):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": tensor.shape,
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(t.tobytes() for t in tensors.values())
    )


class TinyModel:
    """A random model. `extensions` are keys of the object "sluice" in config.json."""

    def __init__(self, directory, seed, head=True, causal=True, positions=POSITIONS, vocab=VOCAB,
                 **extensions):
        self.head, self.causal, self.extensions = head, causal, extensions
        self.positions = positions
        self.tensors = draw_tensors(seed, head, "classifier" in extensions, positions,
                                    vocab)
        directory.mkdir()
        self.directory = directory
        write_safetensors(directory / "model.safetensors", self.tensors)
        (directory / "config.json").write_text(
            json.dumps(
                {
                    "architectures": ["SluiceForCausalLM" if head else "SluiceModel"],
                    "vocab_size": vocab,
                    "hidden_size": D,
                    "intermediate_size": MLP,
                    "num_hidden_layers": LAYERS,
                    "num_attention_heads": HEADS,
                    "num_key_value_heads": HEADS,
                    "head_dim": D // HEADS,
                    "max_position_embeddings": positions,
                    "tie_word_embeddings": False,
                    "sluice": {
                        "positions": {"kind": "learned"},
                        "attention": {"causal": causal},
                        "mlp": {"activation": "relu", "gated": False},
                        **extensions,
                    },
                }
            )
        )

    def embed(self, ids):
        return self.tensors["model.embed_tokens.weight"][np.asarray(ids)].astype(np.float64)

    def states(self, ids=None, vectors=None):
        """Returns the states [length, d] after the last norm, computed in float64."""
        t = {name: tensor.astype(np.float64) for name, tensor in self.tensors.items()}

        def norm(x, name):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * t[name + ".weight"]

        x = self.embed(ids) if vectors is None else np.asarray(vectors, np.float64)
        n = len(x)
        first = self.positions - n if self.extensions.get("position_alignment") == "end" else 0
        x = x + t["model.embed_positions.weight"][first : first + n]
        mask = np.where(np.tri(n, dtype=bool) | (not self.causal), 0, -np.inf)
        for layer in range(LAYERS):
            prefix = f"model.layers.{layer}."
            h = norm(x, prefix + "input_layernorm")
            q, k, v = (
                (h @ t[f"{prefix}self_attn.{name}_proj.weight"].T)
                .reshape(n, HEADS, -1)
                .transpose(1, 0, 2)
                for name in "qkv"
            )
            weights = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(D // HEADS) + mask)
            y = (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, D)
            x = x + y @ t[prefix + "self_attn.o_proj.weight"].T
            h = norm(x, prefix + "post_attention_layernorm")
            x = (
                x
                + np.maximum(h @ t[prefix + "mlp.up_proj.weight"].T, 0)
                @ t[prefix + "mlp.down_proj.weight"].T
            )
        return norm(x, "model.norm")

    def all_logits(self, ids):
        return self.states(ids) @ self.tensors["lm_head.weight"].T.astype(np.float64)

    def logits(self, ids):
        return self.all_logits(ids)[-1]

    def scores(self, pooled):
        hidden = np.tanh(
            self.tensors["pooler.dense.weight"] @ pooled + self.tensors["pooler.dense.bias"]
        )
        return self.tensors["classifier.weight"] @ hidden + self.tensors["classifier.bias"]


def tokenizer_path(name):
    return TOKENIZERS / f"{name}.json"


def lay(folder, name, positions, **extensions):
    """Writes a tiny model with the tokenizer."""
    if name == "byte":
        TinyModel(folder, 1, positions=positions, vocab=258, tokenizer="byte", **extensions)
        return folder
    vocab = json.loads(tokenizer_path(name).read_text())
    model = vocab["model"]["vocab"]
    ids = list(model.values()) if isinstance(model, dict) else list(range(len(model)))
    size = 1 + max([*ids, *(each["id"] for each in vocab["added_tokens"])])
    TinyModel(folder, 1, positions=positions, vocab=size, **extensions)
    shutil.copy(tokenizer_path(name), folder / "tokenizer.json")
    return folder
