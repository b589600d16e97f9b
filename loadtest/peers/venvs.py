"""Makes a virtual environment for each peer from its pinned requirements."""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class NotInstalled(Exception):
    """A peer that cannot be installed; the message has the reason in one line."""


def python_of(folder: pathlib.Path, peer: str) -> pathlib.Path:
    """Returns the interpreter with the peer's packages. Installs them if necessary."""
    environment = folder / peer
    python, done = environment / "bin" / "python", environment / "installed"
    if done.exists():
        return python
    requirements = HERE / f"requirements-{peer}.txt"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    ended = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", "-r", requirements],
        capture_output=True, text=True)
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(f"pip: {(errors or ['failed'])[-1].removeprefix('ERROR: ')}")
    done.touch()
    return python


def versions(python: pathlib.Path, packages: tuple[str, ...]) -> dict[str, str]:
    code = ("import importlib.metadata, json, sys; "
            "print(json.dumps({each: importlib.metadata.version(each) for each in sys.argv[1:]}))")
    ended = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True,
                           check=True)
    return json.loads(ended.stdout)
