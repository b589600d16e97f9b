"""Makes the folder entities: models of the package gliner2 as published, and its answers.

The models are random and small. The answers to 1,000 texts are computed in float64 by the package.
A text is drawn again if a score is within 1e-4 of the threshold or of another score of the same
label above it, or if the decision whether there are parts is close. Needs torch 2.15.0,
transformers 5.16.1, gliner 0.2.29 and gliner2 2.1.0 (two minutes, no GPU).
"""

import json
import random
import shutil
import sys

import numpy as np
import torch
from gliner2 import GLiNER2
from gliner2.configuration import ExtractorConfig
from transformers import AutoConfig, PreTrainedTokenizerFast

from make_extraction import (CLOSE, HERE, LABELS, MARKS, ROBERTA, SIZES, TEXTS, draw_text,
                             draw_weights)

OUT = HERE / "entities"
SEED = 2507
LINKS = ["www.Sluice.example", "https://a.example/b?c=d", "Ada.L+x@mail.example.org", "@Ada_1",
         "ΟΔΟΣ", "İstanbul", "a\u0301b", "x@y", "U.S."]
MODERNBERT = {"model_type": "modernbert", "max_position_embeddings": 1024, "local_attention": 16,
              "global_attn_every_n_layers": 2, "pad_token_id": 1, "bos_token_id": 0,
              "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
MODELS = {
    "entities_deberta": {
        "tokenizer": "xlm",
        "encoder": {"model_type": "deberta-v2", "max_position_embeddings": 64,
                    "relative_attention": True, "position_buckets": 8,
                    "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"],
                    "norm_rel_ebd": "layer_norm", "share_att_key": True,
                    "position_biased_input": False, "type_vocab_size": 0},
        "head": {"max_width": 8, "counting_layer": "count_lstm"}},
    "entities_modernbert": {
        "tokenizer": "roberta",
        "encoder": MODERNBERT,
        "head": {"max_width": 5, "counting_layer": "count_lstm_v2"}},
    "entities_ettin": {
        "tokenizer": "roberta",
        "encoder": MODERNBERT | {"position_embedding_type": "sans_pos", "num_hidden_layers": 3,
                                 "global_attn_every_n_layers": 3, "local_attention": 8},
        "head": {"max_width": 12, "counting_layer": "count_lstm"}},
}


def make(name: str, settings: dict, seed: int):
    """Writes a model's folder as the package saves it. Returns the model, in float64."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(HERE / "tokenizers" / f"{settings['tokenizer']}.json"), **ROBERTA,
        model_input_names=["input_ids", "attention_mask"])
    encoder = dict(SIZES | settings["encoder"])
    model_type = encoder.pop("model_type")
    model = GLiNER2(ExtractorConfig(model_name=f"random/{name}", **settings["head"]),
                    encoder_config=AutoConfig.for_model(model_type, **encoder),
                    tokenizer=tokenizer)
    draw_weights(model, seed)
    shutil.rmtree(OUT / name, ignore_errors=True)
    model.save_pretrained(str(OUT / name))
    return GLiNER2.from_pretrained(str(OUT / name)).double().eval()


def scores_of(model, text: str, labels: list[str]):
    """Returns the scores of all parts, [labels, words, words of a part], and whether they count:
    the first class of the count has the largest logit by this much less than another one."""
    processor = model.processor
    processor.change_mode(is_training=False)
    batch = processor.collate_fn_inference([(text, {"entities": dict.fromkeys(labels, "")})])
    words, schemas = processor.extract_embeddings_from_batch(model.encode_tokens(batch),
                                                             batch.input_ids, batch)
    counts = model.count_pred(schemas[0][0][0])
    logits, _ = model._compute_direct_span_logits_batched(batch, words, schemas)
    scores = None if logits[0][0] is None else torch.sigmoid(logits[0][0][0]).numpy()
    return scores, float(counts[1:].max() - counts[0])


def has_tokens(model, text: str) -> bool:
    """Returns whether each word has tokens."""
    return all(model.processor.tokenizer.tokenize(word)
               for word, _, _ in model.processor.word_splitter(text, True))


def parts_of(found, labels: list[str], text: str) -> list:
    """Returns [begin, end, label, score], without the full stop that the package adds."""
    parts = [[each["start"], min(each["end"], len(text)), labels.index(label),
              round(each["confidence"], 9)]
             for group in found["entities"] for label, all_of in group.items() for each in all_of]
    return sorted((part for part in parts if part[0] < part[1]),
                  key=lambda part: (part[0], -part[3]))


def draw_case(model, rng: random.Random, words: list[str]) -> dict:
    """Returns a text with few parts above the threshold, and none near it or near another one."""
    while True:
        text = draw_text(rng, words) + rng.choice(["", "", ".", "!", " "])
        labels = rng.sample(LABELS, rng.randrange(1, 6))
        if not has_tokens(model, text):
            continue
        scores, margin = scores_of(model, text, labels)
        if abs(margin) < 1e-3:
            continue
        threshold = 0.5
        if scores is not None:
            flat = np.sort(scores[scores > 0])[::-1]
            threshold = round(float(flat[rng.randrange(min(14, len(flat)))]) + 2 * CLOSE, 4)
            kept = flat[flat > threshold - CLOSE]
            near = np.abs(scores - threshold).min() < CLOSE
            if near or threshold >= 1 or (np.abs(np.diff(kept)) < CLOSE).any():
                continue
        nested = rng.random() < 0.4
        schema = model.create_schema().entities(labels)
        (found,) = model.batch_extract([text], schema, threshold=threshold, format_results=False,
                                       include_confidence=True, include_spans=True,
                                       overlap_policy="nested" if nested else None)
        return {"text": text, "labels": labels, "threshold": threshold, "nested": nested,
                "multi_label": False, "parts": parts_of(found, labels, text)}


def words() -> list[str]:
    return (HERE / "tokenizers" / "corpus.txt").read_text().split() + 3 * LINKS + MARKS


def main() -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    rng = random.Random(SEED)
    expected = {}
    for seed, (name, settings) in enumerate(MODELS.items()):
        model = make(name, settings, seed + 1)
        count = int(sys.argv[1]) if len(sys.argv) > 1 else -(-TEXTS // len(MODELS))
        expected[name] = [draw_case(model, rng, words()) for _ in range(count)]
        print(name, sum(len(case["parts"]) for case in expected[name]), "parts;",
              sum(not case["parts"] for case in expected[name]), "texts without parts")
    (OUT / "expected.json").write_text(
        json.dumps(expected, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
