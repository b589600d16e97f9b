#!/usr/bin/env python3
"""Counts constructions that readers of the project had to read twice, in each folder and document.

Reads comments, docstrings, messages, names of tests and Markdown. CONSTRUCTIONS names what counts.
tests/prose_budgets.txt has the marks per 1,000 words that each folder and document may have. The
check fails if a budget is exceeded, or if a budget is higher than at the merge base with main.
"""

import argparse
import ast
import bisect
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_lines

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGETS = "tests/prose_budgets.txt"
# Data, texts of others, and results of programs. This file and its test name the constructions.
LEFT_OUT = re.compile(
    r"^(LICENSE|loadtest/results/|models/.*\.(txt|json)$|tests/fuzz/corpus/"
    r"|tests/goldens/(?!.*\.(py|md)$)|tests/prose_budgets\.txt$|tools/check_prose\.py$"
    r"|tests/tools/test_check_prose\.py$|.*/expected[^/]*$)")
CODE = {".cc", ".cu", ".h", ".inc", ".js", ".css", ".proto", ".in"}
HASHES = {".cmake", ".sh", ".yaml", ".yml", ".service", ".toml"}
SHORT_DOCUMENT = 500  # words; a document below may have two marks
MIN_WORDS_OF_MESSAGE = 3
MAX_BUDGET = 1000.0

# People may want, know, ask and tell.
PERSON = (r"(?:you|we|i|they|who|users?|callers?|clients?|people|readers?|operators?|engineers?"
          r"|developers?|customers?|adopters?|one|to|not|n't|owners?)")
CONSTRUCTIONS = {
    "alone": r"(?<!stand )(?<!stands )(?<!leave )(?<!leaves )(?<!left )(?<!let )(?<!run )"
             r"(?<!runs )(?<!leave it )(?<!leaves it )(?<!leave them )\balone\b",
    "behind": r"\bbehind\b(?!(?: an?| the| its| your| one| some)? ?(?:\w+ )?(?:proxy|proxies|Envoy"
              r"|gateways?|load balancers?|ingress|walls?|flags?|locks?|firewall|interface|NAT"
              r"|service|schedule))",
    "that of": r"\b(?:that|those|these|this) of\b(?! course)",
    "of which": r"\b(?:of|by|with|for|to|from|on|at|under|after|beyond|behind|through|over|between"
                r"|within|against|into) (?:which|whose|whom)\b",
    "so many": r"\bso (?:many|long|soon|few|much|often|large|small)\b(?! that\b)(?! as\b)",
    "what": r"\b(?:what|whatever|whoever|whichever)\b(?! to\b)(?! is new\b)(?! if\b)",
    "wants": r"\b(?:wants?|wanted|wanting|knows|knew|known by|tells?|told|telling|says|said"
             r"|saying|asks|asking|is asked|are asked)\b",
    "nobody": r"\b(?:nobody|everybody|somebody|no one|anybody)\b",
    "is no": r"(?<!there )(?<!There )\b(?:is|are|was|were) (?:no(?! longer\b| more\b| less\b"
             r"| \w+er than\b| doubt\b)|none)\b",
    "as many as": r"\bas (?:many|long|few|much|often|large|small) as\b",
    "dialect": r"\b(?:anew|likewise|besides|beside|alike|meanwhile|thereof|begun|shall"
               r"|whence|whither|wherein|whereby|whereof|therein|herein|hereby|lest|albeit|amid"
               r"|nigh|ere|thrice|in vain|turned away|ask anew|for a moment|goes? on with"
               r"|g[ai]ves? back|given back|lies? there|in company|waiting for company|so to speak"
               r"|of its own accord|worth speaking of|takes? no harm|comes? of)\b",
    "if inside": r"\bif (?:of|for|to|with|from|by|in) (?:each|one|any|all|every|which)\b"
                 r"|\b(?:which|that|who),? if [^.,;:]{3,80},",
}
COMPILED = {name: re.compile(pattern, re.I) for name, pattern in CONSTRUCTIONS.items()}
AFTER_PERSON = re.compile(rf"(?:\b|n't\s|^){PERSON}(?:\s+(?:may|might|also|only|really|can|could"
                          r"|would|do|does|did|have|has|had|often|already))?\s+$", re.I)
QUESTION = re.compile(r"^[^.!:;]*\?")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")


def words_of_name(name):
    """Returns the words of a test's name: CamelCase or snake_case."""
    if "_" in name:
        return name.replace("_", " ").strip().lower()
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)).lower()


C_TOKEN = re.compile(
    r"//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|R\"(?P<tag>\w*)\((?P<raw>.*?)\)(?P=tag)\""
    r"|\"(?P<text>(?:[^\"\\\n]|\\.)*)\"|'(?:[^'\\\n]|\\.)+'|`(?P<tick>(?:[^`\\]|\\.)*)`", re.S)
C_TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.M)


def clean(text):
    """Returns the text of a string literal with escapes replaced by spaces."""
    return re.sub(r"\\[nt\"']|\\\n|\{[^{}]*\}|%[a-z]|\$\d|<[^<>]{0,60}>", " ", text)


def passages_of_c(text, comments=True):
    """Yields (line, passage) of C++, CUDA, JavaScript, CSS and protocol files. Leaves out comments
    and names of tests if `comments` is false.
    """
    starts = [0] + [m.end() for m in re.finditer("\n", text)]

    def line_of(offset):
        return bisect.bisect_right(starts, offset)

    block, block_line, last, kind = "", 0, -2, ""

    def flush():
        nonlocal block
        done, block = block, ""
        return [(block_line, done)] if done.strip() else []

    for match in C_TOKEN.finditer(text):
        line = line_of(match.start())
        if not comments and (match["line"] is not None or match["block"] is not None):
            continue
        if match["line"] is not None:
            new, now = match["line"], "comment"
        elif match["block"] is not None:
            new, now = re.sub(r"^\s*\*", "", match["block"], flags=re.M), "comment"
        elif match["raw"] is not None or match["text"] is not None or match["tick"] is not None:
            new, now = clean(match["raw"] or match["text"] or match["tick"] or ""), "text"
            before = text[starts[line - 1]:match.start()]
            if before.lstrip().startswith(("#include", "import ")) or (
                    match["raw"] and re.search(r"[{};]\s*\n", match["raw"])):
                continue
        else:
            continue
        # Lines of one comment, and literals that the compiler joins, are one passage.
        joined = line - last <= 1 and now == kind and (
            now == "comment" or not text[end:match.start()].strip())
        if not joined:
            yield from flush()
            block_line = line
        block += ("\n" * (line - block_line - block.count("\n")) if joined else "") + new
        last, kind, end = line_of(match.end()), now, match.end()
    yield from flush()
    for match in C_TEST.finditer(text) if comments else ():
        yield line_of(match.start(2)), words_of_name(match[2])


def passages_of_python(text, comments=True):
    """Yields (line, passage): string literals, and if `comments` is true also comments, docstrings
    and names of tests.
    """
    block, block_line, last = "", 0, -2
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline) if comments else ():
            if token.type == tokenize.COMMENT:
                line = token.start[0]
                if line - last > 1:
                    if block:
                        yield block_line, block
                    block, block_line = "", line
                block += "\n" * bool(block) + token.string.lstrip("#!")
                last = line
        if block:
            yield block_line, block
        tree = ast.parse(text)
    except (SyntaxError, tokenize.TokenError):
        return
    for node in ast.walk(tree):
        if not comments and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.seen = True  # a docstring
        elif isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "X" for p in node.values]
            yield node.lineno, clean("".join(map(str, parts)))
            for part in node.values:
                part.seen = True
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not getattr(node, "seen", False):
                yield node.lineno, clean(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if comments and node.name.startswith("test_"):
                yield node.lineno, words_of_name(node.name[5:])


def passages_of_hashes(text):
    """Yields (line, passage) of scripts and configuration: comments and texts with spaces."""
    block, block_line = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r"^\s*#+!?(.*)", line) or re.search(r"\s#\s(.*)", line)
        whole = re.match(r"^\s*#", line)
        if block and not whole:
            yield block_line, block
            block = ""
        if comment and whole:
            block_line = block_line if block else number
            block += "\n" * bool(block) + comment[1]
        elif comment:
            yield number, comment[1]
        if not whole:
            value = re.match(r"^\s*(?:- )?[\w.-]+:\s+([^\"'{\[#&*|>].*)", line)
            if value:
                yield number, clean(value[1])
            for literal in re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'", line):
                yield number, clean(literal[0] or literal[1])
    if block:
        yield block_line, block


def passages_of_markdown(text):
    """Yields (line, passage) of Markdown without code, addresses and HTML comments."""
    text = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r"^(\s*)(```|~~~).*?^\s*\2\s*$", lambda m: "\n" * m[0].count("\n"), text,
                  flags=re.S | re.M)
    text = re.sub(r"`[^`\n]*(?:\n[^`\n]+)?`", lambda m: "X" + "\n" * m[0].count("\n"), text)
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    block, block_line = "", 1
    for number, line in enumerate(text.splitlines() + [""], 1):
        ends = not line.strip() or line.lstrip().startswith(("|", "#", "- ", "* "))
        if ends and block.strip():
            yield block_line, block
        if ends:
            block = ""
        if not block:
            block_line = number
        block += "\n" * bool(block) + line
    if block.strip():
        yield block_line, block


def passages(name, text):
    """Yields (line, passage) of a file that is read by its name."""
    suffix = pathlib.PurePath(name).suffix
    if suffix in CODE:
        found = passages_of_c(text)
    elif suffix == ".py":
        found = passages_of_python(text)
    elif suffix == ".md":
        yield from passages_of_markdown(text)
        return
    elif suffix in HASHES or text.startswith("#!") or name.endswith(
            ("CMakeLists.txt", "Dockerfile", ".clangd", ".clang-tidy")):
        found = passages_of_hashes(text)
        if text.startswith("#!") and "python" in text.partition("\n")[0]:
            found = passages_of_python(text)
    else:
        return
    for line, passage in found:
        if len(WORD.findall(passage)) >= MIN_WORDS_OF_MESSAGE:
            yield line, passage


def marks(passage):
    """Yields (index of the line, construction, matched text) of a passage."""
    lines = [line.strip() for line in passage.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    passage = " ".join(lines)
    for name, pattern in COMPILED.items():
        for match in pattern.finditer(passage):
            if name == "wants" and AFTER_PERSON.search(passage[:match.start()]):
                continue
            if name == "what":
                begin = max(passage.rfind(mark, 0, match.start()) for mark in ".!:;")
                if QUESTION.match(passage[begin + 1:]):
                    continue
            yield bisect.bisect_right(starts, match.start()) - 1, name, match[0]


def texts(root):
    """Returns the names of the project's files whose text counts."""
    return [name for name in check_lines.files(root) if not LEFT_OUT.match(name)]


def place_of(name):
    """Returns the document or folder that a file counts for."""
    if name.endswith(".md"):
        return name
    parts = name.split("/")
    return "/".join(parts[:min(2, len(parts) - 1)]) or "."


class Count:
    """The words and marks of a folder or document."""

    def __init__(self):
        self.words = 0
        self.found = []  # (file, line, construction, text)

    def rate(self):
        return 1000 * len(self.found) / max(self.words, 1)

    def over(self, budget):
        short = self.words < SHORT_DOCUMENT and len(self.found) <= 2
        return not short and self.rate() > budget + 0.05


def count(root, names):
    """Returns {place: Count}."""
    places = collections.defaultdict(Count)
    for name in names:
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        of_place = None
        for line, passage in passages(name, text):
            of_place = of_place or places[place_of(name)]
            of_place.words += len(WORD.findall(passage))
            for index, construction, matched in marks(passage):
                of_place.found.append((name, line + index, construction, matched))
    return places


def parse_budgets(text):
    """Returns {place: marks per 1,000 words}."""
    lines = (line.split() for line in text.splitlines() if line and line[0] != "#")
    return {place: float(budget) for budget, place in lines}


def budgets_at_merge_base(root):
    """Returns the budgets at the merge base with main, or {} if there are none."""
    for branch in ("origin/main", "main"):
        base = subprocess.run(["git", "merge-base", "HEAD", branch], cwd=root,
                              capture_output=True, text=True)
        if base.returncode == 0:
            old = subprocess.run(["git", "show", f"{base.stdout.strip()}:{BUDGETS}"], cwd=root,
                                 capture_output=True, text=True)
            return parse_budgets(old.stdout) if old.returncode == 0 else {}
    return {}


def problems(places, budgets, earlier, highest):
    """Yields a line for each place over its budget, and for each budget that rose."""
    for place in sorted(places):
        budget = budgets.get(place, highest)
        if places[place].over(budget):
            yield (f"{place}: {places[place].rate():.1f} marks per 1,000 words, more than "
                   f"{budget:g}; to see them: tools/check_prose.py --list {place}")
    for place, budget in sorted(budgets.items()):
        if budget > min(earlier.get(place, MAX_BUDGET), MAX_BUDGET):
            yield f"{BUDGETS}: {place} rose from {earlier[place]:g} to {budget:g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", metavar="PLACE", help="print the marks of a folder or file")
    parser.add_argument("--table", action="store_true", help="print words and marks by place")
    parser.add_argument("--kinds", action="store_true", help="print marks by construction")
    parser.add_argument("--lower", action="store_true", help=f"lower the budgets in {BUDGETS}")
    arguments = parser.parse_args()

    places = count(ROOT, texts(ROOT))
    if arguments.list:
        wanted = arguments.list.rstrip("/")
        for of_place in places.values():
            for name, line, construction, text in of_place.found:
                if name == wanted or name.startswith(wanted + "/") or place_of(name) == wanted:
                    print(f"{name}:{line}: {construction}: {text}")
        return 0
    if arguments.kinds:
        kinds = collections.Counter(found[2] for c in places.values() for found in c.found)
        for kind, number in kinds.most_common():
            print(f"{number:6} {kind}")
        return 0
    if arguments.table:
        for place, of_place in sorted(places.items(), key=lambda item: -item[1].rate()):
            print(f"{of_place.rate():6.1f} {len(of_place.found):6} {of_place.words:7} {place}")
        words = sum(c.words for c in places.values())
        found = sum(len(c.found) for c in places.values())
        print(f"{1000 * found / words:6.1f} {found:6} {words:7} in all")
        return 0

    path = ROOT / BUDGETS
    budgets = parse_budgets(path.read_text()) if path.exists() else {}
    if arguments.lower:
        lowered = {p: min(budgets.get(p, MAX_BUDGET), max(4.0, round(c.rate() + 0.05, 1)))
                   for p, c in places.items()}
        head = "# Marks per 1,000 words that tools/check_prose.py allows. They only fall.\n"
        lines = [f"{lowered[p]:6.1f} {p}\n" for p in sorted(lowered)]
        path.write_text(head + "".join(lines))
        return 0
    found = list(problems(places, budgets, budgets_at_merge_base(ROOT), 4.0))
    print("\n".join(found) or f"the prose of {len(places)} folders and documents is within budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
