"""Makes the folder sentences: models in sentence-transformers format, and that library's answers.

The folder has the weights of one small encoder and one cross-encoder, tokenizers, and
expected.json: the other files of each model folder and its answers, computed in float64. Needs
torch, transformers 5.24.0 and sentence-transformers 6.2.0 (seconds, no GPU).
"""

import json
import pathlib
import random
import shutil
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

HERE = pathlib.Path(__file__).parent
OUT = HERE / "sentences"
SEED = 6203
SIZES = {"vocab_size": 620, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 40, "max_position_embeddings": 24}
PROMPTS = {"query": "the server answers: ", "document": "", "short": "a "}
LABELS = {0: "contradiction", 1: "entailment", 2: "neutral"}
SPECIALS = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}


def draw(model: nn.Module, seed: int) -> nn.Module:
    """Draws larger weights, because texts barely differ with the initial weights."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        scale = 0.5 if "embeddings" in name else 1.2 / parameter.shape[-1] ** 0.5
        mean = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        if parameter.dim() == 1:
            scale = 0.2
        values = mean + scale * rng.standard_normal(tuple(parameter.shape))
        parameter.data.copy_(torch.from_numpy(values))
    return model.eval()


def tokenizer(name: str, **settings) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_file=str(HERE / "tokenizers" / f"{name}.json"), **SPECIALS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"], **settings)


def texts(count: int, most_words: int) -> list[str]:
    words = (HERE / "tokenizers" / "corpus.txt").read_text().split()
    rng = random.Random(SEED)
    return [" ".join(rng.choices(words, k=rng.randrange(1, most_words))) for _ in range(count)]


def linear(inputs: int, outputs: int, function: nn.Module, seed: int, bias: bool = True) -> Dense:
    return draw(Dense(inputs, outputs, bias=bias, activation_function=function), seed)


def variants() -> dict:
    """Returns the modules after the Transformer and other data of each model folder."""
    d = SIZES["hidden_size"]
    return {
        "cls": {"modules": [Pooling(d, "cls")]},
        "mean": {"modules": [Pooling(d, "mean"), Normalize()]},
        "max": {"modules": [Pooling(d, "max")]},
        "last": {"modules": [Pooling(d, "lasttoken")]},
        "weighted": {"modules": [Pooling(d, "weightedmean")]},
        "sqrt_len": {"modules": [Pooling(d, "mean_sqrt_len_tokens")]},
        "dense": {
            "modules": [Pooling(d, ("mean", "max")), linear(2 * d, 30, nn.Tanh(), 1),
                        linear(30, 16, nn.GELU(), 2, bias=False), Normalize()],
            "prompts": PROMPTS, "default_prompt_name": "query", "similarity_fn_name": "dot"},
        "without_prompt": {
            "modules": [Pooling(d, ("cls", "weightedmean", "mean", "lasttoken"),
                                include_prompt=False)],
            "prompts": PROMPTS, "similarity_fn_name": "cosine"},
        "lower_case": {"modules": [Pooling(d, "mean")], "tokenizer": "bert_cased",
                       "lower": True},
        "left": {"modules": [Pooling(d, "mean")], "settings": {"truncation_side": "left"}},
    }


def small_files(folder: pathlib.Path) -> dict:
    """Returns the texts of the small files in a folder."""
    kept = {}
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder))
        if name not in ("config.json", "tokenizer.json"):
            kept[name] = json.loads(path.read_text())
    return kept


OLD_FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens",
             "max": "pooling_mode_max_tokens", "lasttoken": "pooling_mode_lasttoken",
             "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
             "weightedmean": "pooling_mode_weightedmean_tokens"}


def age(files: dict) -> dict:
    """Returns the files as written by releases before 5.0."""
    old = dict(files)
    old["modules.json"] = [
        module | {"type": "sentence_transformers.models." + module["type"].rsplit(".", 1)[1]}
        for module in files["modules.json"]]
    pooling = files["1_Pooling/config.json"]
    modes = pooling["pooling_mode"]
    modes = [modes] if isinstance(modes, str) else modes
    old["1_Pooling/config.json"] = {
        "word_embedding_dimension": pooling["embedding_dimension"],
        **{flag: mode in modes for mode, flag in OLD_FLAGS.items()}}
    old["sentence_bert_config.json"] = {"max_seq_length": 18, "do_lower_case": False}
    old.pop("2_Normalize/config.json", None)
    return old


def lay(folder: pathlib.Path, files: dict, tokenizer_name: str, dense: dict) -> None:
    """Writes a folder in the same way as the daemon's test."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(OUT / "encoder" / name, folder / name)
    shutil.copy(HERE / "tokenizers" / f"{tokenizer_name}.json", folder / "tokenizer.json")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    for name, tensors in dense.items():
        save_file({key: torch.tensor(value) for key, value in tensors.items()},
                  folder / name / "model.safetensors")


def answers(folder: pathlib.Path, sentences: list[str], prompts: list) -> list:
    # In float64, so that only the daemon's rounding causes differences.
    model = SentenceTransformer(str(folder), device="cpu").double()
    found = []
    for prompt in prompts:
        rows = [model.encode(text, prompt_name=prompt, convert_to_tensor=True)
                for text in sentences]
        found.append({"prompt_name": prompt,
                      "rows": [[round(x, 9) for x in row.tolist()] for row in rows]})
    return found


def make_variant(scratch: pathlib.Path, name: str, variant: dict, sentences: list[str]) -> dict:
    tokenizer_name = variant.get("tokenizer", "bert_uncased")
    base = scratch / f"{name}_base"
    shutil.copytree(OUT / "encoder", base)
    tokenizer(tokenizer_name, **variant.get("settings", {})).save_pretrained(base)
    transformer = Transformer(str(base), max_seq_length=20)
    named = {key: variant[key] for key in ("prompts", "default_prompt_name", "similarity_fn_name")
             if key in variant}
    SentenceTransformer(modules=[transformer, *variant["modules"]], **named).save(
        str(scratch / name))
    files = small_files(scratch / name)
    if variant.get("lower"):
        files["sentence_bert_config.json"] = {"max_seq_length": 20, "do_lower_case": True}
    dense = {f"{i + 1}_Dense": {key: value.tolist() for key, value in module.state_dict().items()}
             for i, module in enumerate(variant["modules"]) if isinstance(module, Dense)}
    made = {"tokenizer": tokenizer_name, "files": files, "dense": dense}
    lay(scratch / f"{name}_laid", files, tokenizer_name, dense)
    prompts = [None, *variant.get("prompts", {})]
    made["answers"] = answers(scratch / f"{name}_laid", sentences, prompts)
    return made


def cross_encoder(scratch: pathlib.Path, labels: int, seed: int) -> tuple[CrossEncoder, str]:
    named = {"num_labels": labels}
    if labels == len(LABELS):
        named = {"id2label": LABELS, "label2id": {name: i for i, name in LABELS.items()}}
    model = draw(BertForSequenceClassification(BertConfig(**SIZES, **named)), seed)
    folder = OUT / f"cross_{labels}"
    shutil.rmtree(folder, ignore_errors=True)
    base = scratch / folder.name
    model.save_pretrained(base)
    tokenizer("bert_uncased").save_pretrained(base)
    CrossEncoder(str(base), device="cpu").save_pretrained(str(folder))
    (folder / "README.md").unlink()
    shutil.copy(HERE / "tokenizers" / "bert_uncased.json", folder / "tokenizer.json")
    return CrossEncoder(str(folder), device="cpu").double(), folder.name


def make_crosses(scratch: pathlib.Path) -> dict:
    queries, documents = texts(10, 6), texts(100, 14)
    made = {"queries": queries, "documents": documents, "models": {}}
    for labels, seed in ((1, 71), (len(LABELS), 72)):
        model, name = cross_encoder(scratch, labels, seed)
        scores = [[model.predict([(query, document)], activation_fn=nn.Identity(),
                                 convert_to_tensor=True)[0].tolist() for document in documents]
                  for query in queries]
        made["models"][name] = scores
    return made


def make_tokens(sentences: list[str]) -> list:
    """Makes a token classifier; returns the scores of each token of each text."""
    names = {i: name for i, name in enumerate(("O", "B-PER", "I-PER", "B-LOC"))}
    config = BertConfig(**SIZES, id2label=names, label2id={v: k for k, v in names.items()})
    model = draw(BertForTokenClassification(config), 73)
    model.save_pretrained(OUT / "tokens")
    shutil.copy(HERE / "tokenizers" / "bert_uncased.json", OUT / "tokens" / "tokenizer.json")
    encode = tokenizer("bert_uncased")
    made = []
    for text in sentences:
        inputs = encode(text, return_tensors="pt", truncation=True, max_length=24)
        scores = model.double()(**inputs).logits[0].tolist()
        made.append([[round(x, 9) for x in row] for row in scores])
    return made


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    draw(BertModel(BertConfig(**SIZES), add_pooling_layer=False), 70).save_pretrained(
        OUT / "encoder")
    sentences = texts(5, 12) + ["", "ÜBER Straße", texts(1, 2)[0] * 30]
    expected = {"texts": sentences, "variants": {}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        for name, variant in variants().items():
            made = make_variant(scratch, name, variant, sentences)
            expected["variants"][name] = made
            if name in ("mean", "weighted"):
                old = made | {"files": age(made["files"])}
                lay(scratch / f"{name}_old", old["files"], made["tokenizer"], made["dense"])
                old["answers"] = answers(scratch / f"{name}_old", sentences, [None])
                expected["variants"][f"{name}_old"] = old
        expected["pairs"] = make_crosses(scratch)
    expected["tokens"] = make_tokens(sentences)
    (OUT / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
