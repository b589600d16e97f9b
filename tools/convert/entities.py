"""Converts a folder of the package gliner2: a model that finds labelled parts of texts.

The folder has config.json with the model_type "extractor", encoder_config/config.json, weights and
the tokenizer's files. Supported is its extraction of entities by spans (architecture "span"), such
as gliner2-base-v1. Its other tasks, which are classification, structures and relations, are not
served: their tensors are left out. The head becomes the tensors span_head.*
(engine/model/span_weights.h) and the object sluice.extraction of config.json.
"""

import json

import numpy as np

import extraction

CONFIG = "config.json"
ENCODER = "encoder_config/config.json"
NOTE = "; its classification, structures and relations are not served"
MODEL_TYPE = "extractor"
# The head of labels by the package's counting_layer.
LABEL_HEADS = {"count_lstm": "recurrent", "count_lstm_v2": "attention"}
TOKENS = ("[SEP_STRUCT]", "[SEP_TEXT]", "[P]", "[C]", "[E]", "[R]", "[L]", "[EXAMPLE]", "[OUTPUT]",
          "[DESCRIPTION]")
UNSERVED = "unserved."  # tensors of other tasks
LAYER = r"count_embed\.transformer\.transformer\.layers\.(\d+)\."
RENAMED = (
    (r"encoder\.", ""),
    (r"span_rep\.span_rep_layer\.project_(start|end)\.", r"span_head.\1."),
    (r"span_rep\.span_rep_layer\.out_project\.", "span_head.span."),
    (r"count_pred\.0\.", "span_head.gate.0."),
    (r"count_pred\.2\.", "span_head.gate.3."),
    (r"count_embed\.gru\.(weight|bias)_hh_l0", r"span_head.label.state.\1"),
    (r"count_embed\.(gru\.\w+_ih_l0|pos_embedding\.weight)", r"step.\1"),
    (r"count_embed\.projector\.0\.", "span_head.label.0."),
    (r"count_embed\.projector\.2\.", "span_head.label.3."),
    (r"count_embed\.transformer\.in_projector\.", "span_head.label.narrow."),
    (r"count_embed\.transformer\.out_projector\.0\.", "span_head.label.0."),
    (r"count_embed\.transformer\.out_projector\.2\.", "span_head.label.1."),
    (r"count_embed\.transformer\.out_projector\.4\.", "span_head.label.2."),
    (LAYER + r"self_attn\.in_proj_", r"span_head.label.layers.\1.qkv."),
    (LAYER + r"self_attn\.out_proj\.", r"span_head.label.layers.\1.o."),
    (LAYER + r"linear1\.", r"span_head.label.layers.\1.up."),
    (LAYER + r"linear2\.", r"span_head.label.layers.\1.down."),
    (LAYER + r"norm1\.", r"span_head.label.layers.\1.attention_norm."),
    (LAYER + r"norm2\.", r"span_head.label.layers.\1.mlp_norm."),
    (r"classifier\.", UNSERVED),
)


def is_folder(source):
    """Returns whether the folder is one of the package gliner2."""
    path = source / CONFIG
    return path.is_file() and json.loads(path.read_text()).get("model_type") == MODEL_TYPE


def read_config(source):
    """Returns config.json. Raises ValueError for a key whose value is not supported."""
    config = json.loads((source / CONFIG).read_text())
    for key, expected in (("architecture", ("span",)), ("token_pooling", ("first",)),
                          ("counting_layer", (*LABEL_HEADS,))):
        if (given := config.get(key) or expected[0]) not in expected:
            raise ValueError(f"{CONFIG}: {key} is {json.dumps(given)}, which is not supported; "
                             f"expected {' or '.join(map(json.dumps, expected))}")
    mode = (config.get("span_head") or {}).get("span_mode", "markerV0")
    if mode != "markerV0":
        raise ValueError(f"{CONFIG}: span_head.span_mode is {json.dumps(mode)}, which is not "
                         'supported; expected "markerV0"')
    if not (source / ENCODER).is_file():
        raise ValueError(f"{source} has no {ENCODER}; copy the config.json of "
                         f"{config.get('model_name')} there")
    return config


def fold_step(tensors):
    """Replaces the input's part of the recurrent step, which is the same for all labels."""
    weight, bias, places = (tensors.pop(f"step.{name}").astype(np.float64) for name in
                            ("gru.weight_ih_l0", "gru.bias_ih_l0", "pos_embedding.weight"))
    tensors["span_head.label.input"] = (weight @ places[0] + bias).astype(np.float32)


def served_config(config, encoder, width):
    """Returns config.json for the converted tensors."""
    head = config.get("span_head") or {}
    encoder["sluice"] = {"extraction": {
        "width": width,
        "max_width": head.get("max_width") or config.get("max_width") or 8,
        "max_words": encoder.get("max_position_embeddings", 512),
        "before_labels": ["(", "[P]", "entities", "("],
        "label_marker": "[E]",
        "after_labels": [")", ")"],
        "separator": "[SEP_TEXT]",
        "gate": "[P]",
        "label_head": LABEL_HEADS[config.get("counting_layer") or "count_lstm"],
        "words": "links",
        "conflicts": "label",
    }}
    return encoder


def convert_directory(source, out, read, save):
    """Converts a folder. `read` returns the tensors of a file, and `save` writes them. Returns the
    number of tensors."""
    config = read_config(source)
    tensors = extraction.read_tensors(source, RENAMED, read)
    tensors = {name: value for name, value in tensors.items() if not name.startswith(UNSERVED)}
    fold_step(tensors)
    encoder = extraction.served_encoder(json.loads((source / ENCODER).read_text()), tensors, 1024,
                                        ENCODER)
    made = served_config(config, encoder, len(tensors["span_head.start.3.bias"]))
    tokenizer = extraction.copy_tokenizer(source, out, config.get("model_name"), TOKENS)
    tokenizer["post_processor"] = None  # The package adds no special tokens around a row.
    extraction.write_folder(out, made, tokenizer, tensors, save)
    return len(tensors)
