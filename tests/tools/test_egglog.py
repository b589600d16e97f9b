"""Tests that egglog finds the same variants of attention as Sluice from the same rewrites.

tests/cascades/einsum/variants_of_*.txt has Sluice's variants, one term per line;
sluice_rewrites_test compares them with Sluice's e-graph. This file states the rewrites again as
egglog rules and enumerates egglog's e-graph.
"""

import pathlib

import pytest
from egglog import bindings

FOLDER = pathlib.Path(__file__).parents[1] / "cascades" / "einsum"
CAUSAL = "m+|p|<=p+|m|"
CAUSAL_CHUNKS = "3*c+j+|p|<=p+|m|"

SCHEMA = """
(datatype Term
  (Input String)
  (Constant String)
  (Unary String Term)
  (Map String Term Term)
  (Reduce String String Term String)  ; operation, rank, term, condition
  (Split Term)                        ; of m into 3 c + j
  (Fold Term Term)                    ; over c
  (Merge Term Term))
(relation lacks (Term String))         ; the rank is not free in the term
(relation condition-lacks (String String))
(relation split-condition (String String))
(relation split-input (String String))
"""

RANKS = """
(rule ((= t (Unary f a)) (lacks a r)) ((lacks t r)))
(rule ((= t (Map o a b)) (lacks a r) (lacks b r)) ((lacks t r)))
(rule ((= t (Reduce o r a w))) ((lacks t r)))
(rule ((= t (Reduce o s a w)) (lacks a r) (condition-lacks w r)) ((lacks t r)))
(rule ((= t (Split a))) ((lacks t "m")))
(rule ((= t (Split a)) (lacks a r) (!= r "c") (!= r "j")) ((lacks t r)))
(rule ((= t (Fold a b)) (lacks a r) (lacks b r)) ((lacks t r)))
(rule ((= t (Merge a b)) (lacks a r) (lacks b r)) ((lacks t r)))
"""

SPLIT = """
(rule ((= t (Split a)) (lacks a "m")) ((union t a)))
(rule ((= t (Split (Input a))) (split-input a b)) ((union t (Input b))))
(rewrite (Split (Unary f a)) (Unary f (Split a)))
(rewrite (Split (Map o a b)) (Map o (Split a) (Split b)))
(rule ((= t (Split (Reduce o r a w))) (!= r "m") (split-condition w v))
      ((union t (Reduce o r (Split a) v))))
"""

DIVISIONS = """
(rewrite (Map "x" (Map "/" a b) c) (Map "/" (Map "x" a c) b))
(rewrite (Map "x" c (Map "/" a b)) (Map "/" (Map "x" a c) b))
(rule ((= t (Reduce "+" r (Map "/" a b) w)) (lacks b r))
      ((union t (Map "/" (Reduce "+" r a w) b))))
(rewrite (Map "-" (Map "/" a d) (Map "/" b d)) (Map "/" (Map "-" a b) d))
"""

QUOTIENTS = """
(rewrite (Map "/" (Map "/" a b) c) (Map "/" (Map "/" a c) b))
(rewrite (Map "/" (Map "/" a b) c) (Map "/" a (Map "x" b c)))
"""

FACTORS = """
(rule ((= t (Reduce "+" r (Map "x" a b) w)) (lacks b r))
      ((union t (Map "x" (Reduce "+" r a w) b))))
(rule ((= t (Reduce "+" r (Map "x" b a) w)) (lacks b r))
      ((union t (Map "x" (Reduce "+" r a w) b))))
"""

# NUMERATOR stands for exp(s - max s), multiplied by x if there is a factor x.
CHUNKS = """
(rule ((= t (Reduce "+" "m" NUMERATOR w)) (= g (Reduce "max" "m" s w)) (split-condition w v))
      ((let l (Reduce "max" "j" (Split s) v))
       (let own (Unary "exp" (Map "-" (Split s) l)))
       (let all (Reduce "max" "c" l ""))
       (union t (Reduce "+" "c" (Map "x" (Unary "exp" (Map "-" l all))
                                         (Reduce "+" "j" PART v)) ""))))
"""

STREAMS = """
(rule ((= t (Reduce "+" "c" NUMERATOR "")) (= g (Reduce "max" "c" s "")))
      ((union t (Fold s FACTOR)) (union t (Merge s FACTOR))))
"""

SHIFTED = '(Unary "exp" (Map "-" s g))'
FORMS = [  # of NUMERATOR, PART and FACTOR
    (SHIFTED, "own", '(Constant "1")'),
    (f'(Map "x" {SHIFTED} x)', '(Map "x" own (Split x))', "x"),
    (f'(Map "x" x {SHIFTED})', '(Map "x" own (Split x))', "x"),
]

INPUTS = {  # each with its split form
    "Q[b,p,h,g,e]": None,
    "K[b,m,h,e]": "K[b,3*c+j,h,e]",
    "V[b,m,h,f]": "V[b,3*c+j,h,f]",
    "O[b,p,h,f]": None,
}


def free_ranks(text):
    return {rank for rank in "bhgpmefcj" if rank in text}


def facts(where):
    for condition in {"", where, where and CAUSAL_CHUNKS}:
        for rank in set("bhgpmefcj") - free_ranks(condition):
            yield f'(condition-lacks "{condition}" "{rank}")'
    yield f'(split-condition "{where}" "{where and CAUSAL_CHUNKS}")'
    yield '(split-condition "" "")'
    for whole, split in INPUTS.items():
        for name in filter(None, (whole, split)):
            for rank in set("bhgpmefcj") - free_ranks(name):
                yield f'(lacks (Input "{name}") "{rank}")'
        if split:
            yield f'(split-input "{whole}" "{split}")'


def attention(where):
    scores = '(Reduce "+" "e" (Map "x" (Input "Q[b,p,h,g,e]") (Input "K[b,m,h,e]")) "")'
    weights = f'(Unary "exp" (Map "-" {scores} (Reduce "max" "m" {scores} "{where}")))'
    shares = f'(Map "/" {weights} (Reduce "+" "m" {weights} "{where}"))'
    return f'(Reduce "+" "m" (Map "x" {shares} (Input "V[b,m,h,f]")) "{where}")'


def rules(chunks=CHUNKS):
    program = RANKS + SPLIT + DIVISIONS + FACTORS
    for numerator, part, factor in FORMS:
        for rule in (chunks, STREAMS):
            rule = rule.replace("NUMERATOR", numerator).replace("PART", part)
            program += rule.replace("FACTOR", factor)
    return program


class Classes:
    """The e-graph after saturation: the operations of each class."""

    def __init__(self, program, root):
        graph = bindings.EGraph()
        text = f"{program}\n(relation root (Term))\n(root {root})\n(run-schedule (saturate (run)))"
        graph.run_program(*graph.parse_program(text))
        self.nodes = {}
        frozen = graph.freeze()
        for name, function in frozen.functions.items():
            for row in function.rows:
                if name == "root":
                    self.root = row.inputs[0]
                elif name in SIGNATURES:
                    node = [name]
                    for kind, value in zip(SIGNATURES[name], row.inputs):
                        node.append(graph.value_to_string(value) if kind == "s" else value)
                    self.nodes.setdefault(row.output, []).append(tuple(node))

    def variants(self):
        """Returns the texts of all terms that take one operation from each class."""
        found = set()
        self.choose([self.root], {}, found)
        return sorted(found)

    def choose(self, unchosen, chosen, found):
        unchosen = [each for each in unchosen if each not in chosen]
        if not unchosen:
            found.add(self.text(self.root, chosen))
            return
        *rest, at = unchosen
        for node in self.nodes[at]:
            args = arguments(node)
            if node[0] == "Split" or any(self.reaches(arg, at, chosen) for arg in args):
                continue
            self.choose([*rest, *args], {**chosen, at: node}, found)

    def reaches(self, start, end, chosen):
        if start == end:
            return True
        return start in chosen and any(
            self.reaches(arg, end, chosen) for arg in arguments(chosen[start]))

    def text(self, at, chosen):
        node = chosen[at]
        args = " ".join(self.text(arg, chosen) for arg in arguments(node))
        match node[0]:
            case "Input" | "Constant":
                return node[1]
            case "Unary" | "Map":
                return f"({node[1]} {args})"
            case "Reduce":
                where = f" where {node[4]}" if node[4] else ""
                return f"(reduce {node[1]} {node[2]} {args}{where})"
            case _:
                return f"({node[0].lower()} c {args})"


SIGNATURES = {  # "s" is a string, "t" a term
    "Input": "s", "Constant": "s", "Unary": "st", "Map": "stt", "Reduce": "ssts",
    "Split": "t", "Fold": "tt", "Merge": "tt",
}


def arguments(node):
    return [value for kind, value in zip(SIGNATURES[node[0]], node[1:]) if kind == "t"]


def exclusive_attention(where):
    y, own = attention(where), '(Input "O[b,p,h,f]")'
    along = f'(Reduce "+" "f" (Map "x" {y} {own}) "")'
    squared = f'(Reduce "+" "f" (Map "x" {own} {own}) "")'
    return f'(Map "-" {y} (Map "x" (Map "/" {along} {squared}) {own}))'


def variants(where, program, term=attention):
    return Classes(SCHEMA + "\n".join(facts(where)) + program, term(where)).variants()


def expected(name):
    return sorted((FOLDER / f"variants_of_{name}.txt").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name, where", [("attention", ""), ("causal_attention", CAUSAL)])
def test_egglog_finds_the_same_variants(name, where):
    assert len(expected(name)) > 20
    assert variants(where, rules()) == expected(name)


def test_egglog_finds_the_same_divisions_of_exclusive_attention():
    found = variants(CAUSAL, RANKS + DIVISIONS + QUOTIENTS, exclusive_attention)
    assert len(found) > 20
    assert found == expected("exclusive_attention")


def test_rule_without_the_condition_is_detected():
    wrong = rules(chunks=CHUNKS.replace("PART v)", 'PART "")'))
    assert variants(CAUSAL, wrong) != expected("causal_attention")
