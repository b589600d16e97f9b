"""Tests the choice of files and the errors of sluice-pull. tests/thorough downloads with it."""

import shutil
import subprocess
import sys

import pytest
from reranker_models import RERANKERS, frame_of
from sluice_client.pull import needed_files, write_frame

TEXTS = ["config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json",
         "chat_template.jinja", "vocab.txt", "tokenizer.model"]


def test_only_the_files_that_the_daemon_reads_are_downloaded():
    unused = ["README.md", ".gitattributes", "onnx/model.onnx", "onnx/config.json",
              "openvino/config.json", "original/consolidated.safetensors", "model.fp16.safetensors",
              "pytorch_model.bin", "tf_model.h5", "rust_model.ot", "requirements.txt"]
    one = [*TEXTS, "model.safetensors", "2_Dense/model.safetensors"]
    assert needed_files([*one, *unused]) == sorted(one)
    shards = [*TEXTS, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
              "model.safetensors.index.json"]
    assert needed_files([*shards, *unused]) == sorted(shards)


def test_pickles_are_downloaded_if_there_are_no_other_weights():
    pickles = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    assert needed_files([*TEXTS, *pickles, "2_Dense/model.safetensors"]) == sorted(
        [*TEXTS, *pickles, "2_Dense/model.safetensors"])


@pytest.mark.parametrize("files", [[], ["model.safetensors"], ["config.json", "a.gguf"],
                                   ["config.json", "onnx/model.safetensors"]])
def test_repository_without_a_model_is_refused(files):
    with pytest.raises(ValueError, match="config.json"):
        needed_files(files)


@pytest.mark.parametrize("name", ["none", "../a", "a/b/c", "a/..", "a b/c"])
def test_wrong_name_is_refused(name):
    done = subprocess.run([sys.executable, "-m", "sluice_client.pull", name], capture_output=True,
                          text=True)
    assert done.returncode == 2 and "OWNER/NAME" in done.stderr


def test_missing_library_is_named():
    program = ("import sys; sys.modules['huggingface_hub'] = None; sys.argv[1:] = ['a/b'];"
               "from sluice_client import pull; pull.main()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and "./clients/python[hub]" in done.stderr


def test_the_files_of_the_given_revision_are_downloaded(tmp_path):
    program = """
import sys, types
hub = types.ModuleType("huggingface_hub")
class HfApi:
    def model_info(self, repository, revision):
        print(repository, revision)
        files = [types.SimpleNamespace(rfilename=name)
                 for name in ("config.json", "model.safetensors", "README.md")]
        return types.SimpleNamespace(sha="0123abcd", siblings=files)
def download(repository, revision, local_dir, allow_patterns):
    print(repository, revision, *allow_patterns)
    local_dir.mkdir()
hub.HfApi, hub.snapshot_download = HfApi, download
sys.modules["huggingface_hub"] = hub
from sluice_client import pull
pull.main()
"""
    done = subprocess.run([sys.executable, "-c", program, "a/b", "--revision", "v1.2", "--to",
                           tmp_path / "b"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "a/b v1.2", "a/b 0123abcd config.json model.safetensors",
        f"sluiced --model b={tmp_path / 'b'}"]


@pytest.mark.parametrize("raised", ["RuntimeError('no route\\nto host')",
                                    "OSError('no route to host')"])
def test_missing_network_is_one_line_with_a_remedy(raised):
    """An error of the hub's HTTP library, whose class depends on the version of the hub."""
    program = ("import sys, types; hub = types.ModuleType('huggingface_hub');"
               f"hub.HfApi = lambda: (_ for _ in ()).throw({raised});"
               "sys.modules['huggingface_hub'] = hub; sys.argv[1:] = ['a/b'];"
               "from sluice_client import pull; pull.main()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "no route to host" in done.stderr and "HTTPS_PROXY" in done.stderr


def test_ctrl_c_during_a_download_ends_without_a_traceback():
    program = ("import sys, types; hub = types.ModuleType('huggingface_hub');"
               "hub.HfApi = lambda: (_ for _ in ()).throw(KeyboardInterrupt());"
               "sys.modules['huggingface_hub'] = hub; sys.argv[1:] = ['a/b'];"
               "from sluice_client import pull; pull.main()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_reranker_gets_its_frame(tmp_path):
    for name in ("qwen3", "mxbai"):
        folder = tmp_path / name
        shutil.copytree(RERANKERS / name, folder)
        assert write_frame("someone/reranker", folder) == ""
        assert {*frame_of(folder)} == {"frame", "frame_with_instruction"}
    folder = tmp_path / "plain"
    folder.mkdir()
    shutil.copy(RERANKERS / "qwen3" / "tokenizer.json", folder)
    assert write_frame("someone/model", folder) == "" and [*folder.iterdir()] == [
        folder / "tokenizer.json"]
    assert write_frame("Qwen/Qwen3-Reranker-4B", folder) == ""
    assert "true_token_id" in frame_of(folder)
    (tmp_path / "qwen3" / "chat_template.jinja").write_text("a")
    assert "cannot make the frame" in write_frame("someone/reranker", tmp_path / "qwen3")
