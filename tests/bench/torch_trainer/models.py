# SPDX-License-Identifier: Apache-2.0
"""The trainer's models as somebody who uses PyTorch writes them, with their parameters in the order in which the trainer declares them."""
import torch
from torch import nn
from torch.nn import functional

IMAGE_SIDE = 256  # of unet2d
SEQUENCE, VOCABULARY = 256, 257  # of gpt: the trainer's 10M, on bytes
GPT_LAYERS, GPT_HIDDEN, GPT_HEADS = 6, 384, 6


def ffn():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn(dropout=lambda rate, _number: nn.Dropout(rate)):
    """dropout(rate, number of the layer): what makes a layer of it."""
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), dropout(0.25, 1), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), dropout(0.5, 2), nn.Linear(128, 10))


def _twice_convolved(inputs, outputs):
    def once(channels):
        return nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)

    return nn.Sequential(*once(inputs), *once(outputs))


class Unet2d(nn.Module):
    LEVELS = 4

    def __init__(self, features=32):
        super().__init__()
        widths = [features << level for level in range(self.LEVELS)]
        self.down = nn.ModuleList(_twice_convolved(inputs, outputs) for inputs, outputs in zip([3, *widths], widths))
        self.bottom = _twice_convolved(widths[-1], 2 * widths[-1])
        steps_up = []
        for width in reversed(widths):
            steps_up += [nn.ConvTranspose2d(2 * width, width, 2, 2), _twice_convolved(2 * width, width)]
        self.up = nn.ModuleList(steps_up)
        self.last = nn.Conv2d(features, 1, 1)

    def forward(self, x):
        skipped = []
        for level in self.down:
            x = level(x)
            skipped.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for enlarge, merge in zip(self.up[::2], self.up[1::2]):
            x = merge(torch.cat([enlarge(x), skipped.pop()], 1))
        return self.last(x)


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.project = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def attention(self, x, later):
        batch, tokens, hidden = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, hidden // self.heads).transpose(1, 2) for part in self.qkv(x).split(hidden, 2))
        if hasattr(functional, "scaled_dot_product_attention"):  # since PyTorch 2.0
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * (hidden // self.heads) ** -0.5
            mixed = functional.softmax(scores.masked_fill(later, float("-inf")), -1) @ v
        return self.project(mixed.transpose(1, 2).reshape(batch, tokens, hidden))

    def forward(self, x, later):
        x = x + self.attention(self.norm1(x), later)
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, GPT_HIDDEN)
        self.positions = nn.Embedding(SEQUENCE, GPT_HIDDEN)
        for embedding in (self.table, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(GPT_HIDDEN, GPT_HEADS) for _ in range(GPT_LAYERS))
        self.last_norm = nn.LayerNorm(GPT_HIDDEN)
        self.register_buffer("later", torch.ones(SEQUENCE, SEQUENCE).triu(1).bool())

    def forward(self, tokens):
        x = self.table(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.later)
        return self.last_norm(x) @ self.table.weight.T


def classes_loss(logits, classes):
    return functional.cross_entropy(logits, classes)


def tokens_loss(logits, tokens):
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def dice_loss(logits, masks):
    p, t = torch.sigmoid(logits).flatten(1), masks.flatten(1)
    return (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


MODELS = {"ffn": ffn, "cnn": cnn, "unet2d": Unet2d, "gpt": Gpt}
LOSSES = {"ffn": classes_loss, "cnn": classes_loss, "unet2d": dice_loss, "gpt": tokens_loss}


def random_batch(model, rows):
    """x and target of the right shapes and ranges."""
    if model == "gpt":
        return torch.randint(0, VOCABULARY, (rows, SEQUENCE)), torch.randint(0, VOCABULARY, (rows, SEQUENCE))
    if model == "unet2d":
        return torch.randn(rows, 3, IMAGE_SIDE, IMAGE_SIDE), (torch.rand(rows, 1, IMAGE_SIDE, IMAGE_SIDE) > 0.7).float()
    return torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))


def train_step(model, loss_of, optimizer, x, target):
    """→ the loss before the step."""
    optimizer.zero_grad(set_to_none=True)  # as PyTorch does by itself since 2.0
    loss = loss_of(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.item()
