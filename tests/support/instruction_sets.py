"""The instruction sets that tests may use, and how a test states that it needs one.

The environment variable SLUICE_TEST_ISA hides instruction sets from the daemon and the tools (see
kernels/cpu/profile.h). The functions here hide the same sets.
"""

import ast
import functools
import os
import pathlib
import re

import memory_cgroup

VARIABLE = "SLUICE_TEST_ISA"
# The sets that a test may need, with the flags of /proc/cpuinfo that each set requires. A skipped
# test counts as failed unless it needs one of these sets and the set is missing.
AVX2 = {"avx2", "fma"}
AVX_VNNI = AVX2 | {"avx_vnni"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
AVX512_BF16 = AVX512 | {"avx512_bf16"}
SETS = {"AVX2": AVX2, "AVX-VNNI": AVX_VNNI, "AVX-512": AVX512, "AVX-512 BF16": AVX512_BF16,
        "AMX": AVX512_BF16 | {"amx_tile", "amx_bf16"}}
# Also a need. ./test writes the file if a mirror lacks them.
ARM64_PACKAGES = "the packages for ARM64"
NO_ARM64 = pathlib.Path(__file__).resolve().parents[2] / "build" / "no-arm64"
# The sets that each value of the variable keeps, as in kernels/cpu/profile.cc. The last one is the
# set that a processor must have for a run under this cap.
CAPS = {"": tuple(SETS), "avx2": ("AVX2",), "avxvnni": ("AVX2", "AVX-VNNI"),
        "avx512": ("AVX2", "AVX-512")}
# The ways in which a test names a profile or an instruction set.
NAMES_PROFILE = re.compile(r"(?i:cpu[._-]profile)|--profile|\bcpu-(portable|avx|amx)|\bavx512"
                           rf"|[\"'](sluice )?bf16[\"']|\bneeds\([\"']|{VARIABLE}")


def cap():
    """Returns the value of the variable. Raises ValueError if it is unknown."""
    value = os.environ.get(VARIABLE, "")
    if value not in CAPS:
        raise ValueError(f"environment {VARIABLE}: '{value}' is unknown; "
                         "expected avx2, avxvnni or avx512")
    return value


@functools.cache
def processor_flags():
    """Returns the flags of /proc/cpuinfo."""
    found = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return frozenset(found[1].split()) if found else frozenset()


def has(name, flags=None, under=None):
    """Returns whether a processor has the set `name`: this one, or one with `flags`. The cap is
    `under`, or the cap in the environment.
    """
    flags = processor_flags() if flags is None else flags
    return SETS[name] <= set(flags) and name in CAPS[cap() if under is None else under]


def is_missing(name):
    """Returns whether `name` is something that a test may need, and this machine lacks it."""
    if name == memory_cgroup.NEED:
        return memory_cgroup.parent() is None
    if name == ARM64_PACKAGES:
        return NO_ARM64.exists()
    return name in SETS and not has(name)


def is_not_applicable(reason):
    """Returns whether a test may be skipped for this reason."""
    found = re.fullmatch(r"not applicable: needs (.+)", reason)
    return found is not None and is_missing(found[1])


def needs(name):
    """Returns a mark that skips a test if this machine lacks `name`, a set or another need."""
    import pytest  # tools/count_tests.py runs without it.

    return pytest.mark.skipif(is_missing(name), reason=f"not applicable: needs {name}")


def stated_need(command):
    """Returns the set that a documented command states in a comment at its end, as in
    `# needs AVX-512 BF16`, or None. Raises ValueError if the set is unknown.
    """
    found = re.search(r"#.*\bneeds (.+)$", command)
    if found and found[1] not in SETS:
        raise ValueError(f"'{command}' needs '{found[1]}'; expected one of {', '.join(SETS)}")
    return found and found[1]


@functools.cache
def named_in(path):
    """Returns the test functions of a module that name a profile, or None if the rest of the module
    names one. Helpers, constants and fixtures belong to the rest.
    """
    text = path.read_text()
    lines, tests = text.splitlines(), set()
    for node in ast.parse(text).body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        if not NAMES_PROFILE.search("\n".join(lines[first - 1:node.end_lineno])):
            continue
        if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
            return None
        tests.add(node.name)
    return tests


def names_profile(item):
    """Returns whether the source of a test, the rest of its module or its parameters name one."""
    tests = named_in(item.path)
    return tests is None or item.originalname in tests or bool(NAMES_PROFILE.search(item.name))


def pytest_configure(config):
    """Registers the mark. Raises ValueError if the cap is unknown."""
    config.addinivalue_line("markers", "names_profile: a test that names a profile of the CPU")
    cap()


def pytest_collection_modifyitems(items):
    """Marks the tests that name a profile. Skips every test if the cap cannot be applied because
    the processor lacks the cap's own instruction set.
    """
    for item in items:
        if names_profile(item):
            item.add_marker("names_profile")
        if cap():
            item.add_marker(needs(CAPS[cap()][-1]))
