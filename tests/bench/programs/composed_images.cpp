// SPDX-License-Identifier: Apache-2.0
//
// bench-composed-images DIRECTORY SIZE COUNT SEED FILE: writes the images that the trainer composes for
// unet2d from the directory's Fashion-MNIST, as bytes: all images, then all masks. PyTorch trains on the
// same data (tests/bench/torch_trainer/samples.py).
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "trainer/data/dataset.hpp"

int main(int count, char** words) {
    using namespace dp::trainer;
    if (count != 6) {
        std::fputs("bench-composed-images DIRECTORY SIZE COUNT SEED FILE\n", stderr);
        return 2;
    }
    const auto data = compose_segmentation(words[1], std::atoll(words[2]), std::atoll(words[3]),
                                           std::strtoull(words[4], nullptr, 10));
    if (!data) {
        std::fprintf(stderr, "bench-composed-images: %s\n", data.error().message.c_str());
        return 1;
    }
    std::ofstream out(words[5], std::ios::binary);
    for (const Matrix* matrix : {&data->train.features, &data->train.targets})
        out.write(reinterpret_cast<const char*>(matrix->bytes.data()),
                  static_cast<std::streamsize>(matrix->bytes.size()));
    return out.flush() ? 0 : 1;
}
