"""Makes the files beside it: four ranks save tensors with PyTorch's HuggingFaceStorageWriter.

They were made with torch 2.9.1 and safetensors 0.8.0: `python make.py DIRECTORY`. `one` has a file for each rank,
`three` up to three, and `whole.safetensors` the same tensors whole.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RANKS = 4


def count(*shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def tensors():
    line = init_device_mesh("cpu", (4,))
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return {
        "rows.weight": distribute_tensor(count(8, 6, dtype=torch.bfloat16), line, [Shard(0)]),
        "uneven.weight": distribute_tensor(count(5, 3), line, [Shard(0)]),
        "few.weight": distribute_tensor(count(2, 3), line, [Shard(0)]),
        "cols.weight": distribute_tensor(count(4, 10), line, [Shard(1)]),
        "grid.weight": distribute_tensor(count(6, 7), grid, [Shard(0), Shard(1)]),
        "same_dim.weight": distribute_tensor(count(10, 2), grid, [Shard(0), Shard(0)]),
        "hsdp.weight": distribute_tensor(count(6, 2), grid, [Replicate(), Shard(0)]),
        "norm.weight": distribute_tensor(count(7), line, [Replicate()]),
        "plain.weight": count(3, 2),
        "scalar": torch.tensor(3.0),
        "int.buffer": torch.tensor([1, 2, 3]),
        "empty.weight": distribute_tensor(torch.zeros(0, 4), line, [Shard(0)]),
        "sc.dt": distribute_tensor(torch.tensor(4.0), line, [Replicate()]),
        "fp8.weight": count(4, 4).to(torch.float8_e4m3fn),
    }


def save(rank, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    state = tensors()
    files = {name: 1 + number * 3 // len(state) for number, name in enumerate(state)}
    for folder, mapping in (("one", None), ("three", files)):
        path = os.path.join(out, folder)
        writer = HuggingFaceStorageWriter(path, save_distributed=True, fqn_to_index_mapping=mapping)
        dcp.save(state, storage_writer=writer)
    whole = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in state.items()}
    if rank == 0:
        save_file({name: t.contiguous() for name, t in whole.items()}, os.path.join(out, "whole.safetensors"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(save, args=(sys.argv[1],), nprocs=RANKS)
