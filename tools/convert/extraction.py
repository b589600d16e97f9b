"""Converts a folder of the package gliner: a model that finds labelled parts of texts.

Supported are spans of the kind markerV0, with encoders that read labels and text together
(uni-encoders), such as gliner_small-v2.1 and gliner-modernbert, and with an encoder of labels
(bi-encoders), such as gliner-bi-small-v1.0. The folder has gliner_config.json, pytorch_model.bin or
model.safetensors, and the tokenizer's files; those of the labels are in labels_tokenizer. The head
becomes the tensors span_head.* (engine/model/span_weights.h) and the object sluice.extraction of
config.json. An encoder of labels becomes the folder labels, in the form of sentence-transformers.
"""

import json
import re

import known_families

CONFIG = "gliner_config.json"
NOTE = ""  # about tasks that are not served
# The values of keys that change the head; other values have no op.
SUPPORTED = {
    "span_mode": "markerV0",
    "subtoken_pooling": "first",
    "words_splitter_type": "whitespace",
    "post_fusion_schema": "",
    "fuse_layers": False,
    "labels_decoder": None,
    "relations_layer": None,
    "span_encoder_config": None,
    "precomputed_prompts_mode": None,
}
LABELS = "labels"  # the folder of the encoder of labels
LABELS_TOKENIZER = "labels_tokenizer"
RENAMED = (
    (r"token_rep_layer\.labels_encoder\.model\.", f"{LABELS}."),
    (r"token_rep_layer\.labels_projection\.", f"{LABELS}_projection."),
    (r"token_rep_layer\.bert_layer\.model\.", ""),
    (r"token_rep_layer\.projection\.", "span_head.projection."),
    (r"rnn\.lstm\.", "span_head.lstm."),
    (r"prompt_rep_layer\.", "span_head.label."),
    (r"span_rep_layer\.span_rep_layer\.project_(start|end)\.", r"span_head.\1."),
    (r"span_rep_layer\.span_rep_layer\.out_project\.", "span_head.span."),
)
EMBEDDINGS = ("word_embeddings.weight", "tok_embeddings.weight")


def read_config(source):
    """Returns gliner_config.json. Raises ValueError for a key whose value is not supported."""
    config = json.loads((source / CONFIG).read_text())
    for key, value in SUPPORTED.items():
        given = config.get(key, value)
        if (given or None) != (value or None):
            raise ValueError(f"{CONFIG}: {key} is {json.dumps(given)}, which is not supported; "
                             f"expected {json.dumps(value)}")
    if not isinstance(config.get("encoder_config"), dict):
        raise ValueError(f"{CONFIG} has no encoder_config; add the config.json of "
                         f"{config.get('model_name')} under this key")
    if has_labels_encoder(config) and not isinstance(config.get("labels_encoder_config"), dict):
        raise ValueError(f"{CONFIG} has no labels_encoder_config; add the config.json of "
                         f"{config['labels_encoder']} under this key")
    return config


def has_labels_encoder(config):
    return config.get("labels_encoder") is not None


def architecture_of(model_type, file):
    """Returns the architecture of an encoder without a head."""
    for path in known_families.FAMILIES.glob("*.cc"):
        found = re.search(rf'\{{"(\w+)", "{re.escape(str(model_type))}", OutputKind::kStates\}}',
                          path.read_text())
        if found:
            return found.group(1)
    raise ValueError(f"{file}: the encoder's model_type is {json.dumps(model_type)}, which the "
                     "daemon does not support")


def renamed(name, table=RENAMED):
    for pattern, replacement in table:
        name, count = re.subn(rf"\A{pattern}", replacement, name)
        if count:
            return name
    raise ValueError(f"tensor {name} is not part of a supported model")


def served_encoder(encoder, tensors, most, file):
    """Returns the encoder's part of config.json, for texts of up to `most` tokens if the encoder
    can read that many."""
    encoder = {"model_type": "deberta-v2"} | encoder
    encoder["architectures"] = [architecture_of(encoder["model_type"], file)]
    (encoder["vocab_size"],) = {
        len(value) for name, value in tensors.items() if name.endswith(EMBEDDINGS)}
    if not encoder.get("position_biased_input", True):
        # Only distances between tokens are limited, so the package reads longer texts.
        positions = encoder.get("max_position_embeddings", 512)
        if encoder.get("max_relative_positions", -1) < 1:
            encoder["max_relative_positions"] = positions
        encoder["max_position_embeddings"] = max(positions, most)
    return encoder


def served_config(config, tensors):
    """Returns config.json for the converted tensors."""
    encoder = served_encoder(config["encoder_config"], tensors,
                             max(4 * config.get("max_len", 384), 1024), CONFIG)
    width = config.get("hidden_size", 512)
    encoder["sluice"] = {"extraction": extraction_of(config, width)}
    return encoder


def extraction_of(config, width):
    """Returns the object sluice.extraction."""
    head = {
        "width": width,
        "max_width": config.get("max_width", 12),
        "max_words": config.get("max_len", 384),
    }
    if has_labels_encoder(config):
        return head | {"label_marker": ""}
    return head | {
        "lstm_layers": max(config.get("num_rnn_layers", 1), 0),
        "label_marker": config.get("ent_token", "<<ENT>>"),
        "separator": config.get("sep_token", "<<SEP>>"),
        "label_state": "marker" if config.get("embed_ent_token", True) else "next",
    }


def copy_tokenizer(source, out, model_name, tokens):
    """Copies the tokenizer's files. Missing `tokens` are added, as the package does. Returns
    tokenizer.json."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        if (source / name).is_file():
            (out / name).write_bytes((source / name).read_bytes())
    path = source / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{source} has no tokenizer.json; copy the tokenizer's files of "
                         f"{model_name} into it")
    tokenizer = json.loads(path.read_text())
    added = tokenizer.setdefault("added_tokens", [])
    vocabulary = tokenizer["model"]["vocab"]
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    following = max([*ids, *(token["id"] for token in added)]) + 1
    names = {token["content"] for token in added}
    for name in tokens:
        if name in names or (isinstance(vocabulary, dict) and name in vocabulary):
            continue
        added.append({"id": following, "content": name, "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": True})
        following += 1
    return tokenizer


def read_tensors(source, table, read):
    """Returns the renamed tensors of a folder."""
    files = known_families.shards_of(source) or sorted(source.glob("*.safetensors"))
    tensors = {renamed(name, table): value for path in files for name, value in read(path).items()
               if not name.endswith(("position_ids", "token_type_ids"))}
    if not tensors:
        raise ValueError(f"{source} has neither pytorch_model.bin nor model.safetensors")
    return tensors


def write_folder(out, config, tokenizer, tensors, save):
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save(tensors, out / "model.safetensors")


def take(tensors, prefix):
    """Moves the tensors with this prefix into a new dict, without the prefix."""
    return {name.removeprefix(prefix): tensors.pop(name)
            for name in list(tensors) if name.startswith(prefix)}


def write_labels(source, out, config, tensors, save):
    """Writes the folder of the encoder of labels and removes its tensors. A vector is the mean of a
    label's states and, if the head has another width, a dense layer of it."""
    projection = take(tensors, f"{LABELS}_projection.")
    encoder = take(tensors, f"{LABELS}.")
    tokenizer = copy_tokenizer(source / LABELS_TOKENIZER, out, config["labels_encoder"], ())
    made = served_encoder(config["labels_encoder_config"], encoder, 512, CONFIG)
    write_folder(out, made, without_unknown(tokenizer, made), encoder, save)
    modules = {"": "sentence_transformers.models.Transformer",
               "1_Pooling": "sentence_transformers.models.Pooling"}
    configs = {"1_Pooling": {"word_embedding_dimension": made["hidden_size"],
                             "pooling_mode_mean_tokens": True}}
    if projection:
        modules["2_Dense"] = "sentence_transformers.models.Dense"
        width, inner = projection["weight"].shape
        configs["2_Dense"] = {"in_features": inner, "out_features": width, "bias": True,
                              "activation_function": "torch.nn.modules.linear.Identity"}
    for folder, values in configs.items():
        (out / folder).mkdir(exist_ok=True)
        (out / folder / "config.json").write_text(json.dumps(values, indent=2) + "\n")
    if projection:
        save({f"linear.{name}": value for name, value in projection.items()},
             out / "2_Dense" / "model.safetensors")
    (out / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": kind}
         for i, (path, kind) in enumerate(modules.items())], indent=2) + "\n")


def without_unknown(tokenizer, config):
    """Removes the added tokens that the encoder has no embedding for. The package adds the tokens
    of a prompt to each tokenizer."""
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"]
                                 if token["id"] < config["vocab_size"]]
    return tokenizer


def convert_directory(source, out, read, save):
    """Converts a folder. `read` returns the tensors of a file, and `save` writes them. Returns the
    number of tensors."""
    config = read_config(source)
    tensors = read_tensors(source, RENAMED, read)
    if has_labels_encoder(config):
        take(tensors, "span_head.lstm.")  # The package does not use it in these models.
    count = len(tensors)
    if has_labels_encoder(config):
        write_labels(source, out / LABELS, config, tensors, save)
        tokens = ()
    else:
        tokens = ("[FLERT]", config.get("ent_token", "<<ENT>>"), config.get("sep_token", "<<SEP>>"))
    made = served_config(config, tensors)
    tokenizer = copy_tokenizer(source, out, config.get("model_name"), tokens)
    if has_labels_encoder(config):
        tokenizer = without_unknown(tokenizer, made)
    write_folder(out, made, tokenizer, tensors, save)
    return count
