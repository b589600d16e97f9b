"""Creates folders of sentence-transformers models from tests/goldens/sentences."""

import json
import shutil

import numpy as np
from conftest import ROOT
from tiny_model import write_safetensors

GOLDENS = ROOT / "tests" / "goldens"
SENTENCES = GOLDENS / "sentences"
EXPECTED = json.loads((SENTENCES / "expected.json").read_text())


def lay(folder, variant):
    """Writes the folder of a variant in expected.json."""
    made = EXPECTED["variants"][variant]
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(SENTENCES / "encoder" / name, folder / name)
    shutil.copy(GOLDENS / "tokenizers" / f"{made['tokenizer']}.json", folder / "tokenizer.json")
    for name, content in made["files"].items():
        write_json(folder / name, content)
    for name, tensors in made["dense"].items():
        write_safetensors(folder / name / "model.safetensors",
                          {key: np.array(value, np.float32) for key, value in tensors.items()})
    return folder


def write_json(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
