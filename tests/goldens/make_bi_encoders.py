"""Makes the folder bi_extraction: models of the package gliner with an encoder of labels.

Draws texts, labels and rules as make_extraction.py does, and needs the same packages (two minutes,
no GPU).
"""

import json
import pathlib
import tempfile

import torch
from gliner import GLiNER
from transformers import PreTrainedTokenizerFast

import make_extraction
from make_extraction import BERT, HERE, ROBERTA, SIZES, draw_weights, write_goldens

OUT = HERE / "bi_extraction"
SEED = 6312
MODELS = {
    "deberta_bert": {
        **make_extraction.MODELS["deberta"],
        "labels_tokenizer": ("bert_uncased", BERT),
        "labels_encoder": {"model_type": "bert", "hidden_size": 20, "num_hidden_layers": 2,
                           "num_attention_heads": 2, "intermediate_size": 32,
                           "max_position_embeddings": 40}},
    "modernbert_bert": {
        **make_extraction.MODELS["modernbert"],
        "labels_tokenizer": ("bert_uncased", BERT),
        "labels_encoder": {"model_type": "bert", **SIZES, "max_position_embeddings": 64}},
    "bert_modernbert": {
        **make_extraction.MODELS["bert"],
        "labels_tokenizer": ("roberta", ROBERTA),
        "labels_encoder": {**make_extraction.MODELS["modernbert"]["encoder"], **SIZES,
                           "hidden_size": 32, "num_attention_heads": 4}},
}


def save_tokenizer(base, specials, folder) -> None:
    PreTrainedTokenizerFast(
        tokenizer_file=str(HERE / "tokenizers" / f"{base}.json"), **specials,
        model_input_names=["input_ids", "attention_mask"]).save_pretrained(folder)


def vocabulary_of(folder) -> dict:
    tokenizer = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    return {"vocab_size": max([*ids, *(token["id"] for token in tokenizer["added_tokens"])]) + 1}


def make(name: str, settings: dict, seed: int):
    """Writes a model's folder as the package saves it. Returns the model, in float64."""
    with tempfile.TemporaryDirectory() as text, tempfile.TemporaryDirectory() as labels:
        save_tokenizer(*settings["tokenizer"], text)
        save_tokenizer(*settings["labels_tokenizer"], labels)
        config = {"model_name": text, "labels_encoder": labels,
                  "encoder_config": SIZES | settings["encoder"] | vocabulary_of(text),
                  "labels_encoder_config": settings["labels_encoder"] | vocabulary_of(labels),
                  "dropout": 0.0, **settings["head"]}
        config.pop("embed_ent_token", None)
        model = GLiNER.from_config(config, backbone_from_pretrained=False)
    draw_weights(model.model, seed)
    target = OUT / name
    model.save_pretrained(target, safe_serialization=True)
    path = target / "gliner_config.json"
    written = json.loads(path.read_text()) | {"model_name": f"random/{name}",
                                              "labels_encoder": f"random/{name}-labels"}
    path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    model.model.double()
    return model.eval()


if __name__ == "__main__":
    write_goldens(OUT, MODELS, make, SEED, 11)
