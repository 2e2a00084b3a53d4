"""What the programs that run PyTorch have in common."""

import os
import sys


def ready() -> None:
    """With --gate: says so, and waits for a line."""
    if "--gate" in sys.argv:
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()


def import_torch():
    """Ends the program with 77 where there is no PyTorch, or none that sees a GPU."""
    try:
        import torch
    except ImportError as error:
        print(f"SKIPPED: no PyTorch in {sys.executable}: {error}")
        sys.exit(77)
    if not torch.cuda.is_available():
        print(f"SKIPPED: PyTorch {torch.__version__} sees no GPU")
        sys.exit(77)
    return torch
