"""Tests tools/convert on checkpoints in the formats of other projects."""

import importlib.util
import json
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import safetensors.numpy

from conftest import ROOT, SLUICE
from waiting import PATIENCE_S

GOLDENS = ROOT / "tests" / "goldens"

sys.path.insert(0, str(ROOT / "tools" / "convert"))
import known_families  # noqa: E402, the folder is not a package

SPEC = importlib.util.spec_from_file_location("convert", ROOT / "tools" / "convert" / "convert.py")
convert = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(convert)


def random_state(seed, **shapes):
    draw = np.random.default_rng(seed)
    return {
        name.replace("__", "."): draw.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }


def sasrec_state(layers=2, items=11, width=6, window=8):
    state = random_state(1, item_emb__weight=(items, width), pos_emb__weight=(window + 1, width),
                         last_layernorm__weight=width, last_layernorm__bias=width)
    for n in range(layers):
        state |= random_state(
            n + 2,
            **{
                f"attention_layers__{n}__in_proj_weight": (3 * width, width),
                f"attention_layers__{n}__in_proj_bias": 3 * width,
                f"attention_layers__{n}__out_proj__weight": (width, width),
                f"attention_layers__{n}__out_proj__bias": width,
                f"attention_layernorms__{n}__weight": width,
                f"attention_layernorms__{n}__bias": width,
                f"forward_layernorms__{n}__weight": width,
                f"forward_layernorms__{n}__bias": width,
                f"forward_layers__{n}__conv1__weight": (width, width, 1),
                f"forward_layers__{n}__conv1__bias": width,
                f"forward_layers__{n}__conv2__weight": (width, width, 1),
                f"forward_layers__{n}__conv2__bias": width,
            },
        )
    return state


def run(tmp_path, capsys, state, name, *arguments):
    """Converts `state` into tmp_path/out; returns the exit status and the output."""
    checkpoint = tmp_path / "in.safetensors"
    safetensors.numpy.save_file(
        {key: np.ascontiguousarray(value) for key, value in state.items()}, checkpoint
    )
    code = convert.main([str(checkpoint), str(tmp_path / "out"), "--map", str(name), *arguments])
    return code, capsys.readouterr().out


def test_a_sasrec_checkpoint_is_converted(tmp_path, capsys):
    state = sasrec_state()
    code, text = run(tmp_path, capsys, state, "sasrec", "--set", "num_attention_heads=2")
    assert code == 0, text
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["vocab_size"], config["hidden_size"], config["num_hidden_layers"]) == (11, 6, 2)
    assert config["max_position_embeddings"] == 8 and config["num_attention_heads"] == 2
    assert config["sluice"]["embedding_scale"] == pytest.approx(6 ** 0.5)
    made = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    joined = state["attention_layers.1.in_proj_weight"]
    for i, name in enumerate("qkv"):
        np.testing.assert_array_equal(
            made[f"model.layers.1.self_attn.{name}_proj.weight"], joined[6 * i : 6 * i + 6]
        )
    np.testing.assert_array_equal(
        made["model.layers.0.mlp.up_proj.weight"], state["forward_layers.0.conv1.weight"][..., 0]
    )
    assert len(made) == 4 + 2 * 16


def golden_of(folder, tmp_path):
    """Writes PyTorch's results for the model in `folder` as a golden for `sluice verify`."""
    expected = safetensors.numpy.load_file(folder / "expected.safetensors")
    lengths = expected["lengths"]
    ends = np.cumsum(lengths)[:-1]

    def rows(values):
        out = np.zeros((len(lengths), lengths.max(), *values.shape[1:]), values.dtype)
        for row, part in zip(out, np.split(values, ends)):
            row[:len(part)] = part
        return out

    np.savez(tmp_path / "golden.npz", input_ids=rows(expected["input_ids"]), input_lengths=lengths,
             logits=rows(expected["logits"]))
    return tmp_path / "golden.npz"


def as_xsa_lm_is_trained(name):
    for ours, theirs in (
        ("model.layers.", "blocks."),
        ("model.embed_tokens.", "tok_emb."),
        ("model.skip", "skip"),
        ("attention_scale", "attn_scale"),
        ("residual_mix", "resid_mix"),
        ("self_attn.", "attn."),
        ("o_proj", "proj"),
        ("up_proj", "fc"),
        ("down_proj", "proj"),
    ):
        name = name.replace(ours, theirs)
    return re.sub(r"attn\.([qkv])_proj", r"attn.c_\1", name)


@pytest.mark.parametrize("name, golden, rename, options", [
    ("xsa_lm", "xsa_lm_small", as_xsa_lm_is_trained,
     ["num_key_value_heads=1", "sluice.positions.dims=8", "sluice.xsa.layers=[2,3]"]),
    # The weights are plain [out, in] matrices, and the activation is not the map's default.
    ("gpt2", "gpt2_small", str, ["n_head=4", "n_inner=64", "activation_function=gelu_new"]),
])
def test_a_converted_model_computes_the_original_logits(
    tmp_path, capsys, name, golden, rename, options
):
    state = safetensors.numpy.load_file(GOLDENS / golden / "model.safetensors")
    state = {rename(key): value for key, value in state.items()}
    if name == "gpt2":
        state = {
            key: value.T if value.ndim == 2 and ".h." in key else value
            for key, value in state.items()
        }
    code, text = run(
        tmp_path, capsys, state, name, *(word for option in options for word in ("--set", option))
    )
    assert code == 0, text
    verified = subprocess.run(
        [
            SLUICE,
            "verify",
            tmp_path / "out",
            "--golden",
            golden_of(GOLDENS / golden, tmp_path),
            "--tolerance",
            "1e-4",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "1 outputs." in verified.stdout


def test_missing_and_unknown_tensors_are_listed_and_nothing_is_written(tmp_path, capsys):
    state = sasrec_state()
    del state["attention_layers.1.out_proj.bias"]
    state["dropout.magic"] = np.zeros(3, np.float32)
    code, text = run(tmp_path, capsys, state, "sasrec")
    assert code == 1 and not (tmp_path / "out").exists()
    assert "not mapped: dropout.magic [3]" in text
    assert "missing: attention_layers.1.out_proj.bias" in text
    assert "1 tensors not mapped" in text and "1 missing" in text


def test_dry_run_writes_nothing(tmp_path, capsys):
    code, text = run(tmp_path, capsys, sasrec_state(), "sasrec", "--dry-run")
    assert code == 0 and not (tmp_path / "out").exists()
    assert (
        '"hidden_size": 6' in text
        and "item_emb.weight [11, 6] -> model.embed_tokens.weight [11, 6]" in text
    )


MAP = """
config: {num_hidden_layers: {count: "b.{n}.w"}, layers: [1]}
tensors:
  - {from: "b.{n}.w", to: "l.{n}.w", transpose: true, scale: 2.0,
     scale_by: {tensor: "b.{n}.s", axis: 1}}
  - {from: extra, to: extra, optional: true}
ignore: ["c.{any}"]
"""


def test_a_map_transposes_scales_and_folds_tensors(tmp_path, capsys):
    (tmp_path / "map.yaml").write_text(MAP)
    state = random_state(3, b__0__w=(2, 3), b__0__s=2, b__1__w=(2, 3), b__1__s=2, c__x=4)
    code, text = run(
        tmp_path, capsys, state, tmp_path / "map.yaml", "--set", "sluice.xsa.layers=[0]"
    )
    assert code == 0, text
    made = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(made["l.1.w"], 2 * state["b.1.w"].T * state["b.1.s"], rtol=1e-6)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config == {"num_hidden_layers": 2, "layers": [1], "sluice": {"xsa": {"layers": [0]}}}


def test_errors_name_the_part_of_the_map_to_correct(tmp_path, capsys):
    assert (
        "there is no map nothing; give a file or one of gpt2, sasrec, xsa_lm"
        in run(tmp_path, capsys, {}, "nothing")[1]
    )
    (tmp_path / "map.yaml").write_text('tensors: [{from: a, to: b, slice: {end: "1/3"}}]')
    assert "a [4] -> b: slice: 1/3 of 4 is not a whole number" in run(
        tmp_path, capsys, random_state(1, a=4), tmp_path / "map.yaml")[1]
    (tmp_path / "map.yaml").write_text("tensors: [{from: a}]")
    assert (
        "tensors[0] needs `from` and `to`"
        in run(tmp_path, capsys, random_state(1, a=4), tmp_path / "map.yaml")[1]
    )
    (tmp_path / "map.yaml").write_text("tensors: [{from: 'x{n}', to: b}]")
    assert (
        "two tensors become b"
        in run(tmp_path, capsys, random_state(1, x0=4, x1=4), tmp_path / "map.yaml")[1]
    )


def known_directory(path, architecture="RobertaModel"):
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    (path / "tokenizer.json").write_text("{}")
    (path / "pytorch_model.bin.index.json").write_text("{}")
    for shard in (1, 2):
        (path / f"pytorch_model-{shard}-of-2.bin").write_bytes(bytes([shard]))
    return path


def test_shards_of_a_known_family_need_no_map(tmp_path):
    source, out, saved = known_directory(tmp_path / "source"), tmp_path / "out", {}
    count = known_families.convert_directory(
        source, out, load=lambda path: {f"tensor.{path.read_bytes()[0]}": path.name},
        save=lambda tensors, path: saved.update(tensors, path=path))
    assert count == 2
    assert saved["path"] == out / "model.safetensors"
    assert saved["tensor.1"] == "pytorch_model-1-of-2.bin"
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "tokenizer.json"]


def test_heads_and_modules_are_converted_to_files_of_their_own(tmp_path):
    source, out, saved = known_directory(tmp_path / "source"), tmp_path / "out", {}
    for name in ("sparse_linear.pt", "colbert_linear.pt"):
        (source / name).write_bytes(name.encode())
    dense = source / "2_Dense"
    dense.mkdir()
    (dense / "config.json").write_text("{}")
    (dense / "pytorch_model.bin").write_bytes(b"dense")

    def save(tensors, path):
        saved[str(path.relative_to(out))] = tensors

    count = known_families.convert_directory(
        source, out, load=lambda path: {f"tensor.{path.name}": 1}, save=save)
    assert count == 4
    assert saved == {
        "2_Dense/model.safetensors": {"tensor.pytorch_model.bin": 1},
        "colbert_linear.safetensors": {"tensor.colbert_linear.pt": 1},
        "sparse_linear.safetensors": {"tensor.sparse_linear.pt": 1},
        "model.safetensors": {f"tensor.pytorch_model-{i}-of-2.bin": 1 for i in (1, 2)}}
    assert (out / "2_Dense" / "config.json").is_file()


def test_weights_in_safetensors_are_copied_next_to_converted_heads(tmp_path):
    source, out, saved = tmp_path / "source", tmp_path / "out", {}
    source.mkdir()
    (source / "config.json").write_text("{}")
    (source / "model.safetensors").write_bytes(b"weights")
    (source / "sparse_linear.pt").write_bytes(b"head")
    assert known_families.convert_directory(
        source, out, load=lambda path: {"weight": path.name},
        save=lambda tensors, path: saved.update({path.name: tensors})) == 1
    assert saved == {"sparse_linear.safetensors": {"weight": "sparse_linear.pt"}}
    assert (out / "model.safetensors").read_bytes() == b"weights"


def test_a_tensor_in_two_shards_is_an_error(tmp_path):
    source = known_directory(tmp_path / "source")
    with pytest.raises(ValueError, match="2-of-2.bin: tensor same is in another shard"):
        known_families.convert_directory(
            source, tmp_path / "out", load=lambda _: {"same": 1}, save=None)


def test_without_a_map_the_family_must_be_known(tmp_path, capsys):
    source = known_directory(tmp_path / "source", "FalconForCausalLM")
    assert convert.main([str(source), str(tmp_path / "out")]) == 1
    assert "names a known family" in capsys.readouterr().out
    assert {"BertModel", "Qwen3ForCausalLM", "T5EncoderModel"} <= known_families.architectures()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("the header is longer than the file", (1 << 20).to_bytes(8, "little") + b"{}"),
        ("an offset is beyond the end",
         b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' + bytes(4)),
        ("an offset is before the beginning",
         b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}' + bytes(4)),
        ("a tensor has fewer bytes than its shape",
         b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}}' + bytes(4)),
    ],
)
def test_offsets_of_a_checkpoint_are_checked(tmp_path, name, content):
    path = tmp_path / "in.safetensors"
    if not name.startswith("the header"):
        size = content.index(b"}}") + 2
        content = size.to_bytes(8, "little") + content
    path.write_bytes(content)
    with pytest.raises(convert.ConvertError, match="no valid safetensors file"):
        convert.read_checkpoint(path)


@pytest.mark.parametrize("version", ["1.13.1+cpu", "2.5.1", "2.6.0", "2.10.0+cpu"])
def test_old_torch_reads_no_checkpoint(tmp_path, monkeypatch, version):
    path = tmp_path / "in.pt"
    path.touch()
    loaded = []
    torch = types.SimpleNamespace(
        __version__=version, Tensor=np.ndarray, load=lambda path, **_: loaded.append(path) or {}
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    safe = not version.startswith(("1.", "2.5"))
    with pytest.raises(convert.ConvertError,
                       match="has no tensors" if safe else "requires torch 2.6 or newer"):
        convert.read_checkpoint(path)
    assert loaded == ([path] if safe else [])
