"""Writes random low-rank adapters of a checkpoint."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np
from safetensors.numpy import save_file


def write(folder: pathlib.Path, weights: dict[str, np.ndarray], matrices: Sequence[str], rank: int,
          seed: int) -> dict[str, np.ndarray]:
    """Writes an adapter in bf16 for some matrices of the weights, which are named without
    `.weight`. Returns its changes of the weights, by name."""
    import ml_dtypes  # some environments of peers lack it

    source = np.random.default_rng(seed)
    tensors, changes = {}, {}
    for name in matrices:
        out, width = weights[f"{name}.weight"].shape
        a = source.standard_normal((rank, width), np.float32) / np.float32(np.sqrt(width))
        b = source.standard_normal((out, rank), np.float32) / np.float32(4 * np.sqrt(rank))
        tensors[f"base_model.model.{name}.lora_A.weight"] = a.astype(ml_dtypes.bfloat16)
        tensors[f"base_model.model.{name}.lora_B.weight"] = b.astype(ml_dtypes.bfloat16)
        changes[f"{name}.weight"] = b @ a
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank,
                "target_modules": sorted({name.rpartition(".")[2] for name in matrices})}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return changes
