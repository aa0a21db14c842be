"""peer.py PEER [CHECKPOINT WANTED]: loads a part of a checkpoint by one of the loaders for Python, on the CPU.

Without a checkpoint it only finds out whether the peer can be imported. WANTED is the JSON of ../wanted.rs, and what is
printed is that of ../sample.rs. The clock starts after the imports.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path


def is_wanted(name, names):
    if names == "all":
        return True
    if "layers" in names:
        return any(name.startswith(f"model.layers.{number}.") for number in names["layers"])
    return name.endswith(names["ending"])


def interval(shape, cut):
    """The part of the dim that is cut; None where the tensor is taken whole."""
    if cut is None or len(shape) < 2 or shape[cut["dim"]] % cut["of"]:
        return None
    rows = shape[cut["dim"]] // cut["of"]
    return slice(cut["part"] * rows, (cut["part"] + 1) * rows)


def shards_of(checkpoint, names):
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())["weight_map"]
    return sorted({str(checkpoint / shard) for name, shard in index.items() if is_wanted(name, names)})


def by_safe_open(framework):
    """safetensors, tensor by tensor."""
    from safetensors import safe_open

    if framework == "np":
        import ml_dtypes  # noqa: F401 (BF16 for numpy)
        import numpy  # noqa: F401
    else:
        import torch  # noqa: F401

    def load(shards, names, cut):
        tensors = []
        for shard in shards:
            with safe_open(shard, framework=framework, device="cpu") as file:
                for name in file.offset_keys():
                    if is_wanted(name, names):
                        tensors.append(part_of(file, name, cut))
        return tensors, tensors

    def part_of(file, name, cut):
        part = file.get_slice(name)
        rows = interval(part.get_shape(), cut)
        if rows is None:
            return file.get_tensor(name)
        return part[rows] if cut["dim"] == 0 else part[:, rows]

    return load


def fastsafetensors():
    """fastsafetensors without GPUDirect Storage; it has no slices on the way from the file."""
    import torch  # noqa: F401 (imported at the first load otherwise, within its time)
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def load(shards, names, cut):
        loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
        if names != "all":
            loader.set_tensor_filter(lambda name: is_wanted(name, names))
        loader.add_filenames({0: shards})
        buffers = loader.copy_files_to_device()
        tensors = [cut_out(buffers.get_tensor(name), cut) for name in loader.get_keys() if is_wanted(name, names)]
        return tensors, (loader, buffers)

    return load


def runai():
    """The Run:ai model streamer; it has no slices on the way from the file."""
    from runai_model_streamer import SafetensorsStreamer
    from safetensors import safe_open

    def names_in(shard, names):
        with safe_open(shard, framework="pt") as file:
            return [name for name in file.keys() if is_wanted(name, names)]

    def load(shards, names, cut):
        chosen = None if names == "all" else [name for shard in shards for name in names_in(shard, names)]
        streamer = SafetensorsStreamer()
        streamer.__enter__()
        streamer.stream_files(shards, tensor_names=chosen)
        tensors = [cut_out(tensor, cut) for _, tensor in streamer.get_tensors()]
        return tensors, streamer

    return load


def cut_out(tensor, cut):
    rows = interval(tensor.shape, cut)
    if rows is None:
        return tensor
    return tensor.narrow(cut["dim"], rows.start, rows.stop - rows.start).contiguous()


def touch(tensors):
    """What is only mapped is not loaded: a byte of every page. Copies are in memory already."""
    import torch

    for tensor in tensors:
        tensor.contiguous().view(-1).view(torch.uint8)[::4096].sum()


PEERS = {
    "safetensors-numpy": lambda: by_safe_open("np"),
    "safetensors-torch": lambda: by_safe_open("pt"),
    "fastsafetensors": fastsafetensors,
    "runai": runai,
}


def counter(path, name):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return None


def main():
    peer, *rest = sys.argv[1:]
    load = PEERS[peer]()
    if not rest:
        return
    checkpoint, wanted = Path(rest[0]), json.loads(rest[1])
    usage, device = resource.getrusage(resource.RUSAGE_SELF), counter("/proc/self/io", "read_bytes")
    start = time.perf_counter()
    tensors, kept = load(shards_of(checkpoint, wanted["names"]), wanted["names"], wanted["cut"])
    if peer == "safetensors-torch":
        touch(tensors)
    seconds = time.perf_counter() - start
    usage_after = resource.getrusage(resource.RUSAGE_SELF)
    sample = {
        "seconds": seconds,
        "bytes": sum(tensor.nbytes for tensor in tensors),
        "cpu_seconds": usage_after.ru_utime + usage_after.ru_stime - usage.ru_utime - usage.ru_stime,
        "device_bytes": counter("/proc/self/io", "read_bytes") - device,
        "minor_faults": usage_after.ru_minflt - usage.ru_minflt,
        "peak_bytes": counter("/proc/self/status", "VmHWM") * 1024,
        "huge_pages_advised": " hg" in Path("/proc/self/smaps").read_text(),
    }
    print(json.dumps(sample), flush=True)
    # Letting go of it all takes time, and is nobody's business.
    os._exit(0)


main()
