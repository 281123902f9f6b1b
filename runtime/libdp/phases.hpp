// SPDX-License-Identifier: Apache-2.0
//
// This rank's phase (dp_phase), in a page that its node's daemon reads (common/phase_page.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "common/phase_page.hpp"

namespace dp {

class Phases {
 public:
    Phases() = default;
    ~Phases();
    Phases(const Phases&) = delete;
    Phases& operator=(const Phases&) = delete;

    enum class Page {
        none,  // not made yet
        ours,
        parents  // this process is a fork of the one that made it: it must be left alone
    };
    // Makes no system call.
    Page page() const {
        const unsigned char* mark = mark_.load(std::memory_order_acquire);
        if (!mark) return Page::none;
        return *mark == 1 ? Page::ours : Page::parents;
    }
    // Enters a phase; makes the page if there is none. Thread-safe; fails if there is no memory or descriptor
    // for it. Returns its descriptor the first time: the daemon must be told.
    Try<std::optional<int>> enter(uint64_t phase);

 private:
    std::mutex mutex_;
    Fd file_;
    SharedPhasePage* page_ = nullptr;
    // 1; the kernel zeroes it in a fork (MADV_WIPEONFORK). Asking for the pid would be a system call.
    std::atomic<unsigned char*> mark_{nullptr};

    Try<void> make();
};

}  // namespace dp
