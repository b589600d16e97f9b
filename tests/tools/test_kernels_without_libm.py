"""The kernels of profiles compute elementary functions by themselves: the C library selects
variants by processor."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = re.compile(
    r"\bstd::(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|erf|erfc|cbrt)f?\(")


def test_kernels_of_profiles_call_no_elementary_function_of_the_c_library():
    sources = [path for path in (ROOT / "kernels" / "cpu").rglob("*")
               if path.suffix in {".cc", ".h", ".inc"}]
    assert len(sources) > 50
    found = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
             for path in sources
             for number, line in enumerate(path.read_text().splitlines(), start=1)
             if FUNCTION.search(line)]
    assert found == []
