// SPDX-License-Identifier: Apache-2.0
#include "stacks/read_stacks.hpp"

#include "stacks/process.hpp"
#include "stacks/python.hpp"

namespace dp::stacks {
namespace {

Try<std::vector<ThreadStack>> read_python(pid_t pid) {
    const auto process = DP_TRY(Process::open(pid));
    const auto python = DP_TRY(Python::find(process));
    if (!python) return fail("process " + std::to_string(pid) + " runs no Python");
    auto threads = python->stacks();
    if (threads.empty())
        return fail("process " + std::to_string(pid) + "'s Python has not started, or is ending");
    return threads;
}

}  // namespace

ProcessStacks read_stacks(pid_t pid) {
    auto threads = read_python(pid);
    if (!threads) return {pid, {}, threads.error().message};
    return {pid, std::move(*threads), ""};
}

}  // namespace dp::stacks
