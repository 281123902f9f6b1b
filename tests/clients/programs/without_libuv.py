# SPDX-License-Identifier: Apache-2.0
"""Runs a Python program with a PyTorch that was built without libuv, for which torchrun and its children ask whatever USE_LIBUV says."""
import functools
import importlib
import runpy
import shutil
import sys

for name in ("torch.distributed.rendezvous", "torch.distributed.elastic.rendezvous.static_tcp_rendezvous"):
    module = importlib.import_module(name)
    module.TCPStore = functools.partial(module.TCPStore, use_libuv=False)
sys.argv = sys.argv[1:]
runpy.run_path(shutil.which(sys.argv[0]) or sys.argv[0], run_name="__main__")
