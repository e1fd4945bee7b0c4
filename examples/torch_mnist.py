"""Fashion-MNIST with DistributedDataParallel. The lines marked +++ are all that Tulle adds to the script.

    torchrun --nproc_per_node=4 examples/torch_mnist.py
    TULLE_RECIPE=dense torchrun --nproc_per_node=4 examples/torch_mnist.py     # the same without compression

Reads the files of Debian's dataset-fashion-mnist; --synthetic makes up images instead.
"""
import argparse
import gzip
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tulle.torch  # +++

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read_idx(name):
    with gzip.open(DATA / name) as file:
        content = bytearray(file.read())
    header = 4 + 4 * content[3]
    return torch.frombuffer(content, dtype=torch.uint8, offset=header)


def read_images(part, synthetic, count):
    """Images as rows of 784 values, and labels."""
    if not synthetic:
        images = read_idx(f"{part}-images-idx3-ubyte.gz").view(-1, 784).float() / 255
        return images[:count], read_idx(f"{part}-labels-idx1-ubyte.gz").long()[:count]
    generator = torch.Generator().manual_seed(1)
    centers = torch.rand(10, 784, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return centers[labels] + 0.3 * torch.randn(count, 784, generator=generator), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="of each rank")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--short", action="store_true", help="a few steps of a small model")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.epochs, arguments.width = 2, 128
    count = 2000 if arguments.short else 60_000
    synthetic = arguments.synthetic or not DATA.exists()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    torch.manual_seed(0)
    images, labels = read_images("train", synthetic, count)
    model = nn.Sequential(
        nn.Linear(784, arguments.width), nn.ReLU(), nn.Linear(arguments.width, arguments.width), nn.ReLU(),
        nn.Linear(arguments.width, 10),
    )  # fmt: skip
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    handle = tulle.torch.register(model, "topk:1%", optimizer=optimizer)  # +++

    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))[rank::size]
        total, steps = 0.0, len(images) // size // arguments.batch
        for step in range(steps):
            rows = order[step * arguments.batch : (step + 1) * arguments.batch]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch}: loss {total / steps:.4f}")

    report = handle.report()  # +++ by all ranks
    if rank == 0:
        test_images, test_labels = read_images("t10k", synthetic, count)
        right = (model.module(test_images).argmax(1) == test_labels).float().mean().item()
        print(f"accuracy {100 * right:.1f} %\n{report}")  # +++
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
