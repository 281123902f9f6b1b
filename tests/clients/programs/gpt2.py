# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (Radford et al. 2019) in plain PyTorch, with its tensors named and laid out as in Hugging Face's transformers, and the safetensors format by
its description: nothing here knows the trainer.

    gpt2.py make DIR [TYPE]          random weights as model.safetensors (in F32, F16 or BF16) and config.json
    gpt2.py loss DIR TOKENS N        the mean loss on the first N + 1 tokens of a file of llm.c's, in sequences of n_positions
    gpt2.py lora DIR SAVED TOKENS N  the same with the adapters of a checkpoint of the trainer's, added to what c_attn computes (LoRA, Hu et al. 2021)
    gpt2.py continue DIR TOKENS N    the N likeliest tokens after these (numbers with commas), one after the other, as text of bytes
"""
import json
import math
import os
import struct
import sys

import torch
from torch import nn

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
          "n_layer": 2, "n_head": 3, "n_embd": 48, "n_positions": 32, "vocab_size": 257}


class Conv1D(nn.Module):
    """A linear layer whose weight is [inputs, outputs]."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.2)
        self.bias = nn.Parameter(torch.randn(outputs) * 0.1)

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config["n_embd"]
        self.heads = config["n_head"]
        self.c_attn, self.c_proj = Conv1D(3 * size, size), Conv1D(size, size)

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = (part.view(batch, length, self.heads, size // self.heads).transpose(1, 2) for part in self.c_attn(x).split(size, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(size // self.heads)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        return self.c_proj((scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, size))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config["n_embd"]
        self.c_fc, self.c_proj = Conv1D(4 * size, size), Conv1D(size, 4 * size)

    def forward(self, x):
        x = self.c_fc(x)
        return self.c_proj(0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, epsilon = config["n_embd"], config["layer_norm_epsilon"]
        self.ln_1, self.attn = nn.LayerNorm(size, eps=epsilon), Attention(config)
        self.ln_2, self.mlp = nn.LayerNorm(size, eps=epsilon), MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(config["vocab_size"], size), nn.Embedding(config["n_positions"], size)
        self.h = nn.ModuleList(Block(config) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(size, eps=config["layer_norm_epsilon"])

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        stored = next(key for key, kind in TYPES.items() if kind == tensor.dtype)
        numbers = bytes(tensor.flatten().view(torch.uint8).tolist())
        header[name] = {"dtype": stored, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    assert header.pop("__metadata__")["format"] == "pt"
    return {name: torch.frombuffer(bytearray(data[begin + one["data_offsets"][0]:begin + one["data_offsets"][1]]),
                                   dtype=TYPES[one["dtype"]]).view(one["shape"]) for name, one in header.items()}


def make(folder, kind="F32"):
    torch.manual_seed(7)
    model = GPT2(CONFIG)
    for name, parameter in model.named_parameters():
        if "ln_" in name:
            nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.2)
    nn.init.normal_(model.wte.weight, std=0.3)
    os.makedirs(folder)
    write_safetensors(f"{folder}/model.safetensors", {name: tensor.to(TYPES[kind]) for name, tensor in model.state_dict().items()})
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)


def load(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["model_type"] == "gpt2"
    model = GPT2(config)
    tensors = read_safetensors(f"{folder}/model.safetensors")
    model.load_state_dict({name.removeprefix("transformer."): tensor.float() for name, tensor in tensors.items()})
    return model.eval(), config


def saved_values(checkpoint):
    """The parameters of a checkpoint by name, and its manifest, as trainer/checkpoint/manifest.hpp describes the format."""
    with open(f"{checkpoint}/manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    ranks, parts = manifest["world_size"], []
    for rank in range(ranks):
        with open(f"{checkpoint}/rank-{rank:05}-of-{ranks:05}.f32", "rb") as file:
            numbers = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
        counts = [one["elements"] * (rank + 1) // ranks - one["elements"] * rank // ranks for one in manifest["vectors"]]
        index = [one["name"] for one in manifest["vectors"]].index("values")
        parts.append(numbers[sum(counts[:index]):sum(counts[:index + 1])])
    values = torch.cat(parts)
    return {one["name"]: values[one["first"]:one["first"] + math.prod(one["shape"])].view(one["shape"]) for one in manifest["parameters"]}, manifest


class Adapted(nn.Module):
    def __init__(self, inner, a, b, scale):
        super().__init__()
        self.inner, self.a, self.b, self.scale = inner, a, b, scale

    def forward(self, x):
        return self.inner(x) + self.scale * (x @ self.a.T) @ self.b.T


def lora(folder, checkpoint, tokens, count):
    model, config = load(folder)
    values, manifest = saved_values(checkpoint)
    scale = manifest["shape"]["lora_alpha"] / manifest["shape"]["lora_rank"]
    for number, block in enumerate(model.h):
        a, b = (values[f"h.{number}.attn.c_attn.lora_{which}.weight"] for which in "AB")
        block.attn.c_attn = Adapted(block.attn.c_attn, a, b, scale)
    print_loss(model, config, tokens, count)


def loss(folder, tokens, count):
    print_loss(*load(folder), tokens, count)


def print_loss(model, config, tokens, count):
    with open(tokens, "rb") as file:
        numbers = torch.frombuffer(bytearray(file.read()[1024:]), dtype=torch.int16).long()[:int(count) + 1]
    x, y = (part.view(-1, config["n_positions"]) for part in (numbers[:-1], numbers[1:]))
    with torch.no_grad():
        print(f"{nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()):.8f}")


def go_on(folder, tokens, count):
    model, config = load(folder)
    numbers = [int(one) for one in tokens.split(",")]
    for _ in range(int(count)):
        numbers.append(int(model(torch.tensor([numbers[-config["n_positions"]:]]))[0, -1].argmax()))
    print(json.dumps(numbers))


{"make": make, "loss": loss, "lora": lora, "continue": go_on}[sys.argv[1]](*sys.argv[2:])
