// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <dp/dp.hpp>

int main() {
    auto context = dp::Context::open();
    if (!context || !context->barrier()) return 1;
    std::printf("rank %u of %u\n", context->world().rank, context->world().size);
    return 0;
}
