// SPDX-License-Identifier: Apache-2.0
#include "spins.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "blocks.hpp"

namespace dp::cuda_emulator {
namespace {

using std::chrono::milliseconds;

constexpr int kSignal = SIGVTALRM;

milliseconds patience{10'000};
const volatile std::uint64_t* beats_of_kernel = nullptr;
std::uint64_t seen = 0;

// Of a block and a thread.
constexpr const char* kSpins =
    "emulated GPU: no barrier has opened and no thread has returned for as long as a kernel could need: does "
    "a thread wait for what "
    "another block writes, without an atomic or a fence, or for a block that runs after it? Only "
    "DP_CUDA_EMULATOR_ORDER=interleaved:SEED runs a few of them at once (block %u %u %u, thread %u %u %u)\n";

// On the stack of the thread that spins, which may be within malloc().
void look(int) {
    if (beats_of_kernel == nullptr) return;
    if (seen == *beats_of_kernel) {
        static std::array<char, 600> text;
        const int size = std::snprintf(text.data(), text.size(), kSpins, blockIdx.x, blockIdx.y, blockIdx.z,
                                       threadIdx.x, threadIdx.y, threadIdx.z);
        if (write(STDERR_FILENO, text.data(), static_cast<std::size_t>(size)) < 0) abort();
        abort();
    }
    seen = *beats_of_kernel;
}

}  // namespace

void set_patience(milliseconds of_tests) {
    patience = of_tests;
}

Watchdog::Watchdog(const std::uint64_t& beats) {
    static const bool once = [] {
        struct sigaction action {};
        action.sa_handler = look;
        action.sa_flags = SA_RESTART;
        return sigaction(kSignal, &action, nullptr) == 0;
    }();
    seen = beats - 1;  // the first time is no reason to end it
    beats_of_kernel = &beats;
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kSignal;
    event._sigev_un._tid = gettid();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
    itimerspec every{};
    every.it_value.tv_sec = every.it_interval.tv_sec = seconds.count();
    every.it_value.tv_nsec = every.it_interval.tv_nsec = std::chrono::nanoseconds(patience - seconds).count();
    if (!once || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0 ||
        timer_settime(timer_, 0, &every, nullptr) != 0)
        refuse("no timer that would end a kernel that waits for ever");
}

Watchdog::~Watchdog() {
    timer_delete(timer_);
    beats_of_kernel = nullptr;
}

}  // namespace dp::cuda_emulator
