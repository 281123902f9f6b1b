# SPDX-License-Identifier: Apache-2.0
"""The trainer's samples and their order, written a second time from what it documents (trainer/random.hpp, data/sampler.hpp, devices/dropout.hpp)."""
import glob
import gzip
import os

import numpy
import torch
from models import IMAGE_SIDE, SEQUENCE

GOLDEN = 0x9E3779B97F4A7C15
ALL = (1 << 64) - 1
SAMPLER_STREAMS, DRAW_STREAMS = 1 << 32, 1 << 33
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
FASHION_MEAN, FASHION_DEVIATION = numpy.float32(0.2860), numpy.float32(0.3530)


def _mix(value):
    """splitmix64's mixer; _mix_array is the same of many numbers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & ALL
    return value ^ (value >> 31)


def _mix_array(value):
    value = (value ^ (value >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return value ^ (value >> numpy.uint64(31))


class Random:
    def __init__(self, seed, stream):
        self._state = _mix((seed + GOLDEN) & ALL) ^ _mix((stream * GOLDEN + 1) & ALL)

    def bits(self):
        self._state = (self._state + GOLDEN) & ALL
        return _mix(self._state)

    def below(self, bound):
        product = (self.bits() >> 32) * bound
        while product & 0xFFFFFFFF < (1 << 32) % bound:
            product = (self.bits() >> 32) * bound
        return product >> 32


def order_of_first_epoch(samples, seed):
    random = Random(seed, SAMPLER_STREAMS + 1)
    order = list(range(samples))
    for left in range(samples, 1, -1):
        other = random.below(left)
        order[left - 1], order[other] = order[other], order[left - 1]
    return order


def dropout_key(seed, step, layer):
    """Of the step, from 1."""
    return Random(Random(seed, DRAW_STREAMS + step - 1).bits(), layer).bits()


def kept(key, rate, shape):
    """Which numbers dropout keeps: a tensor of 0 and 1."""
    places = numpy.arange(1, numpy.prod(shape) + 1, dtype=numpy.uint64)
    hashes = _mix_array(places * numpy.uint64(GOLDEN) + numpy.uint64(key))
    return torch.from_numpy(((hashes >> numpy.uint64(40)) * 2.0**-24 >= rate).astype(numpy.float32)).view(shape)


def fashion_mnist():
    """x [60000, 1, 28, 28] and the classes."""
    def read(name, header):
        with gzip.open(os.path.join(FASHION_MNIST, name)) as file:
            return numpy.frombuffer(file.read(), numpy.uint8, offset=header)

    pixels = read("train-images-idx3-ubyte.gz", 16).astype(numpy.float32)
    x = pixels * (1 / (255 * FASHION_DEVIATION)) - FASHION_MEAN / FASHION_DEVIATION
    return torch.from_numpy(x).view(-1, 1, 28, 28), torch.from_numpy(read("train-labels-idx1-ubyte.gz", 8).astype(numpy.int64))


def tokens(directory):
    """Sequences, and the same one token on."""
    parts = []
    for name in sorted(glob.glob(os.path.join(directory, "*train*.bin"))):
        parts.append(numpy.fromfile(name, numpy.uint16, offset=1024).astype(numpy.int64))
    text = torch.from_numpy(numpy.concatenate(parts))
    count = (len(text) - 1) // SEQUENCE
    return text[:count * SEQUENCE].view(count, SEQUENCE), text[1:count * SEQUENCE + 1].view(count, SEQUENCE)


def composed_images(file):
    """Of what bench-composed-images has written: all images, then all masks, bytes."""
    numbers = torch.from_numpy(numpy.fromfile(file, numpy.uint8))
    count = len(numbers) // (4 * IMAGE_SIDE**2)
    images, masks = numbers.split([3 * count * IMAGE_SIDE**2, count * IMAGE_SIDE**2])
    return images.float().view(count, 3, IMAGE_SIDE, IMAGE_SIDE) / 64 - 2, masks.float().view(count, 1, IMAGE_SIDE, IMAGE_SIDE)


def samples_of(model, place):
    """place: tokens' directory, or images' file; Fashion-MNIST has its own."""
    return tokens(place) if model == "gpt" else composed_images(place) if model == "unet2d" else fashion_mnist()
