"""Tests that the daemon refuses damaged model files at start, and names the file and reason."""

import json
import pathlib
import shutil
import struct
import subprocess

import pytest
from conftest import ROOT, SLUICED
from waiting import PATIENCE_S

GOLDEN = ROOT / "tests" / "goldens" / "sluice_xsa"


def weights(change):
    """Returns a function that damages model.safetensors. `change` maps (header, data) to bytes."""

    def damage(folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        path.write_bytes(change(json.loads(data[8:8 + size]), data[8 + size:]))

    return damage


def pack(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def first(header):
    return next(name for name in sorted(header) if name != "__metadata__")


def truncated(header, data):
    return pack(header, data)[:-7]


def endless_header(header, data):
    return b"\xff" * 8 + pack(header, data)[8:]


def overflowing(header, data):
    header[first(header)]["shape"] = [1 << 32, 1 << 32]
    return pack(header, data)


def overlapping(header, data):
    names = sorted((name for name in header if name != "__metadata__"),
                   key=lambda name: header[name]["data_offsets"])
    header[names[1]] = header[names[0]]
    return pack(header, data)


def outside(header, data):
    begin, end = header[first(header)]["data_offsets"]
    header[first(header)]["data_offsets"] = [begin, end + (1 << 40)]
    return pack(header, data)


def config(**changes):
    def damage(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def link_out(folder):
    elsewhere = folder.parent / "elsewhere.safetensors"
    (folder / "model.safetensors").rename(elsewhere)
    (folder / "model.safetensors").symlink_to(elsewhere)


def shard_outside(folder):
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}))


DAMAGES = {
    "truncated": (weights(truncated), "bytes of data"),
    "endless header": (weights(endless_header), "safetensors header of 18446744073709551615 bytes"),
    "overflowing shape": (weights(overflowing), "need more than 2^64"),
    "overlapping tensors": (weights(overlapping), "overlaps the tensor before it"),
    "offsets outside": (weights(outside), "exceed the"),
    "2^31 layers": (
        config(num_hidden_layers=1 << 31),
        "num_hidden_layers is 2147483648, must be in [1, 1024]",
    ),
    "other width": (config(intermediate_size=100_000), "must be [100000, "),
    "gigabytes of positions": (
        config(max_position_embeddings=1 << 20, head_dim=1024),
        "max_position_embeddings times head_dim is",
    ),
    "link out of the root": (link_out, "leads out of the root directory"),
    "shard out of the root": (
        shard_outside,
        "\"../elsewhere.safetensors\" is not a plain file name",
    ),
    "no JSON": (
        lambda folder: (folder / "config.json").write_bytes(b"[" * 100_000),
        "nested deeper than 16",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_model_is_refused_before_serving(tmp_path, name):
    damage, reason = DAMAGES[name]
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN, folder)
    damage(folder)
    ended = subprocess.run(
        [SLUICED, "--model", f"broken={folder}", "--server.grpc.address", "127.0.0.1:0",
         "--server.metrics.address", "127.0.0.1:0", "--server.admin.address="],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1, ended.stderr
    assert "ready: gRPC" not in ended.stdout
    assert reason in ended.stderr
    assert "broken" in ended.stderr and pathlib.Path(folder).name in ended.stderr


def test_the_undamaged_model_is_served(tmp_path, daemon):
    """The undamaged copy is served, so the refusals are due to the damage."""
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN, folder)
    assert daemon(models=[("whole", folder)]).ready()
