// SPDX-License-Identifier: Apache-2.0
//
// `dpctl gpu-use`.
#include <poll.h>
#include <unistd.h>

#include <chrono>

#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "framing.hpp"
#include "record/gpus.hpp"

namespace dp {
namespace {

// A message is shorter than what a pipe takes at once.
bool say(const std::string& bytes) {
    return write(STDOUT_FILENO, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

using Clock = std::chrono::steady_clock;

// False: the daemon has closed its end of the standard input meanwhile.
bool wait_until(Clock::time_point when) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count();
        if (left <= 0) return true;
        pollfd input{STDIN_FILENO, 0, 0};
        if (poll(&input, 1, static_cast<int>(left)) > 0) return false;
    }
}

bool say_problem(const Failure& failure) {
    wire::NodeUsage problem;
    problem.set_problem(printable(failure.message, kMaxGpuProblem));
    return say(to_frame(problem));
}

// Until nobody listens. What cannot be told of a look may be told of the next one.
int tell_again_and_again(const GpuUse& gpus, std::chrono::milliseconds every) {
    for (auto next = Clock::now(); gpus.is_there(); next = std::max(next + every, Clock::now())) {
        if (!wait_until(next)) return 0;
        const auto usage = gpus.look();
        if (!(usage ? say(to_frame(*usage)) : say_problem(usage.error()))) return 1;
    }
    return 0;
}

}  // namespace

int print_gpu_use(const GpuUseOptions& options) {
    const auto gpus = GpuUse::open(options);
    if (!gpus && options.every.count() > 0) return say_problem(gpus.error()) ? 0 : 1;
    if (!gpus) return complain(gpus.error().message);
    if (options.every.count() > 0) return tell_again_and_again(*gpus, options.every);
    const auto usage = gpus->look();
    if (!usage) return complain(usage.error().message);
    return say(usage->SerializeAsString()) ? 0 : complain("cannot write the use of the GPUs");
}

}  // namespace dp
