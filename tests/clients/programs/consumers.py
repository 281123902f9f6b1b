# SPDX-License-Identifier: Apache-2.0
"""Reads a task's environment with the rules of each framework and prints what each would make of it, a line of JSON a task.

argv: the consumers to ask. The rules are restated from the frameworks' documented behaviour; torchrun's are run from torch itself."""
import functools
import json
import os
import sys

env = os.environ


def torch_env():
    """torch.distributed, env://: four variables, and an empty one is missing."""
    values = {name: env.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    assert all(values.values()), values
    return {"rank": int(values["RANK"]), "world_size": int(values["WORLD_SIZE"]), "master": f"{values['MASTER_ADDR']}:{int(values['MASTER_PORT'])}"}


def torchrun_child():
    """What scripts written for torchrun find; the agent's store only where it is exactly "True"."""
    numbers = ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
               "TORCHELASTIC_RESTART_COUNT"]
    return {**{name.lower(): int(env[name]) for name in numbers}, "role": env["ROLE_NAME"],
            "agent_store": env.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)}


def torchrun():
    """torchrun as one launcher a node: torch's own arguments, configuration and static rendezvous (its agent binds the port)."""
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import RendezvousParameters, registry
    if env.get("USE_LIBUV") == "0":  # Debian's PyTorch is built without, but its static rendezvous asks for it
        from torch.distributed.elastic.rendezvous import static_tcp_rendezvous as static
        static.TCPStore = functools.partial(static.TCPStore, use_libuv=False)

    config, _, _ = run.config_from_args(run.parse_args(["--nproc_per_node=2", "train.py"]))
    parameters = RendezvousParameters(backend=config.rdzv_backend, endpoint=config.rdzv_endpoint, run_id=config.run_id,
                                      min_nodes=config.min_nodes, max_nodes=config.max_nodes, **config.rdzv_configs)
    met = registry.get_rendezvous_handler(parameters).next_rendezvous()
    store, rank, nodes = met if isinstance(met, tuple) else (met.store, met.rank, met.world_size)
    store.set(f"node {rank}", env["SLURMD_NODENAME"])
    hosts = [store.get(f"node {other}").decode() for other in range(nodes)]
    store.add("read", 1)
    while rank == 0 and store.add("read", 0) < nodes:  # who serves stays until all have read
        pass
    return {"nodes": config.max_nodes, "node_rank": config.rdzv_configs["rank"], "endpoint": config.rdzv_endpoint, "hosts": hosts}


def megatron():
    """Megatron-LM: silently one rank where a variable is missing."""
    return {"rank": int(env.get("RANK", "0")), "world_size": int(env.get("WORLD_SIZE", "1")), "local_rank": int(env.get("LOCAL_RANK", "0")),
            "master": f"{env.get('MASTER_ADDR', 'localhost')}:{env.get('MASTER_PORT', '6000')}"}


def deepspeed():
    """DeepSpeed: asks MPI unless all five are there."""
    five = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"]
    if not all(name in env for name in five):
        return {"asks": "mpi4py"}
    return {"rank": int(env["RANK"]), "world_size": int(env["WORLD_SIZE"]), "local_rank": int(env["LOCAL_RANK"])}


def first_number(names, otherwise):
    values = [int(env[name]) for name in names if name in env]
    return next((value for value in values if value >= 0), otherwise)


def accelerate_gpu():
    """Accelerate with GPUs: LOCAL_RANK, else silently one process."""
    return {"distributed": int(env.get("LOCAL_RANK", "-1")) != -1, "local_rank": int(env.get("LOCAL_RANK", "-1"))}


def accelerate_cpu():
    """Accelerate without: MPI's names count, too."""
    rank = first_number(["RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"], 0)
    size = first_number(["WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"], 1)
    local_rank = first_number(["LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"], 0)
    local_size = first_number(["LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"], 1)
    return {"rank": rank, "world_size": size, "local_rank": local_rank, "local_size": local_size}


def lightning():
    """Lightning's Slurm environment: Slurm's names; the first node is the master, whatever MASTER_ADDR says; MASTER_PORT is kept. Under
    torchrun, which it knows by TORCHELASTIC_RUN_ID, it would be another, that does not requeue."""
    if "TORCHELASTIC_RUN_ID" in env:
        return {"leaves requeueing to": "torchrun"}
    if int(env["SLURM_NTASKS"]) > 1 and "SLURM_NTASKS_PER_NODE" not in env:
        return {"refuses": "--ntasks was set and --ntasks-per-node was not"}
    first = env["SLURM_NODELIST"].split(",")[0]
    if "[" in first:  # node[01-02] → node01
        first = first.replace("[", "").replace("]", "").split("-")[0]
    import socket
    port = env["MASTER_PORT"] if "MASTER_PORT" in env else str(15000 + int(env["SLURM_JOB_ID"][-4:]))
    return {"rank": int(env["SLURM_PROCID"]), "world_size": int(env["SLURM_NTASKS"]), "local_rank": int(env["SLURM_LOCALID"]),
            "node_rank": int(env["SLURM_NODEID"]), "tasks_a_node": int(env["SLURM_NTASKS_PER_NODE"]),
            "master": f"{socket.gethostbyname(first)}:{port}"}


def jax():
    """JAX: Slurm's names; JAX_COORDINATOR_ADDRESS says where, and rank 0 starts a service of its own there (gRPC, both reuse options)."""
    import socket
    assert all(name in env for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"))
    address, port = env["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1)
    if env["SLURM_PROCID"] == "0":
        with socket.socket(socket.AF_INET6) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("::", int(port)))
            server.listen()
            with socket.create_connection((address, int(port)), timeout=5):
                pass
    return {"rank": int(env["SLURM_PROCID"]), "world_size": int(env["SLURM_NTASKS"]), "local_rank": int(env["SLURM_LOCALID"]),
            "coordinator": env["JAX_COORDINATOR_ADDRESS"]}


def composer():
    """Composer: torch's four, and where the rank stands on its node."""
    return {**torch_env(), "local_rank": int(env["LOCAL_RANK"]), "local_world_size": int(env["LOCAL_WORLD_SIZE"]), "node_rank": int(env["NODE_RANK"])}


def openmp():
    return {"threads": int(env["OMP_NUM_THREADS"]), "bound": len(os.sched_getaffinity(0))}


found = {name: globals()[name]() for name in sys.argv[1:]}
sys.stdout.write(json.dumps({"procid": int(env["SLURM_PROCID"]), "node": env["SLURMD_NODENAME"], **found}) + "\n")
