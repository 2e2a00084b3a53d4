"""Under which operation the daemon records the calls of a function."""

import re

# The runtime's two waits have the names that published traces use.
SHORTENED = {"cudaStreamSynchronize": "cudaStreamSync", "cudaDeviceSynchronize": "cudaDeviceSync"}


def op_of(function: str) -> str:
    """cuMemcpyHtoDAsync_v2_ptsz is recorded as cuMemcpyHtoDAsync."""
    base = re.sub(r"(_v\d|_ptsz|_ptds)+$", "", function)
    return SHORTENED.get(base, base)
