"""A text classifier whose embedding has sparse gradients: only rows of words that occurred travel, and nothing is lost.

    torchrun --nproc_per_node=4 examples/torch_embedding.py

Sentences are made up: each class prefers some words of a large vocabulary. The rest of the model travels by a recipe.
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tulle.torch


class Classifier(nn.Module):
    def __init__(self, words, width, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, width, mode="mean", sparse=True)
        self.hidden = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, classes)

    def forward(self, sentences):
        return self.output(self.hidden(self.embedding(sentences)).relu())


def sentences(words, classes, count, generator):
    labels = torch.randint(0, classes, (count,), generator=generator)
    common = torch.randint(0, words, (count, 12), generator=generator)
    telling = labels[:, None] * 50 + torch.randint(0, 50, (count, 4), generator=generator)
    return torch.cat([common, telling], 1), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--short", action="store_true", help="a few steps of a small model")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.steps, arguments.words = 60, 2000
    classes, width = 8, 64

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Classifier(arguments.words, width, classes))
    # Plain SGD updates the rows that have gradients, and no others.
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    handle = tulle.torch.register(model, "topk:5%", optimizer=optimizer)

    generator = torch.Generator().manual_seed(rank + 1)
    for step in range(arguments.steps):
        given, labels = sentences(arguments.words, classes, 32, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(given), labels)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % (arguments.steps // 4) == 0 or rank == 0 and step == arguments.steps - 1:
            rows = model.module.embedding.weight.grad._nnz()
            print(f"step {step}: loss {loss.item():.4f}, {rows} of {arguments.words} rows of the embedding have gradients")

    report = handle.report()  # by all ranks
    if rank == 0:
        print(report)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
