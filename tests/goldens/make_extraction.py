"""Makes the folder extraction: models of the package gliner as published, and its answers.

The models are random and small. The answers to 1,000 texts are computed in float64 by the package.
A text is drawn again if a score is within 1e-4 of the threshold or of another score above it. Needs
torch, transformers 5.16.1 and gliner 0.2.29 (a minute, no GPU).
"""

import json
import pathlib
import random
import shutil
import sys
import tempfile

import numpy as np
import torch
from gliner import GLiNER
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
OUT = HERE / "extraction"
SEED = 6311
TEXTS = 1000
CLOSE = 1e-4
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 40}
LABELS = ["person", "organisation", "date of birth", "city", "ORG", "product name", "e-mail",
          "part/whole", "Straße", "event"]
MARKS = [",", ".", "!", "(", ")", "--", "-", "_", "'", "\u2014", "100", "3.14", "a_b", "re-use",
         "co-op-er", "Ärger", "naïve", "日本語", "x²", "\u0301", "½", "\x1f", "\n", "\u00a0"]
ROBERTA = {"cls_token": "<s>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>",
           "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
BERT = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
MODELS = {
    "deberta": {
        "tokenizer": ("xlm", ROBERTA),
        "encoder": {"model_type": "deberta-v2", "max_position_embeddings": 64,
                    "relative_attention": True, "position_buckets": 8,
                    "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"],
                    "norm_rel_ebd": "layer_norm", "share_att_key": True,
                    "position_biased_input": False, "type_vocab_size": 0},
        "head": {"hidden_size": 16, "num_rnn_layers": 1, "max_width": 12, "max_len": 40}},
    "modernbert": {
        "tokenizer": ("roberta", ROBERTA),
        "encoder": {"model_type": "modernbert", "max_position_embeddings": 1024,
                    "local_attention": 16, "global_attn_every_n_layers": 2, "pad_token_id": 1,
                    "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2},
        "head": {"hidden_size": 24, "num_rnn_layers": 0, "max_width": 5, "max_len": 60,
                 "embed_ent_token": False}},
    "bert": {
        "tokenizer": ("bert_uncased", BERT),
        "encoder": {"model_type": "bert", "max_position_embeddings": 200},
        "head": {"hidden_size": 20, "num_rnn_layers": 2, "max_width": 8, "max_len": 16}},
}


def draw_weights(model, seed: int) -> None:
    """Draws larger weights, because texts barely differ with the initial weights."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        scale = 0.5 if "embeddings" in name else 1.2 / parameter.shape[-1] ** 0.5
        norm = "norm" in name.lower() and parameter.dim() == 1 and not name.endswith("bias")
        if parameter.dim() == 1:
            scale = 0.2
        values = float(norm) + scale * rng.standard_normal(tuple(parameter.shape))
        parameter.data.copy_(torch.from_numpy(values.astype(np.float32)))


def make(name: str, settings: dict, seed: int):
    """Writes a model's folder as the package saves it. Returns the model, in float64."""
    base, specials = settings["tokenizer"]
    with tempfile.TemporaryDirectory() as folder:
        PreTrainedTokenizerFast(
            tokenizer_file=str(HERE / "tokenizers" / f"{base}.json"), **specials,
            model_input_names=["input_ids", "attention_mask"]).save_pretrained(folder)
        config = {"model_name": folder, "encoder_config": SIZES | settings["encoder"],
                  "dropout": 0.0, **settings["head"]}
        model = GLiNER.from_config(config, backbone_from_pretrained=False)
    draw_weights(model.model, seed)
    target = OUT / name
    model.save_pretrained(target, safe_serialization=True)
    path = target / "gliner_config.json"
    written = json.loads(path.read_text()) | {"model_name": f"random/{name}"}
    path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    model.model.double()
    return model.eval()


def draw_text(rng: random.Random, words: list[str]) -> str:
    chosen = [rng.choice(MARKS) if rng.random() < 0.25 else rng.choice(words)
              for _ in range(rng.randrange(1, 26))]
    return "".join(word + rng.choice([" ", " ", " ", "  ", ""]) for word in chosen)


def scores_of(model, text: str, labels: list[str]) -> np.ndarray:
    """Returns the scores of all parts of a text, without order."""
    prepared = model.prepare_batch([text], labels)
    batch = model.collate_batch(prepared["input_x"], labels)
    logits = model.run_batch(batch).logits[0]
    words = len(batch["tokens"][0])
    return np.concatenate([torch.sigmoid(logits[i, :max(words - i, 0)]).flatten().numpy()
                           for i in range(words)])


def has_tokens(model, text: str) -> bool:
    """Returns whether each word has tokens: the package confuses the places of words otherwise."""
    tokenizer = model.data_processor.transformer_tokenizer
    words = [word for word, _, _ in model.data_processor.words_splitter(text)]
    return bool(words) and all(
        tokenizer([word], is_split_into_words=True, add_special_tokens=False)["input_ids"]
        for word in words)


def draw_case(model, rng: random.Random, words: list[str]) -> dict:
    """Returns a text with few parts above the threshold, and none near it or near another one."""
    while True:
        text = draw_text(rng, words)
        labels = rng.sample(LABELS, rng.randrange(1, 6))
        if not has_tokens(model, text):
            continue
        scores = np.sort(scores_of(model, text, labels))[::-1]
        above = rng.randrange(0, min(14, len(scores)))
        threshold = round(float(scores[above]) + 2 * CLOSE, 4)
        kept = scores[scores > threshold - CLOSE]
        near = np.abs(scores - threshold).min() < CLOSE
        if near or threshold >= 1 or (np.abs(np.diff(kept)) < CLOSE).any():
            continue
        nested, multi = rng.random() < 0.4, rng.random() < 0.3
        (entities,) = model.inference([text], labels, flat_ner=not nested, threshold=threshold,
                                      multi_label=multi)
        return {"text": text, "labels": labels, "threshold": threshold, "nested": nested,
                "multi_label": multi,
                "parts": [[each["start"], each["end"], labels.index(each["label"]),
                           round(each["score"], 9)] for each in entities]}


def words() -> list[str]:
    return (HERE / "tokenizers" / "corpus.txt").read_text().split()


def write_goldens(out: pathlib.Path, models: dict, make, seed: int, first: int) -> None:
    """Replaces the folder by the models, which `make(name, settings, number)` makes for numbers
    from `first` on, and the package's answers to random texts.
    """
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    shutil.rmtree(out, ignore_errors=True)
    rng = random.Random(seed)
    expected = {}
    for number, (name, settings) in enumerate(models.items(), first):
        model = make(name, settings, number)
        count = int(sys.argv[1]) if len(sys.argv) > 1 else -(-TEXTS // len(models))
        expected[name] = [draw_case(model, rng, words()) for _ in range(count)]
        print(name, sum(len(case["parts"]) for case in expected[name]), "parts", flush=True)
    (out / "expected.json").write_text(
        json.dumps(expected, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_goldens(OUT, MODELS, make, SEED, 1)
