#!/usr/bin/env python3
"""Divides the sources of a target into the parts of a unity build.

Sources of one part are compiled together, so they share one unnamed namespace. Two sources share a
part only if no name that one of them declares in its unnamed namespace occurs in the other or is
declared by a header that the other includes. Prints the number of each source's part, in the order
of the arguments, separated by semicolons.
"""

import argparse
import functools
import pathlib
import re

# Comments, string literals and character literals.
NO_CODE = re.compile(r'//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
# clang-format writes the comment at the end of a namespace.
END = re.compile(r"^\}  // namespace$", re.M)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^END$", re.M | re.S)
# A name without a namespace or an object before it.
NAME = re.compile(r"(?<![\w:.>])[A-Za-z_]\w*")
# The declared name on the first line of a declaration. Declarations are not indented. Names of
# types, functions and constants start with a capital letter or with k.
DECLARED = re.compile(r"\b(k?[A-Z]\w*)(?: final)?(?= ?(?:[={(;[]|:[^:]|$))")
TYPE = re.compile(r"^(?:struct|class|union|enum class|enum) (\w+)[^;]*$", re.M)
# `using testing::Each;` and `using Each = testing::Each;`. Several sources may repeat it.
IMPORTED = re.compile(r"^using (?:(\w+) = )?(?:[\w:]*::)?(?(1)\1|(\w+));$", re.M)
FOREIGN = re.compile(
    r"^using (?:\w+ = )?(?:::)?(?:absl|google|grpc|nlohmann|std)::[\w:]*?(\w+);$", re.M)
# sluice::testing hides ::testing.
TESTING = re.compile(r"^namespace sluice::testing\b", re.M)
MACRO = re.compile(r"([A-Z][A-Z0-9_]*)\((\w+)")
TESTS = ("TEST", "INSTANTIATE")
INCLUDED = re.compile(r'^#include "(.*)"$', re.M)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def names_of_lines(code):
    """Yields the names that the lines of a namespace declare."""
    for line in code.splitlines():
        if not line or not (line[0].isalpha() or line[0] == "_") or IMPORTED.match(line):
            continue
        if macro := MACRO.match(line):
            if not macro[1].startswith(TESTS):
                yield macro[2]
        elif name := DECLARED.search(line):
            yield name[1]


def declared_names(code):
    """Returns the types that a source declares, and all names in its unnamed namespaces."""
    return {*TYPE.findall(code), *names_of_lines("\n".join(UNNAMED.findall(code)))}


@functools.cache
def read(path):
    """Returns the code of a file, without comments and literals, and the project's headers that it
    includes itself."""
    text = path.read_text(encoding="utf-8")
    headers = (ROOT / name for name in INCLUDED.findall(text))
    return NO_CODE.sub(" ", END.sub("END", text)), tuple(filter(pathlib.Path.is_file, headers))


@functools.cache
def names_of_headers(path):
    """Returns the names that are declared by the headers that a file includes."""
    names = set()
    for header in read(path)[1]:
        names.update(names_of_lines(read(header)[0]), names_of_headers(header))
    return frozenset(names)


def headers_of_tests(path):
    """Returns the code of the test headers that a file includes."""
    headers = [header for header in read(path)[1] if header.is_relative_to(ROOT / "tests")]
    return "\n".join(read(header)[0] + headers_of_tests(header) for header in headers)


class Source:
    def __init__(self, path):
        code = read(path)[0]
        everything = code + headers_of_tests(path)
        self.size = len(code)
        self.used = {*NAME.findall(everything), *names_of_headers(path)}
        self.declared = declared_names(code)
        self.visible = self.declared | names_of_headers(path)
        self.foreign = set(FOREIGN.findall(code))
        self.imported = {one or other for one, other in IMPORTED.findall(code)}
        if TESTING.search(everything):
            self.imported.add("testing")

    def conflicts(self, other):
        return self.disturbs(other) or other.disturbs(self)

    def disturbs(self, other):
        return (self.declared & (other.used | other.imported)
                or self.foreign & other.visible
                or {name for name in self.imported - other.imported if name.islower()} & other.used)


def parts_of(sources, size):
    """Returns the part of each source. A part has about `size` characters of code."""
    count = max(1, -(-sum(source.size for source in sources) // size))
    parts = [[] for _ in range(count)]
    numbers = {}
    for source in sorted(sources, key=lambda source: -source.size):
        ordered = sorted(range(len(parts)),
                         key=lambda part: sum(other.size for other in parts[part]))
        part = next((part for part in ordered if not any(map(source.conflicts, parts[part]))), None)
        if part is None:
            part = len(parts)
            parts.append([])
        parts[part].append(source)
        numbers[source] = part
    return [numbers[source] for source in sources]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=150_000, help="characters of code per part")
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    print(*parts_of([Source(path) for path in options.sources], options.size), sep=";", end="")


if __name__ == "__main__":
    main()
