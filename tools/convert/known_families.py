"""Converts a checkpoint of .bin or .pt shards of a family that Sluice supports. No map is needed,
because Sluice reads its tensor names and its config.json directly."""

import json
import pathlib
import re
import shutil

FAMILIES = pathlib.Path(__file__).parents[2] / "engine" / "model" / "families"
# Files of a model that are served together with its weights.
TEXTS = ("*.json", "*.txt", "*.model", "artifact.metadata")
# Heads of token states (engine/model/head_files.h). Each is in a file of its own.
HEADS = ("sparse_linear", "colbert_linear")
SAFE_TORCH = (2, 6)


def architectures():
    """Returns the architectures that the daemon supports."""
    names = set()
    for path in FAMILIES.glob("*.cc"):
        names.update(re.findall(r'\{"(\w+)", "[^"]*", OutputKind::', path.read_text()))
    return names


def shards_of(source):
    """Returns the files with the model's weights in a directory, sorted by name."""
    files = sorted(source.glob("pytorch_model*.bin")) or sorted(source.glob("*.bin"))
    if files or any(source.glob("*.safetensors")):
        return files
    return [path for path in sorted(source.glob("*.pt")) if path.stem not in HEADS]


def heads_of(source):
    """Returns the pickled heads of token states in a directory."""
    return [path for name in HEADS for path in source.glob(f"{name}.pt")]


def convert_modules(source, out, load, save):
    """Copies the folders of modules, such as 1_Pooling and 2_Dense, and converts their weights."""
    for folder in sorted(source.glob("[0-9]*_*")):
        if not folder.is_dir():
            continue
        target = out / folder.name
        target.mkdir(exist_ok=True)
        for path in (*folder.glob("*.json"), *folder.glob("*.safetensors")):
            shutil.copy(path, target / path.name)
        for path in folder.glob("pytorch_model.bin"):
            save(load(path), target / "model.safetensors")


def known_architecture(source):
    """Returns the architecture in config.json if the daemon supports it, or None."""
    path = source / "config.json"
    if not path.is_file():
        return None
    named = json.loads(path.read_text()).get("architectures") or []
    return next((name for name in named if name in architectures()), None)


def load_with_torch(path):
    import torch

    # Before this version a file could execute code in spite of weights_only (CVE-2025-32434).
    version = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if version < SAFE_TORCH:
        raise ValueError(
            f"{path} requires torch {'.'.join(map(str, SAFE_TORCH))} or newer to be read safely; "
            f"torch {torch.__version__} is installed. Upgrade it, or save the file as safetensors"
        )
    return torch.load(path, map_location="cpu", weights_only=True)


def save_with_torch(tensors, path):
    from safetensors.torch import save_file

    # Tied tensors share memory, which safetensors does not allow.
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, path,
              metadata={"format": "pt"})


def convert_directory(source, out, load=load_with_torch, save=save_with_torch):
    """Writes the weights as model.safetensors, in their dtypes, and copies the model's texts.

    A head of token states becomes a safetensors file of its name. Weights that are safetensors are
    copied. Returns the number of tensors. If two shards have the same tensor, that is an error.
    """
    tensors = {}
    for path in shards_of(source):
        for name, value in load(path).items():
            if name in tensors:
                raise ValueError(f"{path.name}: tensor {name} is in another shard too")
            tensors[name] = value
    out.mkdir(parents=True, exist_ok=True)
    for pattern in TEXTS:
        for path in source.glob(pattern):
            if tensors and path.name.endswith(".index.json"):
                continue
            shutil.copy(path, out / path.name)
    convert_modules(source, out, load, save)
    heads = {path.stem: load(path) for path in heads_of(source)}
    for name, head in heads.items():
        save(head, out / f"{name}.safetensors")
    for path in source.glob("*.safetensors"):
        if path.stem not in heads and not tensors:
            shutil.copy(path, out / path.name)
    if tensors:
        save(tensors, out / "model.safetensors")
    return len(tensors) + sum(map(len, heads.values()))
