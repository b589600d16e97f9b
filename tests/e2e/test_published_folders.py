"""Tests folders as they are published: links of the hub's cache, defaults and padding in rows.

transformers 4.57.1 and 5.24.0 give the expected values."""

import json

import numpy as np
import pytest
from conftest import Daemon
from infer import ids_inputs, infer
from safetensors.numpy import save_file

SIZES = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
         "num_attention_heads": 1}


def zeros(*shape):
    return np.zeros(shape, np.float32)


def write(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def llama(architecture="LlamaForCausalLM", **changes):
    """Returns the config and tensors of a Llama with random attention and no MLP."""
    config = {"architectures": [architecture], **SIZES, "num_key_value_heads": 1, "head_dim": 8,
              "max_position_embeddings": 64, "hidden_act": "silu", **changes}
    draw = np.random.default_rng(1)
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": draw.normal(size=(16, 8)).astype(np.float32),
               "model.norm.weight": zeros(8) + 1}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{layer}{norm}.weight"] = zeros(8) + 1
    for name in "qkvo":
        tensors[f"{layer}self_attn.{name}_proj.weight"] = draw.normal(size=(8, 8)).astype(
            np.float32)
    for name in ("gate", "up", "down"):
        tensors[f"{layer}mlp.{name}_proj.weight"] = zeros(8, 8)
    return config, tensors


def roberta():
    """Returns a RoBERTa whose layer adds nothing, and a function of the state of a token."""
    draw = np.random.default_rng(2)
    words, places = (draw.normal(size=(rows, 8)).astype(np.float32) for rows in (16, 20))

    def module(name, *shape):
        return {f"{name}.weight": zeros(*shape) + (len(shape) == 1), f"{name}.bias": zeros(8)}

    layer = "encoder.layer.0."
    tensors = {"embeddings.word_embeddings.weight": words,
               "embeddings.position_embeddings.weight": places,
               "embeddings.token_type_embeddings.weight": zeros(1, 8),
               **module("embeddings.LayerNorm", 8)}
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        tensors |= module(f"{layer}attention.{name}", 8, 8)
    tensors |= {**module(f"{layer}attention.output.LayerNorm", 8),
                **module(f"{layer}intermediate.dense", 8, 8),
                **module(f"{layer}output.dense", 8, 8), **module(f"{layer}output.LayerNorm", 8)}
    config = {"architectures": ["RobertaModel"], **SIZES, "max_position_embeddings": 20,
              "hidden_act": "gelu", "layer_norm_eps": 1e-5, "pad_token_id": 1,
              "type_vocab_size": 1}

    def state(token, place):
        x = words[token] + places[place]
        for _ in range(3):
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return x

    return config, tensors, state


def snapshot(folder, model):
    """Puts a model into a cache of the hub, where the files are links to blobs."""
    root = folder / "models--org--name"
    for name in ("blobs", "snapshots/0123abcd"):
        (root / name).mkdir(parents=True)
    for i, file in enumerate(sorted(model.iterdir())):
        (root / "blobs" / f"{i:040x}").write_bytes(file.read_bytes())
        (root / "snapshots/0123abcd" / file.name).symlink_to(f"../../blobs/{i:040x}")
    return root / "snapshots/0123abcd"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    tied = llama(tie_word_embeddings=True, eos_token_id=50256, max_position_embedings=9)
    config, tensors = llama("SluiceModel", sluice={"token_types": 2})
    tensors["model.embed_token_types.weight"] = zeros(2, 8)
    other_name = llama(tie_word_embeddings=True)
    other_name[1]["lm_head.weight"] = other_name[1].pop("model.embed_tokens.weight")
    return {
        "hub": snapshot(folder, write(folder / "tied", *tied)),
        "smollm3": write(folder / "smollm3", *llama("SmolLM3ForCausalLM", no_rope_layers=[1],
                                                    num_key_value_heads=1)),
        "types": write(folder / "types", config, tensors),
        "other_name": write(folder / "other_name", *other_name),
        "both": write(folder / "both", *llama("LlamaModel", is_causal=False)),
        "explicit": write(folder / "explicit", *llama(
            "SluiceModel", sluice={"attention": {"causal": False}})),
        "padding": write(folder / "padding", *roberta()[:2]),
    }


@pytest.fixture(scope="module")
def served(folders):
    with Daemon(models=list(folders.items())) as daemon:
        yield daemon


def embedding(served, model, row, **parameters):
    with served.client() as client:
        return infer(client, ids_inputs([row]), ["embedding"], model=model, normalize=False,
                     **parameters)["embedding"][0]


def test_all_folders_load_and_ignored_parts_are_logged(folders):
    daemon = Daemon(models=list(folders.items()))
    with daemon.client() as client:
        for name in folders:
            assert client.is_model_ready(name), name
    output = daemon.stop()
    warnings = [line for line in output.splitlines() if "ignored" in line and "model=hub" in line]
    assert len(warnings) == 2, output
    assert "eos_token_id names 50256" in warnings[0] and "max_position_embedings" in warnings[1]


def test_is_causal_false_computes_attention_in_both_directions(served):
    row = [3, 5, 4, 9]
    both, explicit = (embedding(served, name, row, pooling="cls") for name in ("both", "explicit"))
    np.testing.assert_array_equal(both, explicit)
    alone = embedding(served, "both", row[:1], pooling="cls")
    assert np.abs(both - alone).max() > 1e-3  # The first token attends to the later ones.


def test_a_padding_token_in_a_row_does_not_move_the_others(served):
    *_, state = roberta()
    for row, place in (([3, 5, 4], 4), ([3, 1, 4], 3), ([3, 1, 1, 4], 3), ([3, 1], 1)):
        got = embedding(served, "padding", row, pooling="last")
        np.testing.assert_allclose(got, state(row[-1], place), atol=1e-4, err_msg=str(row))
