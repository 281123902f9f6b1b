// SPDX-License-Identifier: Apache-2.0
//
// This rank's phase (dp_phase) and what it logs (dp_log_scalar), in a page that its node's daemon reads (common/phase_page.hpp).
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/errno_text.hpp"
#include "base/failure.hpp"
#include "base/fd.hpp"
#include "common/phase_page.hpp"

namespace dp {

class Phases {
 public:
    Phases() = default;
    ~Phases() {
        if (page_) munmap(page_, kPhasePageBytes);
        if (unsigned char* mark = mark_.load()) munmap(mark, kMarkBytes);
    }
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
    // for it. Returns its descriptor if it was made: the daemon must be told.
    Try<std::optional<int>> enter(uint64_t phase) {
        const std::lock_guard guard(mutex_);
        const auto made = DP_TRY(make_if_missing());
        if (page_->version == 0)
            begin_phases(*page_, phase, monotonic_ns());
        else
            enter_phase(*page_, phase, monotonic_ns());
        return made;
    }
    // The same for a scalar of the training's present step. `name` is one (is_scalar_name).
    struct Logged {
        std::optional<int> made;
        std::string others;  // that have taken all places: it was not logged
    };
    Try<Logged> log(std::string_view name, double value) {
        const std::lock_guard guard(mutex_);
        Logged logged{DP_TRY(make_if_missing()), {}};
        if (!log_scalar(*page_, name, value, step_.load(std::memory_order_relaxed)))
            for (const LoggedScalar& one : logged_scalars(*page_))
                logged.others += (logged.others.empty() ? "" : ", ") + one.name;
        return logged;
    }
    // A step has ended, by the training's own count. Thread-safe; never waits.
    void end_step(uint64_t step) {
        step_.store(step, std::memory_order_relaxed);
        if (page() != Page::ours) return;
        const std::unique_lock guard(mutex_, std::try_to_lock);
        if (guard && page_) dp::end_step(*page_, monotonic_ns());
    }

 private:
    static constexpr size_t kMarkBytes = 1;  // of which the kernel makes a page
    std::mutex mutex_;
    Fd file_;
    PhasePage* page_ = nullptr;  // shared
    std::atomic<uint64_t> step_{0};
    // 1; the kernel zeroes it in a fork (MADV_WIPEONFORK). Asking for the pid would be a system call.
    std::atomic<unsigned char*> mark_{nullptr};

    Try<std::optional<int>> make_if_missing() {
        if (page_) return std::nullopt;
        DP_TRY(make());
        return file_.get();
    }
    Try<void> make() {
        const auto failed = [](const char* call) {
            return fail(std::string("cannot make the page for dp_phase and dp_log_scalar: ") + call + ": " +
                        errno_text(errno));
        };
        const auto map = [](size_t bytes, int flags, int fd) {
            return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
        };
        Fd file(memfd_create(kPhasePageName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!file) return failed("memfd_create");
        if (ftruncate(file.get(), static_cast<off_t>(kPhasePageBytes)) != 0) return failed("ftruncate");
        // A page that vanished under the mapping would kill this process.
        if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
            return failed("F_ADD_SEALS");
        void* const page = map(kPhasePageBytes, MAP_SHARED, file.get());
        if (page == MAP_FAILED) return failed("mmap");
        void* const mark = map(kMarkBytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        const bool is_wiped = mark != MAP_FAILED && madvise(mark, kMarkBytes, MADV_WIPEONFORK) == 0;
        if (!is_wiped) {
            const auto why = failed("MADV_WIPEONFORK (since Linux 4.14)");
            munmap(page, kPhasePageBytes);
            if (mark != MAP_FAILED) munmap(mark, kMarkBytes);
            return why;
        }
        file_ = std::move(file);
        page_ = static_cast<PhasePage*>(page);
        *static_cast<unsigned char*>(mark) = 1;
        mark_.store(static_cast<unsigned char*>(mark), std::memory_order_release);
        return {};
    }
};

}  // namespace dp
