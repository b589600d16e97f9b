"""Converts a checkpoint of .bin or .pt shards of a family that Sluice supports. No map is needed,
because Sluice reads its tensor names and its config.json directly."""

import json
import pathlib
import re
import shutil

FAMILIES = pathlib.Path(__file__).parents[2] / "engine" / "model" / "families"
# Files of a model that are served together with its weights.
TEXTS = ("*.json", "*.txt", "*.model")
SAFE_TORCH = (2, 6)


def architectures():
    """Returns the architectures that the daemon supports."""
    names = set()
    for path in FAMILIES.glob("*.cc"):
        names.update(re.findall(r'\{"(\w+)", "[^"]*", OutputKind::', path.read_text()))
    return names


def shards_of(source):
    """Returns the files with weights in a directory, sorted by name."""
    files = sorted(source.glob("pytorch_model*.bin")) or sorted(source.glob("*.bin"))
    return files or sorted(source.glob("*.pt"))


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

    Returns the number of tensors. If two shards have the same tensor, that is an error.
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
            if not path.name.endswith(".index.json"):
                shutil.copy(path, out / path.name)
    save(tensors, out / "model.safetensors")
    return len(tensors)
