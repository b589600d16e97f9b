"""Makes each file operation of a daemon fail once, during start, serving, reload and shutdown.

By default a random sample of the operations; all of them with `--every-file-fault`.
"""

import concurrent.futures
import errno
import os
import random
import shutil

from conftest import DEMO, Daemon, EndedEarly
from failing_files import FailingFiles
from infer import infer, text_inputs
from limits import descriptors
from test_buckets import sluice
from test_invariance import same
from waiting import wait_until

INPUTS = text_inputs("And it came to pass")
# The operations that change files. Their errors must be reported. Only operations that read may
# fail silently, for example the look for temporary files of processes that ended.
CHANGES = ("write", "writev", "ftruncate", "fsync", "rename")


class Life:
    """One run of a daemon that reads and writes files in `folder`."""

    def __init__(self, folder, nth=0, action=errno.EIO):
        shutil.copytree(DEMO, folder / "models" / "demo" / "1",
                        ignore=shutil.ignore_patterns("*.py", "train*"))
        config = folder / "sluice.yaml"
        config.write_text(
            f"model_repository: {folder / 'models'}\n"
            f"engine:\n  batch: {{max_batch_tokens: 256}}\n"
            f"  ladder: {{file: {folder / 'ladder.json'}}}\n"
            f"  history: {{journal: {folder / 'journal'}}}\n")
        # Left over from earlier runs: a journal with a torn line, and a temporary file.
        (folder / "journal").write_text('{"op":"dropped","lines":1}\n{"op":')
        (folder / "ladder.json.tmp.1").write_text("{")
        self.failing = FailingFiles(folder, nth, action)
        self.told = ""  # output of the daemon and of commands
        self.answers = []
        self.started = False
        try:
            server = Daemon("--config", str(config), models=(), variables=self.failing.variables)
        except EndedEarly as ended:
            self.status, self.told = ended.status, ended.output
            return
        self.started = True
        try:
            self._serve(server)
        finally:
            self.told += server.stop(status=None)
            self.status = server.process.returncode

    def _command(self, *arguments):
        run = sluice(*arguments, "--admin", self.server.admin)
        self.told += run.stdout + run.stderr
        return run.returncode == 0

    def _serve(self, server):
        self.server = server
        with server.client() as client:
            def ask():
                self.answers.append(infer(client, INPUTS, max_tokens=4))

            ask()
            opened = descriptors(server)
            self._command("ladder", "set", "demo", "--strategy", "geometric", "--ratio", "2",
                          "--keep")
            ask()
            self._command("reload")
            ask()
            self._command("load", "demo")
            ask()
            wait_until(lambda: descriptors(server) <= opened + 1,
                       what="a descriptor was left open")


def test_every_file_operation_may_fail(tmp_path, request, first_seed):
    def life(name, **fault):
        folder = tmp_path / name
        folder.mkdir()
        lived = Life(folder, **fault)
        shutil.rmtree(folder)
        return lived

    whole = life("whole")
    assert whole.status == 0, whole.told
    names = [line.split()[1] for line in whole.failing.operations()]
    count = len(names)
    draw = random.Random(first_seed)
    # Each change meets a full disk.
    faults = [(nth, errno.ENOSPC if name in CHANGES else draw.choice([errno.EIO, errno.EMFILE]))
              for nth, name in enumerate(names, 1)]
    if not request.config.getoption("--every-file-fault"):
        changes = [fault for fault, name in zip(faults, names) if name in CHANGES]
        faults = sorted({*draw.sample(changes, 2), *draw.sample(faults, 4)})
    silent, lost, ended = [], [], 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        lives = list(pool.map(
            lambda fault: life(f"fault-{fault[0]}-{fault[1]}", nth=fault[0], action=fault[1]),
            faults))
    for (nth, action), lived in zip(faults, lives):
        operations = lived.failing.operations()
        # Two threads may log their operations in another order.
        failed = next((line for line in operations if line.startswith(f"{nth} ")), None)
        fault = f"{errno.errorcode[action]} at {failed or operations[-1]}"
        ended += not lived.started
        assert lived.status in ((0,) if lived.started else (1, 2)), f"{fault}: {lived.told}"
        for answer in lived.answers:
            assert same(answer, whole.answers[0]), fault
        if failed and os.strerror(action) not in lived.told:
            (lost if failed.split()[1] in CHANGES else silent).append(fault)
    print(f"{count} operations, {len(faults)} faults, {ended} ended the start")
    print("failed reads whose errno text was not reported:", *silent, sep="\n  ")
    assert not lost, f"changes that failed without a report: {lost}"
