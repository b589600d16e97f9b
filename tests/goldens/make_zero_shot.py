"""Makes zero_shot.json: the answers of transformers' pipeline for zero-shot classification.

The model is the cross-encoder of three labels in the folder sentences, in float64. Needs torch and
transformers 5.24.0 (seconds, no GPU).
"""

import json
import pathlib

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "sentences" / "cross_3"
# No pair is too long: the pipeline cuts only the text, and the daemon the longer part.
TEXTS = ["a b c", "no more", "the b", "d"]
CASES = (
    {"candidate_labels": ["a", "b c", "server"]},
    {"candidate_labels": ["a", "b c", "server"], "multi_label": True},
    {"candidate_labels": ["more", "no", "d", "the"], "hypothesis_template": "{} is a server"},
    {"candidate_labels": ["more"]},
)


def main() -> None:
    torch.set_num_threads(1)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, dtype=torch.float64)
    classify = pipeline("zero-shot-classification", model=model,
                        tokenizer=AutoTokenizer.from_pretrained(MODEL), device="cpu")
    cases = [{"texts": TEXTS, **case, "answers": [
        {"labels": each["labels"], "scores": each["scores"]} for each in classify(TEXTS, **case)]}
        for case in CASES]
    (HERE / "zero_shot.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
