// SPDX-License-Identifier: Apache-2.0
//
// `dpctl gpu-use`.
#include <unistd.h>

#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"

namespace dp {

int print_gpu_use(const GpuUseOptions& options) {
    const auto usage = use_of_gpus(options);
    if (!usage) return complain(usage.error().message);
    const std::string bytes = usage->SerializeAsString();
    const bool written =
        write(STDOUT_FILENO, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    return written ? 0 : complain("cannot write the use of the GPUs");
}

}  // namespace dp
