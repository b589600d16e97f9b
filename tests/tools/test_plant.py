"""Tests how tools/plant.py chooses and runs the test suites for a fault."""

import dataclasses
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import plant
from faults import Fault

FOREVER = float("inf")


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Returns a function that judges three faults with suites, which are shell commands by name. It
    returns the judge and the pairs of fault and suite that ran."""
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(plant, "ROOT", tmp_path)
    monkeypatch.setattr(plant, "SUITES", tmp_path / "suites.json")
    monkeypatch.setattr(plant, "VERDICTS", tmp_path / "verdicts.json")
    faults = [Fault("a.cc", 1, 0, 1, "bound", "a", "b", number=number) for number in (1, 2, 3)]
    (tmp_path / plant.FAULTS).write_text(json.dumps(list(map(dataclasses.asdict, faults))))
    log = tmp_path / "log"

    def judge(suites, ends=FOREVER):
        log.write_text("")
        made = [plant.Suite(name, ["bash", "-c", f"echo $SLUICE_PLANTED {name} >>{log}; {command}"])
                for name, command in suites.items()]
        judge = plant.Judge(made, jobs=1, ends=ends)
        if judge.measure():
            judge.judge()
        return judge, [line for line in log.read_text().splitlines() if line[0] != "0"]

    return judge


def reach(*numbers):
    """Returns a command that marks the faults as reached if SLUICE_REACHED is set."""
    marks = (f"printf '\\1' | dd of=$SLUICE_REACHED bs=1 seek={number} conv=notrunc status=none"
             for number in numbers)
    return f"if [ \"$SLUICE_REACHED\" ]; then {'; '.join(marks)}; fi"


def test_fastest_suites_that_reach_a_fault_run_first(tried):
    judge, runs = tried({"slow": f"{reach(1, 2)}; for i in {{1..200000}}; do :; done",
                         "quick": f"{reach(1, 2)}; [ $SLUICE_PLANTED != 1 ]",
                         "elsewhere": reach(3)})
    assert runs == ["1 quick", "2 quick", "2 slow", "3 elsewhere"]
    assert [fault.number for fault in judge.killed()] == [1]
    assert [fault.number for fault in judge.survivors()] == [2, 3]


def test_only_changed_suites_retry_survivors(tried):
    tried({"old": reach(1, 2), "changed@1": f"{reach(1, 2)}; [ $SLUICE_PLANTED != 2 ]"})
    judge, runs = tried({"old": reach(1, 2), "changed@2": f"{reach(1)}; [ $SLUICE_PLANTED != 1 ]"})
    assert runs == ["1 changed@2"]
    assert [fault.number for fault in judge.killed()] == [1, 2]
    assert [fault.number for fault in judge.survivors()] == [3]  # no suite reaches it


def test_suite_that_fails_without_a_fault_is_not_used(tried):
    judge, runs = tried({"broken": f"{reach(1)}; false"})
    assert runs == []
    assert judge.killed() == []


def test_no_suite_starts_after_the_time_limit(tried):
    tried({"quick": reach(1)})
    judge, runs = tried({"quick": reach(1), "new": reach(2)}, ends=0)
    assert runs == []
    assert judge.killed() == []


def test_crashed_suite_is_named(tried):
    judge, _ = tried({"crashing": f"{reach(1)}; [ $SLUICE_PLANTED != 1 ] || kill -SEGV $$"})
    assert judge.verdicts["1"] == {"killed": "crashing crashes"}


def test_statement_is_replaced_by_a_statement():
    fault = Fault("a.cc", 1, 0, 1, "a kind", "if (a) f();", "f();", number=3)
    assert fault.text() == "if (SluicePlanted(3)) { f(); } else { if (a) f(); }"
    assert dataclasses.replace(fault, before="a", after="b").text() == (
        "(SluicePlanted(3) ? (b) : (a))")


def test_the_named_faults_are_in_the_sources():
    found = plant.named(plant.NAMED)
    assert len(found) >= 4 and [fault.number for fault in found] == [*range(1, len(found) + 1)]
    for fault in found:
        statements = [text.endswith(";") for text in (fault.before, fault.after)]
        assert statements == [fault.before.startswith(("if ", "return "))] * 2, fault
        data = (pathlib.Path(__file__).parents[2] / fault.path).read_bytes()
        assert data[fault.begin:fault.end].decode() == fault.before != fault.after
