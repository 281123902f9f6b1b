# SPDX-License-Identifier: Apache-2.0
"""torch_gpt.py MODELS ROWS WARMUP ITERATIONS: how fast PyTorch trains GPT-2 124M on this GPU, compiled, in bf16 with flash attention and a fused
AdamW, as `trainer measure-performance` says of ours: JSON. MODELS: the folder of the models.py that the benchmark of the CPU uses, too."""
import json
import sys
import time

sys.path.insert(0, sys.argv[1])
import models  # pylint: disable=wrong-import-position
import torch  # pylint: disable=wrong-import-position

SEQUENCE, VOCABULARY = 1024, 50257


def main(rows, warm_up, iterations):
    models.SEQUENCE, models.VOCABULARY = SEQUENCE, VOCABULARY
    models.GPT_LAYERS, models.GPT_HIDDEN, models.GPT_HEADS = 12, 768, 12
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    device = torch.device("cuda")
    model = models.Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x, target = (torch.randint(0, VOCABULARY, (rows, SEQUENCE), device=device) for _ in range(2))

    @torch.compile
    def loss_of(x, target):
        with torch.autocast("cuda", torch.bfloat16):
            return models.tokens_loss(model(x), target)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(x, target).backward()
        optimizer.step()

    for _ in range(warm_up):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(iterations):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    print(json.dumps({"samples_per_second": rows * iterations / seconds, "memory_peak_bytes": torch.cuda.max_memory_allocated(), "version": torch.__version__}))


if __name__ == "__main__":
    main(*map(int, sys.argv[2:]))
