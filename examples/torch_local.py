"""A small character transformer trained with local steps: ranks meet every few steps and send little then.

    torchrun --nproc_per_node=4 examples/torch_local.py --every 30 --text book.txt

Without --text it learns a made-up language.
"""
import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn

import tulle.torch


class Characters(nn.Module):
    def __init__(self, symbols, width, length):
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(width, symbols)
        self.register_buffer("mask", torch.triu(torch.full((length, length), float("-inf")), 1))

    def forward(self, text):
        return self.output(self.layers(self.symbols(text) + self.places, self.mask))


def made_up_text():
    words = ["tulle ", "net ", "sparse ", "gradient ", "rank ", "stream "]
    order = torch.randint(0, len(words), (4000,), generator=torch.Generator().manual_seed(1))
    return "".join(words[each] for each in order)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--recipe", default="sparseloco")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--short", action="store_true", help="a few steps of a small model")
    arguments = parser.parse_args()
    width, length, rows = 128, 64, 16
    if arguments.short:
        arguments.steps, arguments.every, width, length, rows = 30, 5, 32, 16, 4

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    text = arguments.text.read_text() if arguments.text else made_up_text()
    alphabet = sorted(set(text))
    numbers = torch.tensor([alphabet.index(each) for each in text])

    model = Characters(len(alphabet), width, length)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3 if not arguments.short else 5e-3)
    local = tulle.torch.Local(model, inner=inner, recipe=arguments.recipe, every=arguments.every)

    for step in range(arguments.steps):
        starts = torch.randint(0, len(numbers) - length - 1, (rows,))
        given = torch.stack([numbers[start : start + length + 1] for start in starts])
        local.zero_grad()
        loss = nn.functional.cross_entropy(model(given[:, :-1]).transpose(1, 2), given[:, 1:])
        loss.backward()
        local.step()
        if rank == 0 and (step + 1) % arguments.every == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")

    report = local.report()  # by all ranks
    if rank == 0:
        print(report)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
