"""Makes pairs.json: pairs of texts, framed and truncated by `tokenizers`.

The tokenizers are in the folder tokenizers. A tokenizer whose file has no pair template gets a list
of null. Needs `tokenizers`; the result is committed.
"""

import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
SEED = 5101
NAMES = ("bert_cased", "bert_uncased", "llama3", "roberta", "gpt2", "words", "explicit")
SIDES = ("right", "left")

# A template with the second text first, other types, and several tokens in one place.
EXPLICIT = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 1}},
               {"Sequence": {"id": "A", "type_id": 2}}],
    "pair": [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "x", "type_id": 2}},
             {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                       "x": {"id": "x", "ids": [3, 2], "tokens": ["[SEP]", "[CLS]"]}}}


def files() -> dict:
    texts = {name: (HERE / "tokenizers" / f"{name}.json").read_text()
             for name in NAMES if name != "explicit"}
    explicit = json.loads(texts["bert_uncased"])
    explicit["post_processor"] = EXPLICIT
    return texts | {"explicit": json.dumps(explicit)}


def has_pair(processor) -> bool:
    if not processor:
        return False
    members = processor.get("processors", [processor])
    return any(member["type"] != "ByteLevel" for member in members)


def texts() -> list:
    words = (HERE / "tokenizers" / "corpus.txt").read_text().split()
    rng = random.Random(SEED)
    drawn = [("", ""), ("one", ""), ("", "two")]
    for _ in range(20):
        drawn.append(tuple(" ".join(rng.choices(words, k=rng.randrange(0, 9))) for _ in "ab"))
    return drawn


def encodings(tokenizer: Tokenizer, first: str, second: str) -> list:
    """Returns the ids and types for every limit that changes the result of truncation."""
    tokenizer.no_truncation()
    whole = tokenizer.encode(first, second)
    added = len(whole.ids) - len(tokenizer.encode(first, second, add_special_tokens=False).ids)
    cases = []
    for most in sorted({added, added + 1, added + 4, len(whole.ids) // 2, len(whole.ids) - 1}):
        for side in SIDES:
            if most < max(added, 1):
                continue
            tokenizer.enable_truncation(most, strategy="longest_first", direction=side)
            cut = tokenizer.encode(first, second)
            cases.append({"most": most, "side": side, "ids": cut.ids, "types": cut.type_ids})
    return [{"most": 0, "side": "", "ids": whole.ids, "types": whole.type_ids}] + cases


def main() -> None:
    pairs, tokenizers = texts(), {}
    for name, text in files().items():
        document = json.loads(text)
        tokenizer = Tokenizer.from_str(text)
        known = has_pair(document["post_processor"])
        tokenizers[name] = {
            "post_processor": EXPLICIT if name == "explicit" else None,
            "pairs": [encodings(tokenizer, *pair) for pair in pairs] if known else None,
        }
    (HERE / "pairs.json").write_text(
        json.dumps({"texts": pairs, "tokenizers": tokenizers}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
