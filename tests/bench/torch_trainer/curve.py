# SPDX-License-Identifier: Apache-2.0
"""curve.py MODEL BATCH STEPS RATE CHECKPOINT THREADS [DATA]: trains on from a checkpoint of the trainer on its batches; the losses, a line each.

Dropout keeps what the trainer's keeps.
"""
import sys

import checkpoint
import torch
from models import LOSSES, MODELS, cnn, train_step
from samples import dropout_key, kept, order_of_first_epoch, samples_of


class SameDropout(torch.nn.Module):
    """The trainer's, at a step of its training."""

    def __init__(self, rate, number):
        super().__init__()
        self.rate, self.number = rate, number
        self.seed = self.step = None

    def forward(self, x):
        return x * kept(dropout_key(self.seed, self.step, self.number), self.rate, x.shape) / (1 - self.rate)


def main(name, rows, steps, rate, directory, threads, data=None):
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    model = cnn(SameDropout) if name == "cnn" else MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    done, seed, count = checkpoint.load(directory, model, optimizer)
    x, target = samples_of(name, data)
    order = order_of_first_epoch(count, seed)
    for step in range(done + 1, steps + 1):
        for layer in model.modules():
            if isinstance(layer, SameDropout):
                layer.seed, layer.step = seed, step
        chosen = order[(step - 1) * rows:step * rows]
        print(repr(train_step(model, LOSSES[name], optimizer, x[chosen], target[chosen])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5], int(sys.argv[6]), *sys.argv[7:])
