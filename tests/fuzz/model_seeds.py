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
    words = [{"text": word} for word in "answer with yes or no , not with other words".split()]
    yield "long", json.dumps({"frame": [
        *words, {"input": "query"}, *words, {"input": "document"}, *words]}).encode()


def features(config, path=""):
    """Yields the architectures and keys of a config, and values that are words."""
    for key, value in config.items():
        at = f"{path}.{key}"
        yield at
        if isinstance(value, dict):
            yield from features(value, at)
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str):
                yield f"{at} {word}"


def model_config_seeds():
    """Yields the smallest configs of the goldens that have all of their architectures, keys and
    words."""
    goldens = ROOT / "tests" / "goldens"
    files = [(str(path.parent.relative_to(goldens)), json.loads(path.read_text()))
             for path in goldens.glob("**/config.json")]
    files = [(name, config) for name, config in files if "architectures" in config]
    seen = set()
    for name, config in sorted(files, key=lambda file: (len(json.dumps(file[1])), file[0])):
        new = set(features(config)) - seen
        seen |= new
        if new:
            yield name.replace("/", "_"), json.dumps(config).encode()
    demo = json.loads((ROOT / "models" / "demo" / "config.json").read_text())
    yield "demo", json.dumps(demo).encode()
    encoder = json.loads((ROOT / "tests" / "goldens" / "bert_headless" / "config.json").read_text())
    for name, keys in (
        ("embedding", {"pooling": "mean", "normalize": True}),
        ("classifier", {"of": "rows", "labels": 3, "pooling": "cls", "pooler": "tanh",
                        "bias": True}),
        ("extraction", {"width": 16, "lstm_layers": 1, "max_width": 7, "max_words": 90,
                        "label_marker": "[M]", "separator": "[S]", "label_state": "next",
                        "before_labels": ["(", "[P]"], "after_labels": [")"], "gate": "[P]",
                        "label_head": "attention", "words": "links", "conflicts": "label"}),
    ):
        yield name, json.dumps(encoder | {"sluice": {name: keys, "truncate": "left"}}).encode()
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


def reduced(tokenizer):
    """Returns a tokenizer with the first tokens of its vocabulary."""
    model = tokenizer["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary = sorted(vocabulary.items(), key=lambda entry: entry[1])
    kept = vocabulary[:12]
    merges = {"merges": []} if "merges" in model else {}
    vocabulary = dict(kept) if isinstance(model["vocab"], dict) else kept
    return tokenizer | {"model": model | merges | {"vocab": vocabulary}}


def model_files_seeds():
    """Yields the JSON files of published layouts of models, with reduced tokenizers."""
    frame = dict(pair_frame_seeds())["instructed"]
    for name in ("rerankers/gemma", "rerankers/mxbai", "rerankers/qwen3", "retrieval/attending",
                 "retrieval/colbert", "retrieval/m3", "retrieval/pylate", "retrieval/router",
                 "retrieval/windowed", "sentences/cross_1", "sentences/cross_3",
                 "sentences/tokens"):
        folder = ROOT / "tests" / "goldens" / name
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".json", ".metadata"):
                document = json.loads(path.read_text())
                files[str(path.relative_to(folder))] = (
                    reduced(document) if path.name == "tokenizer.json" else document)
        if name.startswith("rerankers"):
            files["pair_frame.json"] = {"frame": json.loads(frame)["frame"]}
        yield name.replace("/", "_"), json.dumps(files, separators=(",", ":")).encode()
    modules = ("models.Transformer", ""), ("models.Pooling", "1_Pooling"), (
        "base.modules.dense.Dense", "2_Dense"), ("models.Normalize", "3_Normalize")
    tokenizer = dict(small_tokenizers())["byte_level"]
    yield "embedding", json.dumps({
        "modules.json": [{"idx": 0, "name": "0", "path": path,
                          "type": f"sentence_transformers.{name}"} for name, path in modules],
        "config.json": {
            "architectures": ["LlamaModel"], "vocab_size": 50, "hidden_size": 24,
            "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 3,
            "max_position_embeddings": 20, "rms_norm_eps": 1e-5, "hidden_act": "silu"},
        "generation_config.json": {"eos_token_id": [0, 3], "bos_token_id": 0},
        "1_Pooling/config.json": {"word_embedding_dimension": 24, "include_prompt": False,
                                  "pooling_mode_lasttoken": True},
        "2_Dense/config.json": {"in_features": 24, "out_features": 7, "bias": False,
                                "activation_function": "torch.nn.modules.linear.Identity"},
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": True},
        "config_sentence_transformers.json": {
            "prompts": {"query": "q: ", "passage": "p: "}, "default_prompt_name": "query",
            "similarity_fn_name": "dot"},
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizerFast", "model_max_length": 1e30,
            "truncation_side": "left", "add_bos_token": True, "add_eos_token": True,
            "add_prefix_space": False, "bos_token": "<s>",
            "eos_token": {"content": "</s>", "lstrip": True}},
        "special_tokens_map.json": {"bos_token": "<s>", "mask_token": "<mask>",
                                    "additional_special_tokens": ["<a>", "<b>"]},
        "added_tokens.json": {"<new>": 9},
    }).encode()


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
    yield from ((name, json.dumps(document).encode()) for name, document in small_tokenizers())
    for name in ("unigram_bare", "bpe_suffix"):
        yield name, (folder / f"{name}.model").read_bytes()


def small_tokenizers():
    """Yields tokenizers with the types of steps that the other seeds lack."""
    published = json.loads((ROOT / "tests" / "goldens" / "tokenizers" / "xlm.json").read_text())
    table = published["normalizer"]["normalizers"][0]
    framed = {"type": "TemplateProcessing",
              "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                         {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "<s>", "type_id": 1}},
                       {"Sequence": {"id": "B", "type_id": 1}}],
              "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    yield "precompiled", {
        "added_tokens": [{"id": 0, "content": "<s>", "special": True}],
        "normalizer": {"type": "Sequence", "normalizers": [
            table, {"type": "Nmt"}, {"type": "Replace", "pattern": {"Regex": " {2,}"},
                                     "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
             "split": True}]},
        "post_processor": framed,
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},
        "model": {"type": "Unigram", "unk_id": 1, "byte_fallback": False, "vocab": [
            ["<s>", 0.0], ["<unk>", 0.0], ["\u2581", -2.0], ["a", -3.0], ["\u2581a", -3.5]]}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                  "use_regex": False}
    byte_pairs = {"type": "BPE", "ignore_merges": True, "unk_token": None, "merges": [["a", "b"]],
                  "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4, "\u00c3": 5}}
    expression = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"
    yield "byte_level", {
        "added_tokens": [{"id": 0, "content": "<s>", "special": True, "lstrip": True}],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated",
             "invert": False}, byte_level]},
        "post_processor": {"type": "Sequence", "processors": [byte_level, framed]},
        "decoder": byte_level, "model": byte_pairs}
    yield "roberta", {
        "normalizer": {"type": "ByteLevel"},
        "post_processor": {"type": "RobertaProcessing", "sep": ["<s>", 0], "cls": ["<s>", 0],
                           "trim_offsets": True, "add_prefix_space": True},
        "decoder": byte_level, "model": byte_pairs | {"dropout": None, "ignore_merges": False}}
    yield "scripts", {
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": False}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 3},
            {"type": "CharDelimiterSplit", "delimiter": "-"}]},
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "abc": 1, "wor": 2}}}
    yield "suffixes", {
        "normalizer": {"type": "NFKD"}, "pre_tokenizer": {"type": "Whitespace"},
        "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        "model": {"type": "BPE", "unk_token": "?", "continuing_subword_prefix": "~",
                  "end_of_word_suffix": "</w>", "merges": ["a ~b</w>"],
                  "vocab": {"?": 0, "a": 1, "~b</w>": 2, "a</w>": 3, "ab</w>": 4, "b": 5}}}
