# SPDX-License-Identifier: Apache-2.0
"""All operations of torch.distributed's TCPStore, by two ranks; each prints what it got, an operation a line.

argv: own (rank 0 serves, at that port of its node) PORT, or face (somebody else serves, at MASTER_ADDR:MASTER_PORT)."""
import os
import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if sys.argv[1] == "own":
    port = int(sys.argv[2])
plain = {"use_libuv": False} if hasattr(dist.TCPStore, "libuvBackend") else {}  # Debian's has none
store = dist.TCPStore(host, port, 2, sys.argv[1] == "own" and rank == 0, timedelta(seconds=30), **plain)


def tell(name, call):
    try:
        got = call()
        got = sorted(got) if name.startswith("list_keys") else got
    except Exception as error:  # pylint: disable=broad-except  # what it is called is what is compared
        got = type(error).__name__
    sys.stdout.write(f"rank {rank}: {name}: {got}\n")


def in_turn(number):
    """Rank 0 before rank 1."""
    if rank == 1:
        store.wait([f"turn {number}"])
    else:
        store.set(f"turn {number}", "")


short = timedelta(milliseconds=300)
if rank == 0:
    tell("set", lambda: store.set("key", "value"))
    tell("set bytes", lambda: store.set("bytes", b"\0\xff".decode("latin1")))
    tell("get", lambda: store.get("key"))
    tell("add", lambda: store.add("number", 5))
    tell("add to it", lambda: store.add("number", -7))
    tell("compare_set of nothing", lambda: store.compare_set("new", "", "made"))
    tell("compare_set, wrong", lambda: store.compare_set("new", "other", "changed"))
    tell("compare_set, right", lambda: store.compare_set("new", "made", "changed"))
    tell("compare_set of a missing key", lambda: store.compare_set("missing", "expected", "x"))
    tell("check", lambda: store.check(["key", "number"]))
    tell("check of a missing key", lambda: store.check(["key", "nothing"]))
    tell("num_keys", lambda: store.num_keys())
    tell("delete_key", lambda: store.delete_key("new"))
    tell("delete_key again", lambda: store.delete_key("new"))
    tell("append", lambda: store.append("key", " and more"))
    tell("append to nothing", lambda: store.append("fresh", "begins"))
    tell("multi_set", lambda: store.multi_set(["a", "b"], ["1", "2"]))
    tell("multi_get", lambda: store.multi_get(["a", "b", "key", "fresh"]))
    tell("list_keys", lambda: store.list_keys())
    tell("wait for what is there", lambda: store.wait(["key", "number"]))
    tell("wait in vain", lambda: store.wait(["key", "never"], short))
    tell("get after that", lambda: store.get("key"))
    tell("queue_push", lambda: store.queue_push("queue", "first"))
    tell("queue_len", lambda: store.queue_len("queue"))
    tell("queue_pop", lambda: store.queue_pop("queue"))
    tell("has_extended_api", lambda: store.has_extended_api())
    tell("clone", lambda: store.clone().get("key"))
    prefixed = dist.PrefixStore("below", store)
    tell("a prefix", lambda: (prefixed.set("key", "another"), prefixed.get("key"), store.get("below/key")))
in_turn(1)
tell("the other's key", lambda: store.get("key"))
tell("the sum", lambda: store.get("number"))
if rank == 1:
    threading.Thread(target=lambda: (time.sleep(0.3), store.clone().set("later", "here") if hasattr(store, "clone") else None)).start()
if hasattr(store, "clone"):
    tell("wait for the other", lambda: store.wait(["later"]))
tell("barrier", lambda: store.barrier("met", 2, timedelta(seconds=30)))
if rank == 0:
    tell("barrier in vain", lambda: store.barrier("alone", 2, short))
    tell("a barrier's counter", lambda: store.get("alone"))
# Who serves stays until the other has ended.
store.add("ended", 1)
while rank == 0 and store.add("ended", 0) < 2:
    time.sleep(0.02)
