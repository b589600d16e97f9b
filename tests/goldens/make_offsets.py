"""Makes offsets.json: the byte ranges of tokens in texts, according to `tokenizers`.

White space around a token is not included. The texts are the short texts of tokenizers/cases.json.
Needs `tokenizers`; the result is committed.
"""

import json
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
NAMES = ("bert_cased", "bert_uncased", "roberta", "llama3", "xlm", "albert", "words")


def ranges(text: str, offsets: list) -> list:
    found = []
    for begin, end in offsets:
        part = text[begin:end]
        begin += len(part) - len(part.lstrip())
        end -= len(part) - len(part.rstrip())
        if begin >= end:
            found.append([-1, -1])
        else:
            found.append([len(text[:begin].encode()), len(text[:end].encode())])
    return found


def main() -> None:
    texts = [text for text in json.loads((HERE / "tokenizers" / "cases.json").read_text())["texts"]
             if 0 < len(text) < 80][:60]
    tokenizers = {}
    for name in NAMES:
        tokenizer = Tokenizer.from_file(str(HERE / "tokenizers" / f"{name}.json"))
        tokenizers[name] = [
            ranges(text, tokenizer.encode(text, add_special_tokens=False).offsets)
            for text in texts]
    (HERE / "offsets.json").write_text(
        json.dumps({"texts": texts, "tokenizers": tokenizers}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
