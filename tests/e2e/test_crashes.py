"""Kills daemons under load and during reloads and ladder writes, then checks their files.

For a long run, use `--crash-runs 200`. `--first-seed` reproduces a run.
"""

import collections
import json
import random
import re
import signal
import subprocess
import threading

import pytest
from conftest import BUILD, DEMO
from failing_files import FailingFiles
from histories import Load, answers_alone, violations
from test_buckets import sluice
from test_histories import drawn_asks
from waiting import PATIENCE_S, pause, wait_until

SIMULATE = BUILD / "loadtest" / "simulate" / "sluice-simulate"
# The n-th operation on the ladder file is chosen from this many: a few at start, four per write.
LADDER_OPERATIONS = 20
ALLOWED = {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}


class Crashing:
    """The files of a daemon that is killed and restarted."""

    def __init__(self, start, folder):
        self._start = start
        self.folder = folder / "files"
        self.folder.mkdir()
        self.ladder = self.folder / "ladder.json"
        self.journal = self.folder / "journal"
        self._config = self.folder / "sluice.yaml"
        self._log = folder / "log"
        self.write(7)
        self.kept = set()  # ratios that the ladder file may hold
        self.tried = 0  # number of ladder changes
        self.counted = collections.Counter()

    def write(self, rows):
        text = (f"models:\n  - {{name: demo, path: {DEMO}}}\n"
                f"server: {{grpc: {{max_rows: {rows}}}, log: {{access_sample: 1}}}}\n"
                f"engine:\n  batch: {{max_batch_tokens: 1024}}\n"
                f"  ladder: {{file: {self.ladder}}}\n  history: {{journal: {self.journal}}}\n")
        new = self._config.with_suffix(".new")
        new.write_text(text)
        new.rename(self._config)

    def start(self, variables=None):
        with open(self._log, "a") as log:
            return self._start("--config", str(self._config), models=(), variables=variables,
                               log=log)

    def choose(self, server):
        """Saves a new ladder; returns whether the daemon confirmed that it is saved."""
        self.tried += 1
        choice = f"{1.5 + self.tried / 1000:g}"  # a new ratio each time
        self.kept.add(choice)
        run = sluice("ladder", "set", "demo", "--strategy", "geometric", "--ratio", choice,
                     "--keep", "--admin", server.admin)
        if run.returncode == 0:
            self.kept = {choice}
        return run.returncode == 0

    def disturb(self, server, draw, ended):
        """Changes ladders and reloads until `ended` is set."""
        while not ended.is_set():
            if draw.random() < 0.5:
                self.counted["kept"] += self.choose(server)
            else:
                self.write(draw.randint(1, 99))
                self.counted["reloaded"] += sluice("reload", "--admin",
                                                   server.admin).returncode == 0

    def changes(self):
        return self.counted["kept"] + self.counted["reloaded"]

    def repeat_an_answer(self):
        """Appends the log line of a request that is answered a second time."""
        text = self._log.read_text()
        answer = re.search(r".* id=call-\d+ .*code=OK.*", text)
        self._log.write_text(f"{text}{answer[0]}\n")

    def check_files(self):
        if self.ladder.exists() or self.counted["kept"]:
            written = json.loads(self.ladder.read_text())
            assert written["sluice_ladder"] == 1
            kept = written.get("kept", {}).get("ratio")
            assert kept in self.kept or (kept is None and not self.counted["kept"]), (
                f"the file holds {kept}, expected one of {self.kept}")
        run = subprocess.run([SIMULATE, "--journal", self.journal], capture_output=True, text=True,
                             timeout=PATIENCE_S)
        assert run.returncode == 0 and run.stdout.startswith("identical: "), run.stderr
        answered = re.findall(r" id=(call-\d+) .*code=OK", self._log.read_text())
        assert len(answered) == len(set(answered)), "a request was answered twice"
        return run.stdout


def crash_at_any_time(crashing, draw, asks, alone):
    """Kills a daemon under load, a random time after it has kept a ladder or reloaded."""
    server = crashing.start()
    before = crashing.changes()

    def end():
        wait_until(lambda: crashing.changes() > before, what="no ladder was kept, and no reload "
                                                             "succeeded")
        pause(draw.uniform(0, 0.5))
        server.process.kill()

    played(crashing, draw, asks, alone, server, end)


def crash_at_an_operation(crashing, draw, asks, alone):
    """Ends a daemon in the middle of a random operation on its files."""
    crash_by(FailingFiles(crashing.folder, draw.randint(1, 90)), crashing, draw, asks, alone)


def crash_in_a_write_of_the_ladder(crashing, draw, asks, alone, in_place=False):
    """Ends a daemon in the middle of a random operation on its ladder file. Most operations belong
    to a write: open, write and sync a temporary file, then rename it."""
    failing = FailingFiles(crashing.ladder, draw.randint(1, LADDER_OPERATIONS), in_place=in_place)
    crash_by(failing, crashing, draw, asks, alone)


def crash_by(failing, crashing, draw, asks, alone):
    try:
        server = crashing.start(failing.variables)
    except AssertionError:  # The daemon ended before it was ready.
        assert len(failing.operations()) == failing.nth
        crashing.counted["killed at the start"] += 1
        return

    def end():
        # If the daemon does not end at the operation, kill it after 2 s.
        try:
            server.process.wait(timeout=2)
            operation = failing.operations()[-1].split()[1]
            crashing.counted[f"{operation} of {failing.path.name}"] += 1
        except subprocess.TimeoutExpired:
            server.process.kill()

    played(crashing, draw, asks, alone, server, end)


def played(crashing, draw, asks, alone, server, end):
    ended = threading.Event()
    disturbing = threading.Thread(target=crashing.disturb,
                                  args=(server, random.Random(draw.getrandbits(64)), ended))
    disturbing.start()
    try:
        with Load(server.grpc, draw, asks) as load:
            end()
            server.process.wait(PATIENCE_S)
            load.stop()
            load.join()
    finally:
        ended.set()
        disturbing.join()
    server.await_end(-signal.SIGKILL)
    found = violations(load.calls, alone, ALLOWED, killed=True)
    assert not found, "\n".join(found)
    crashing.counted.update(call.ends[0][0] for call in load.calls)


CRASHES = (crash_at_any_time, crash_at_an_operation, crash_in_a_write_of_the_ladder)


def test_killed_daemon_leaves_complete_files_and_restarts(daemon, tmp_path, request,
                                                             first_seed):
    asks = drawn_asks(random.Random(first_seed))
    crashing = Crashing(daemon, tmp_path)
    server = crashing.start()
    alone = answers_alone(server.grpc, asks)
    server.stop()
    replayed = ""
    for run in range(request.config.getoption("--crash-runs")):
        seed = first_seed + run
        draw, crash = random.Random(seed), CRASHES[seed % len(CRASHES)]
        # One run in ten starts a new journal, which exists once the daemon is ready.
        if crash is crash_at_any_time and run % 10 < len(CRASHES):
            crashing.journal.unlink()
        try:
            crash(crashing, draw, asks, alone)
            replayed = crashing.check_files()
        except (AssertionError, ValueError) as failure:
            pytest.fail(f"--first-seed {seed} of {crash.__name__}: {failure}")
    # The restarted daemon has the saved ladder, and its files are complete.
    server = crashing.start()
    assert answers_alone(server.grpc, asks) == alone
    assert crashing.choose(server)
    server.stop()
    assert not list(crashing.folder.glob("ladder.json.tmp.*"))
    crashing.check_files()
    print(dict(crashing.counted), replayed)


@pytest.mark.parametrize("spoil", [
    lambda crashing: crashing.ladder.write_text("{"),
    lambda crashing: crashing.kept.clear(),
    lambda crashing: crashing.journal.write_bytes(crashing.journal.read_bytes()[:-200] + b"}\n"),
    lambda crashing: crashing.repeat_an_answer(),
], ids=["a torn ladder", "a lost choice", "a torn journal", "an answer given twice"])
def test_check_finds_damaged_files(daemon, tmp_path, spoil):
    crashing = Crashing(daemon, tmp_path)
    server = crashing.start()
    draw = random.Random(1)
    with Load(server.grpc, draw, drawn_asks(draw), most=3) as load:
        load.join()
    crashing.counted["kept"] += crashing.choose(server)
    server.stop()
    crashing.check_files()
    spoil(crashing)
    with pytest.raises((AssertionError, ValueError)):
        crashing.check_files()


def test_check_finds_a_ladder_that_is_written_in_place(daemon, tmp_path):
    crashing = Crashing(daemon, tmp_path)
    asks = drawn_asks(random.Random(1))
    server = crashing.start()
    alone = answers_alone(server.grpc, asks)
    server.stop()
    # Only a run that ends in the middle of a write fails; a third of the operations are writes.
    with pytest.raises(ValueError):
        for run in range(40):
            crash_in_a_write_of_the_ladder(crashing, random.Random(run), asks, alone, in_place=True)
            crashing.check_files()
