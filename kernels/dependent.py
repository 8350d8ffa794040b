"""The first statements of kernels that may start before the one ahead of them in the stream has ended.

A row with `launch_pdl = true` is launched that way (programmatic dependent launch), and its kernel must call `wait_for_inputs()` before
it touches memory that another kernel writes: it lets the next one begin to start, then waits until everything ahead has
ended and can be seen. Every program of every such kernel waits, so "the one ahead has ended" means that all before it have.
What is saved is the time between two kernels. Products do not start early: their programs would be placed around those that
still wait, several on one multiprocessor and none on another, which costs more. Without the option, and in the interpreter,
it does nothing.
"""

import os

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ON_DEVICE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")


@triton.jit
def wait_for_inputs():
    if ON_DEVICE:
        gdc_launch_dependents()
        gdc_wait()
