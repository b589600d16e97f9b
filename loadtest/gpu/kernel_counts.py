"""Counts the kernels that PyTorch runs for a function, with its compiler and without it.

The functions import torch themselves, so that tests without torch can read this module.
"""

import re

# A call of a generated kernel: one of Triton on a GPU, one of C++ on a CPU.
CALL = re.compile(r"^[ \t]+(?:triton_\w+\.run|cpp_\w+)\(", re.MULTILINE)


def calls_in(code):
    """Returns the number of calls of generated kernels in a text of the compiler's wrapper code."""
    return len(CALL.findall(code))


def eager(function, arguments):
    """Returns the operators that compute or copy, by name. Views share memory and do not count, and
    neither does attention."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Collect(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if not operator.is_view and "scaled_dot_product" not in operator.name():
                names.append(operator.name())
            return operator(*args, **(kwargs or {}))

    with Collect():
        function(*arguments)
    return names


def compiled(function, arguments, dynamic):
    """Returns the number of generated kernels that a call of the compiled function runs. Kernels of
    libraries, such as attention, do not count."""
    import torch
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False):  # a cached graph has no code
        _, codes = run_and_get_code(torch.compile(function, dynamic=dynamic, fullgraph=True),
                                    *arguments)
    return sum(map(calls_in, codes))
