"""The seeds of the fuzz targets that parse a model's files: weights, config and tokenizer."""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]


def safetensors(tensors, metadata=None, pad=0):
    """Returns a file of {name: (dtype, shape, bytes)}."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def safetensors_seeds():
    yield "none", safetensors({})
    yield "scalar", safetensors({"s": ("F32", [], b"abcd")})
    yield "empty", safetensors({"e": ("BF16", [3, 0], b""), "f": ("F16", [1], b"xy")})
    yield "padded", safetensors({"a": ("I64", [1], bytes(8))}, {"format": "pt"}, pad=5)
    yield "dtypes", safetensors(
        {
            dtype: (dtype, [2], bytes(2 * size))
            for size, dtypes in (
                (1, ("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2")),
                (2, ("U16", "F16", "BF16")),
                (4, ("U32", "I32")),
                (8, ("U64", "F64")),
            )
            for dtype in dtypes
        }
    )
    yield "layer", safetensors({
        f"model.layers.0.{name}.weight": ("BF16", [2, 3], bytes(12))
        for name in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "input_layernorm")})


def quantized_seeds():
    """Yields checkpoints for the model of quantized_fuzz.cc, in its input format."""
    layers = {f"model.layers.0.self_attn.{name}_proj": (32, 32) for name in "qkvo"}
    layers |= {"model.layers.0.mlp.gate_proj": (64, 32), "model.layers.0.mlp.up_proj": (64, 32),
               "model.layers.0.mlp.down_proj": (32, 64)}
    others = {"model.embed_tokens.weight": ("BF16", 8, 32)}
    for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        others[f"model.{name}.weight"] = ("F32", 32)

    def int8(out, rows):
        return {"weight": ("I8", out, rows), "weight_scale": ("F32", out, 1)}

    def kept(out, rows):
        return int8(out, rows) | {"weight_kept_channels": ("I32", 1),
                                  "weight_kept": ("BF16", out, 1)}

    def packed(out, rows):
        return {"weight_packed": ("I32", out, rows // 8),
                "weight_scale": ("F32", out, rows // 32),
                "weight_zero_point": ("I32", out // 8, rows // 32)}

    def awq(out, rows):
        return {"qweight": ("I32", rows, out // 8), "scales": ("F16", rows // 32, out),
                "qzeros": ("I32", rows // 32, out // 8)}

    def gptq(out, rows):
        return {"qweight": ("I32", rows // 8, out), "scales": ("F16", rows // 32, out),
                "qzeros": ("I32", rows // 32, out // 8)}

    values = {"num_bits": 8, "type": "int", "symmetric": True}
    in_int8 = {"weights": values | {"strategy": "channel"},
               "input_activations": values | {"strategy": "token", "dynamic": True}}
    in_int4 = {"weights": {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group",
                           "group_size": 32}}
    by_channel = {"weights": {"num_bits": 4, "type": "int", "symmetric": True,
                              "strategy": "channel"}}
    tensors_method = {"quant_method": "compressed-tensors"}
    for name, make, config in (
        ("int8", int8, tensors_method | {"format": "int-quantized",
                                         "config_groups": {"group_0": in_int8}}),
        ("kept", kept, tensors_method | {"format": "int-quantized",
                                         "config_groups": {"group_0": in_int8}}),
        ("packed", packed, tensors_method | {"format": "pack-quantized",
                                             "config_groups": {"group_0": in_int4}}),
        ("by_channel",
         lambda out, rows: {"weight_packed": ("I32", out, rows // 8),
                            "weight_scale": ("F32", out, 1)},
         tensors_method | {"format": "pack-quantized", "config_groups": {"group_0": by_channel}}),
        ("awq", awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}),
        ("gptq", gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32}),
        ("gptq_order", lambda out, rows: gptq(out, rows) | {"g_idx": ("I32", rows)},
         {"quant_method": "gptq", "bits": 4, "group_size": 32}),
    ):
        tensors = dict(others)
        for layer, (out, rows) in layers.items():
            tensors |= {f"{layer}.{key}": tensor for key, tensor in make(out, rows).items()}
        lines = [json.dumps(config), *(" ".join(map(str, (key, *tensor)))
                                       for key, tensor in tensors.items())]
        # Zeros are a valid row order and channel; most other bytes are not.
        zeros = name in ("gptq_order", "kept")
        bytes_of_tensors = bytes(8) if zeros else bytes(range(0, 256, 5))
        yield name, "\n".join(lines).encode() + b"\n\n" + bytes_of_tensors


def pair_frame_seeds():
    text = [{"text": "Q: "}, {"input": "query"}, {"text": "\nD: "}, {"input": "document"}]
    yield "plain", json.dumps({"frame": text}).encode()
    yield "instructed", json.dumps({
        "frame": text, "frame_with_instruction": [{"input": "instruction"}, *text],
        "true_token_id": 5, "false_token_id": 7}).encode()


def model_config_seeds():
    for folder in sorted((ROOT / "tests" / "goldens").iterdir()):
        if (folder / "config.json").exists():
            yield folder.name, json.dumps(json.loads((folder / "config.json").read_text())).encode()
    tables = ROOT / "tests" / "goldens" / "families" / "deberta_v2_1" / "config.json"
    yield "deberta_v2", json.dumps(json.loads(tables.read_text())).encode()
    demo = json.loads((ROOT / "models" / "demo" / "config.json").read_text())
    yield "demo", json.dumps(demo).encode()
    quantized = demo["sluice"] | {"quantization": "int8", "quantize_head": True}
    yield "int8", json.dumps(demo | {"sluice": quantized}).encode()
    values = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {"targets": ["Linear"],
             "weights": values | {"strategy": "channel", "dynamic": False},
             "input_activations": values | {"strategy": "token", "dynamic": True}}
    stored = {"quant_method": "compressed-tensors", "format": "int-quantized",
              "ignore": ["lm_head"], "config_groups": {"group_0": group}}
    yield "stored_int8", json.dumps(demo | {"quantization_config": stored}).encode()
    yield "eos_list", json.dumps(demo | {"eos_token_id": [1, 257], "bos_token_id": None}).encode()


def tokenizer_seeds():
    folder = ROOT / "tests" / "goldens" / "tokenizers"
    for name in ("split_isolated", "split_merged_with_next", "words"):
        yield name, json.dumps(
            json.loads((folder / f"{name}.json").read_text()), separators=(",", ":")
        ).encode()
    yield "word_piece", json.dumps(
        {
            "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", "sep": ["<s>", 1], "cls": ["<s>", 1]},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 20,
                "vocab": {
                    "[UNK]": 0,
                    "<s>": 1,
                    "a": 2,
                    "##b": 3,
                    "##a": 4,
                    "hello": 5,
                    ",": 6,
                    "4": 7,
                },
            },
        }
    ).encode()
    yield "byte_fallback", json.dumps(
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "NFKC"},
                    {"type": "Prepend", "prepend": "_"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
                ],
            },
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            "model": {
                "type": "BPE",
                "unk_token": "<unk>",
                "byte_fallback": True,
                "fuse_unk": True,
                "vocab": {
                    "<unk>": 0,
                    "<0xFF>": 1,
                    "<0xC3>": 2,
                    "_": 3,
                    "a": 4,
                    "b": 5,
                    "ab": 6,
                    "_ab": 7,
                },
                "merges": ["a b", ["_", "ab"]],
            },
        }
    ).encode()
    yield "unigram", json.dumps(
        {
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": "always",
            },
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
            "model": {
                "type": "Unigram",
                "unk_id": 0,
                "vocab": [
                    ["<unk>", 0.0],
                    ["\u2581", -2.0],
                    ["a", -3.0],
                    ["ab", -3.5],
                    ["aa", -4.0],
                ],
            },
        }
    ).encode()
    for name in (
        "unigram_bare",
        "bpe_suffix",
    ):  # libFuzzer uses only the beginning of files this long
        yield name, (folder / f"{name}.model").read_bytes()
