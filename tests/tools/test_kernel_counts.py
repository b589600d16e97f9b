"""Tests how calls of generated kernels are counted in the code of PyTorch's compiler."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "loadtest" / "gpu"))

import kernel_counts  # noqa: E402

ON_CPU = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
''')
def call(self, args):
    cpp_fused_add_0(arg0_1, buf0)
    extern_kernels.bmm(buf0, arg1_1, out=buf1)
    cpp_fused_mul_1(buf1, buf2, s77)
    return (buf2, )
"""
ON_GPU = """
triton_per_fused_sum_0 = async_compile.triton('triton_per_fused_sum_0', '''
@triton.jit
def triton_per_fused_sum_0(in_ptr0, out_ptr0, xnumel):
    pass
''', device_str='cuda')
def call(self, args):
    with torch.cuda._DeviceGuard(0):
        stream0 = get_raw_stream(0)
        triton_per_fused_sum_0.run(arg0_1, buf0, 512, stream=stream0)
        triton_per_fused_sum_0.run(arg1_1, buf1, 512, stream=stream0)
        buf2 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf0, buf1)
"""


def test_calls_are_counted_and_definitions_and_library_kernels_are_not():
    assert kernel_counts.calls_in(ON_CPU) == 2
    assert kernel_counts.calls_in(ON_GPU) == 2, "a kernel that is called twice counts twice"
    assert kernel_counts.calls_in("") == 0
