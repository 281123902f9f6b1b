// SPDX-License-Identifier: Apache-2.0
#include "stacks/read_stacks.hpp"

#include "stacks/process.hpp"
#include "stacks/python.hpp"

namespace dp::stacks {
namespace {

Try<std::vector<ThreadStack>> read_python(pid_t pid) {
    const auto process = DP_TRY(Process::open(pid));
    const std::string name = "process " + std::to_string(pid);
    const auto python = Python::find(process);
    if (!python) {
        DP_TRY(Process::open(pid));  // it may have ended meanwhile
        return fail(name + ": " + python.error().message);
    }
    if (!*python) return fail(name + " runs no Python");
    auto threads = (*python)->stacks();
    if (threads.empty()) return fail(name + "'s Python has not started, or is ending");
    return threads;
}

}  // namespace

ProcessStacks read_stacks(pid_t pid) {
    auto threads = read_python(pid);
    if (!threads) return {pid, {}, threads.error().message};
    return {pid, std::move(*threads), ""};
}

}  // namespace dp::stacks
