"""Finds places in sources where tools/plant.py can plant a fault.

Kinds of faults: a comparison includes or excludes the bound, or is reversed; min becomes max; `and`
becomes `or`; a sum loses its + 1 or - 1; a statement that sets or resets something is removed; two
arguments of the same type are swapped. Constant expressions and headers are not changed.
"""

import bisect
import concurrent.futures
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||",
         "||": "&&"}
DROPPED_CALLS = {"clear", "reset", "erase", "pop_back", "pop_front"}


@dataclasses.dataclass
class Fault:
    path: str
    line: int
    begin: int  # bytes of the file
    end: int
    kind: str
    before: str
    after: str  # in place of `before`
    statement: bool = False  # whether it is a removed statement
    number: int = 0

    def text(self):
        if self.path.endswith(".py"):
            return (f"(({self.after}) if __import__('planted').planted({self.number}) "
                    f"else ({self.before}))")
        if self.statement:
            return f"if (!SluicePlanted({self.number})) {{ {self.before} }}"
        if self.before.endswith(";"):
            return f"if (SluicePlanted({self.number})) {{ {self.after} }} else {{ {self.before} }}"
        return f"(SluicePlanted({self.number}) ? ({self.after}) : ({self.before}))"

    def __str__(self):
        shown = "" if self.statement else f" -> {one_line(self.after)}"
        return f"{self.path}:{self.line}: {self.kind}: {one_line(self.before)}{shown}"


def one_line(text):
    return re.sub(r"\s+", " ", text)[:120]


def libclang():
    try:
        import clang.cindex
    except ImportError:
        sys.exit("plant.py needs libclang: pip install libclang==18.1.1")
    return clang.cindex


class Finder:
    """Finds the places in one source where a fault can be planted."""

    def __init__(self, cindex, path, arguments):
        self._kinds = cindex.CursorKind
        self._unknown = (cindex.TypeKind.INVALID, cindex.TypeKind.DEPENDENT)
        self._path = path
        self._data = (ROOT / path).read_bytes()
        self._unit = cindex.Index.create().parse(str(ROOT / path), args=arguments)
        self._lines = [match.start() for match in re.finditer(rb"\n", self._data)]
        self.found = []

    def run(self):
        source = str(ROOT / self._path)
        for cursor in self._unit.cursor.get_children():
            file = cursor.location.file
            if file is not None and file.name == source:
                self._walk(cursor, None)
        return self.found

    def _slice(self, begin, end):
        return self._data[begin:end].decode()

    def _walk(self, cursor, parent):
        kinds = self._kinds
        extent = cursor.extent
        if cursor.kind in (kinds.STATIC_ASSERT, kinds.CASE_STMT, kinds.ENUM_DECL):
            return
        if cursor.kind in (kinds.FUNCTION_DECL, kinds.CXX_METHOD, kinds.VAR_DECL):
            head = self._slice(extent.start.offset, extent.end.offset).split("{")[0]
            if "constexpr" in head or (cursor.kind == kinds.VAR_DECL and parent is not None and
                                       parent.kind == kinds.NAMESPACE):
                return
        self._look(cursor, parent)
        for child in cursor.get_children():
            self._walk(child, cursor)

    def _add(self, cursor, kind, after, statement=False, end=None):
        begin, end = cursor.extent.start.offset, end or cursor.extent.end.offset
        before = self._slice(begin, end)
        if "SLUICE_" in before or "{" in before and statement or not before.strip():
            return
        line = bisect.bisect_right(self._lines, begin) + 1
        self.found.append(Fault(self._path, line, begin, end, kind, before, after, statement))

    def _look(self, cursor, parent):
        kinds = self._kinds
        if parent is not None and parent.kind == kinds.COMPOUND_STMT:
            self._statement(cursor)
        if cursor.kind == kinds.BINARY_OPERATOR:
            self._operator(cursor)
        elif cursor.kind == kinds.CALL_EXPR:
            self._call(cursor)

    def _operator(self, cursor):
        parts = list(cursor.get_children())
        if len(parts) != 2:
            return
        left, right = parts
        operator = self._slice(left.extent.end.offset, right.extent.start.offset).strip()
        first = self._slice(left.extent.start.offset, left.extent.end.offset)
        second = self._slice(right.extent.start.offset, right.extent.end.offset)
        if operator in SWAPS:
            self._add(cursor, "comparison" if len(operator) < 3 and operator not in ("&&", "||")
                      else "condition", f"{first} {SWAPS[operator]} {second}")
        elif operator in ("+", "-") and second == "1":
            self._add(cursor, "bound", first)

    def _call(self, cursor):
        arguments = list(cursor.get_arguments())
        if len(arguments) < 2 or any(each is None for each in arguments):
            return
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self._slice(begin, end)
        if "std::move" in text or not text.endswith(")"):
            return
        if cursor.spelling in ("min", "max"):
            other = "max" if cursor.spelling == "min" else "min"
            found = re.match(rf"(std::(ranges::)?){cursor.spelling}\b", text)
            if found:
                self._add(cursor, "bound", found[1] + other + text[found.end():])
            return
        for one, two in zip(arguments, arguments[1:]):
            # Two types that the parser could not determine are not considered equal.
            same = (one.type.get_canonical().kind not in self._unknown
                    and one.type.get_canonical().spelling == two.type.get_canonical().spelling)
            spans = [(each.extent.start.offset, each.extent.end.offset) for each in (one, two)]
            texts = [self._slice(*span) for span in spans]
            if (not same or texts[0] == texts[1] or not all(texts) or "{" in "".join(texts)
                    or not begin < spans[0][0] <= spans[0][1] < spans[1][0] <= spans[1][1] < end):
                continue
            between = self._slice(spans[0][1], spans[1][0])
            if between.strip() != ",":
                continue
            swapped = (self._slice(begin, spans[0][0]) + texts[1] + between + texts[0]
                       + self._slice(spans[1][1], end))
            return self._add(cursor, "arguments", swapped)

    def _statement(self, cursor):
        kinds = self._kinds
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        stop = re.match(rb"\s*;", self._data[end:end + 20])
        if stop is None:
            return
        text = self._slice(begin, end)
        parts = list(cursor.get_children())
        sets = (cursor.kind == kinds.COMPOUND_ASSIGNMENT_OPERATOR
                or (cursor.kind == kinds.BINARY_OPERATOR and len(parts) == 2 and
                    self._slice(parts[0].extent.end.offset,
                                parts[1].extent.start.offset).strip() == "=")
                or (cursor.kind == kinds.UNARY_OPERATOR and ("++" in text or "--" in text))
                or (cursor.kind == kinds.CALL_EXPR and (cursor.spelling in DROPPED_CALLS
                                                        or cursor.spelling == "operator=")))
        if sets:
            self._add(cursor, "dropped", "", statement=True, end=end + stop.end())


def sources(folders):
    """Returns the sources in `folders` that the build folder `release` compiles."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.split()
    build = ROOT / "build" / "release"
    compiled = "".join(file.read_text() for file in [build / "compile_commands.json",
                                                     *build.glob("**/Unity/*.cxx")])
    return [path for path in listed if path.endswith(".cc") and f'/{path}"' in compiled]


def faults_of(path):
    newest = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/clang/*"))[-1]
    return Finder(libclang(), path, [
        "-std=c++20", f"-I{ROOT}", f"-I{ROOT}/build/release", "-resource-dir", str(newest),
        "-DSLUICE_SOURCE_DIR=\"\""]).run()


def candidates(paths):
    with concurrent.futures.ProcessPoolExecutor() as pool:
        return [fault for found in pool.map(faults_of, paths) for fault in found]


def named(path):
    """Returns the faults that a JSON file describes by their texts, in file order.

    Each text must occur once in its source, so that a change of the source cannot lose a fault.
    """
    chosen = []
    for each in json.loads(path.read_text()):
        data, before = (ROOT / each["path"]).read_text(), each["before"]
        if data.count(before) != 1:
            raise ValueError(f"{path.name}: {each['path']} has {before!r} {data.count(before)}"
                             " times; expected once. Change the text of the fault")
        begin = len(data[:data.index(before)].encode())
        chosen.append(Fault(each["path"], data[:data.index(before)].count("\n") + 1, begin,
                            begin + len(before.encode()), each["kind"], before, each["after"]))
    return numbered(chosen)


def drawn(found, count, seed):
    """Returns at most `count` faults that do not overlap, in file order."""
    draw = random.Random(seed)
    draw.shuffle(found)
    chosen = []
    for fault in found:
        if len(chosen) == count:
            break
        if not any(other.path == fault.path and fault.begin < other.end and other.begin < fault.end
                   for other in chosen):
            chosen.append(fault)
    return numbered(chosen)


def numbered(chosen):
    """Sorts faults by file and place, and numbers them from 1 on."""
    chosen.sort(key=lambda fault: (fault.path, fault.begin))
    for number, fault in enumerate(chosen, 1):
        fault.number = number
    return chosen
