#!/usr/bin/env python3
"""Compares the embeddings of a running daemon with the embeddings of sentence-transformers.

  pip install sentence-transformers tritonclient[grpc]
  sluiced --model mine=MODEL_DIR &
  python tools/compare_sentences.py MODEL_DIR --model mine --texts texts.txt

MODEL_DIR is a directory of sentence-transformers as it was published. Each line of the file of
--texts is a text; the default is lines of this repository's documents. tritonclient sends the texts
both in one call and one by one, which must give the same bits. The library computes them in
float64. Prints the largest difference. Fails if it is above --tolerance, or if the nearest other
text of a text differs.
"""

import argparse
import pathlib
import sys

import numpy as np

DOCUMENTS = pathlib.Path(__file__).resolve().parents[1] / "docs"


def texts_of(path, most):
    paths = [path] if path else sorted(DOCUMENTS.glob("*.md"))
    lines = [line.strip() for each in paths for line in each.read_text().splitlines()]
    return [line for line in dict.fromkeys(lines) if len(line) > 2][:most]


def by_daemon(server, model, texts):
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(server)

    def embed(some):
        values = triton.InferInput("text_input", [len(some), 1], "BYTES")
        values.set_data_from_numpy(np.array([[text.encode()] for text in some], np.object_))
        wanted = [triton.InferRequestedOutput("embedding")]
        return client.infer(model, [values], outputs=wanted).as_numpy("embedding")

    together = embed(texts)
    for text, expected in zip(texts, together):
        if not np.array_equal(embed([text])[0], expected):
            sys.exit(f"compare_sentences.py: the bits differ by itself and in a batch: {text!r}")
    return together


def by_library(directory, texts):
    import sentence_transformers
    import torch

    torch.set_grad_enabled(False)
    model = sentence_transformers.SentenceTransformer(directory, device="cpu").double()
    return model.encode(texts, convert_to_tensor=True).double().numpy()


def nearest(embeddings):
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    return similar.argmax(1), similar


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="the model, as it was published")
    parser.add_argument("--server", default="127.0.0.1:8001", help="the daemon that serves it")
    parser.add_argument("--model", default="default", help="its name there")
    parser.add_argument("--texts", type=pathlib.Path, help="a file with one text per line")
    parser.add_argument("--most", type=int, default=200, help="texts")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = parser.parse_args()
    texts = texts_of(options.texts, options.most)
    got = by_daemon(options.server, options.model, texts).astype(np.float64)
    want = by_library(options.directory, texts)
    worst = np.abs(got - want).max()
    (mine, _), (theirs, similar) = nearest(got), nearest(want)
    rows = np.arange(len(texts))
    others = int((similar[rows, theirs] - similar[rows, mine] > 4 * options.tolerance).sum())
    print(f"{len(texts)} texts, {want.shape[1]} values each: the largest difference is "
          f"{worst:.2g}; the nearest text differs for {others}")
    if worst > options.tolerance or others > 0:
        sys.exit("compare_sentences.py: the embeddings differ")


if __name__ == "__main__":
    main()
