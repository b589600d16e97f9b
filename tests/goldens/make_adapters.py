"""Makes the golden adapters in tests/goldens/adapters: PEFT's LoRA on golden models of families/.

For each of FAMILIES and each of three seeds, draws an adapter of the committed golden model: rank,
alpha, rsLoRA, changed modules and dtype. The model with the adapter is computed in float64 by PEFT
and transformers. The daemon's tests read the committed files and never run this script.

For each of CLASSIFIERS, each of TASKS and each seed, tests/goldens/adapter_heads has an adapter
with a classifier of its own: the number of labels, their names and the saved modules are drawn,
too. The golden model may be a language model, another classifier or neither.

  python make_adapters.py [--only bert,llama] [--out FOLDER]
"""

import argparse
import itertools
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from make_transformers import FIRST_ID, LENGTHS, all_in_double, run
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

FAMILIES = ("bert", "roberta", "distilbert", "modernbert", "gpt2", "llama", "qwen3", "phi3",
            "gpt_neox", "granite", "xlm_roberta")
EMBEDDINGS = {"xlm_roberta": ["word_embeddings", "token_type_embeddings"]}  # also changed
CLASSIFIERS = ("bert", "roberta", "distilbert", "modernbert", "llama")
TASKS = {"SEQ_CLS": "SequenceClassification", "TOKEN_CLS": "TokenClassification"}
SEEDS = (1, 2, 3)
HERE = Path(__file__).parent


def base_model(folder: Path):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    return kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def modules_of(model, in_layers: bool) -> list[str]:
    """Returns the names of the dense layers within or outside the model's layers, in which a name
    has a number."""
    return [name for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear | Conv1D)
            and any(part.isdigit() for part in name.split(".")) == in_layers]


def classifier_of(folder: Path, task: str, labels: int):
    """Returns the golden model with a new classifier, and the modules that the golden lacks."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.num_labels = labels
    kind = getattr(transformers, f"AutoModelFor{TASKS[task]}")
    model, loaded = kind.from_pretrained(
        folder, config=config, attn_implementation="eager", dtype=torch.float32,
        ignore_mismatched_sizes=True, output_loading_info=True)
    lacking = {name.rpartition(".")[0] for name in loaded["missing_keys"]}
    # PEFT always saves these.
    return model.eval(), sorted(n for n in lacking if not n.startswith(("classifier", "score")))


def draw_adapter(model, rng, embeddings=(), **classifier):
    modules = sorted({name.rpartition(".")[2] for name in modules_of(model, True)})
    chosen = [name for name in modules if rng.random() < 0.6] or modules
    rank = int(rng.integers(1, 8))
    config = peft.LoraConfig(
        r=rank, lora_alpha=int(rng.integers(1, 33)), use_rslora=bool(rng.integers(2)),
        target_modules=[*modules, *embeddings] if embeddings
        else "all-linear" if rng.random() < 0.3 else chosen, lora_dropout=0.1,
        exclude_modules=modules_of(model, False),
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()), **classifier)
    adapted = peft.get_peft_model(model, config).eval()
    half = rng.random() < 0.3
    for name, parameter in adapted.named_parameters():
        if "lora_" not in name and "modules_to_save" not in name:
            continue
        values = torch.from_numpy(rng.standard_normal(tuple(parameter.shape))).float()
        if "modules_to_save" in name:
            values /= parameter.shape[-1] ** 0.5
        elif "lora_A" in name or "lora_embedding_A" in name:
            values /= parameter.shape["embedding" not in name] ** 0.5
        else:
            scale = config.lora_alpha / (rank**0.5 if config.use_rslora else rank)
            values *= 0.5 / scale / rank**0.5
        parameter.data.copy_(values.bfloat16().float() if half else values)
    return adapted, half


def save(adapted, half: bool, base: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = base.name
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    if half:
        tensors = load_file(folder / "adapter_model.safetensors")
        save_file({name: value.bfloat16() for name, value in tensors.items()},
                  folder / "adapter_model.safetensors")


def write(family: str, seed: int, folder: Path) -> None:
    base = HERE / "families" / f"{family}_{seed}"
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    adapted, half = draw_adapter(base_model(base), rng, EMBEDDINGS.get(family, ()))
    save(adapted, half, base, folder)
    model = adapted.base_model.model.double()
    vocab = model.config.get_text_config().vocab_size
    rows, sequences = [], []
    with torch.no_grad(), all_in_double(family):
        for length in LENGTHS:
            ids = torch.from_numpy(rng.integers(FIRST_ID, vocab, length))
            rows.append(run(model, ids))
            sequences.append(ids)
    expected = {"lengths": torch.tensor(LENGTHS, dtype=torch.int32),
                "input_ids": torch.cat(sequences).int()}
    for name in ("states", "logits"):
        if name in rows[0]:
            expected[name] = torch.cat([row[name] for row in rows]).float()
    save_file(expected, folder / "expected.safetensors")


def write_classifier(family: str, task: str, seed: int, folder: Path) -> None:
    base = HERE / "families" / f"{family}_{seed}"
    rng = np.random.default_rng([seed, CLASSIFIERS.index(family), 1 + list(TASKS).index(task)])
    labels = int(rng.integers(1 + (task == "TOKEN_CLS"), 6))
    model, lacking = classifier_of(base, task, labels)
    adapted, half = draw_adapter(model, rng, task_type=task, modules_to_save=lacking)
    save(adapted, half, base, folder)
    model = adapted.base_model.model
    if rng.random() < 0.6:
        model.config.id2label = {i: f"label {i}" for i in range(labels)}
        model.config.label2id = {f"label {i}": i for i in range(labels)}
        if rng.random() < 0.5:
            model.config.problem_type = "multi_label_classification"
        model.config.save_pretrained(folder)
    model = model.double()
    vocab = model.config.get_text_config().vocab_size
    sequences = [torch.from_numpy(rng.integers(FIRST_ID, vocab, length)) for length in LENGTHS]
    with torch.no_grad(), all_in_double(family):
        scores = [model(ids[None]).logits[0] for ids in sequences]
    scores = torch.stack(scores) if task == "SEQ_CLS" else torch.cat(scores)
    save_file({"lengths": torch.tensor(LENGTHS, dtype=torch.int32),
               "input_ids": torch.cat(sequences).int(), "scores": scores.float()},
              folder / "expected.safetensors")


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(FAMILIES))
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    for family, seed in itertools.product(args.only.split(","), SEEDS):
        write(family, seed, args.out / "adapters" / f"{family}_{seed}")
        print(family, seed)
        for task in TASKS if family in CLASSIFIERS else ():
            name = f"{family}_{TASKS[task].lower()}_{seed}"
            write_classifier(family, task, seed, args.out / "adapter_heads" / name)
            print(name)


if __name__ == "__main__":
    main()
