// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/stop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

namespace dp::trainer {
namespace {

std::atomic<bool> are_caught = false;
std::atomic<int> noted = 0;

sigset_t stop_signals() {
    sigset_t both;
    sigemptyset(&both);
    for (const int number : {SIGUSR1, SIGTERM}) sigaddset(&both, number);
    return both;
}

// The signal's default action: usually the process ends here.
void deliver(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(number);
    pthread_sigmask(SIG_BLOCK, &one, nullptr);
}

[[noreturn]] void take_signals() {
    const sigset_t both = stop_signals();
    while (true) {
        int number = 0, none = 0;
        if (sigwait(&both, &number) != 0) continue;
        if (are_caught)
            noted.compare_exchange_strong(none, number);
        else
            deliver(number);
    }
}

}  // namespace

void hold_stop_signals() {
    const sigset_t both = stop_signals();
    pthread_sigmask(SIG_BLOCK, &both, nullptr);
    std::thread(take_signals).detach();
}

void catch_stop_signals() {
    are_caught = true;
}

int stop_signal() {
    return noted;
}

std::string name_of_signal(int number) {
    const char* name = sigabbrev_np(number);
    return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

Result<AfterStep> StopAgreement::after_step(bool is_busy) {
    if (++made_ < interval_) return AfterStep{};
    const double seconds = std::chrono::duration<double>(Clock::now() - exchanged_at_).count();
    // The maxima over the ranks, so that all stop, or exchange again, after the same step.
    const std::array mine{static_cast<double>(signal_ ? signal_() : 0), seconds / static_cast<double>(made_),
                          is_busy ? 1.0 : 0.0};
    device_.upload(mine.data(), exchanged_);
    DP_TRY(communicator_.all_reduce(exchanged_, Reduction::max));
    DP_TRY(communicator_.confirm());
    const auto largest = device_.values_of<double>(exchanged_);
    DP_TRY(device_.status());
    interval_ = steps_to_next(interval_, largest[1]);
    made_ = 0;
    exchanged_at_ = Clock::now();
    return AfterStep{static_cast<int>(largest[0]), largest[2] == 0};
}

std::int64_t steps_to_next(std::int64_t interval, double seconds_per_step) {
    constexpr double kSeconds = 0.25;
    const std::int64_t most = std::min(2 * interval, std::int64_t{64});
    if (seconds_per_step * static_cast<double>(most) <= kSeconds) return most;
    return std::max<std::int64_t>(static_cast<std::int64_t>(kSeconds / seconds_per_step), 1);
}

}  // namespace dp::trainer
