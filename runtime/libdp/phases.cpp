// SPDX-License-Identifier: Apache-2.0
#include "libdp/phases.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/errno_text.hpp"

namespace dp {
namespace {

constexpr size_t kMarkBytes = 1;  // of which the kernel makes a page

void* map(size_t bytes, int flags, int fd) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    return at == MAP_FAILED ? nullptr : at;
}

tl::unexpected<Failure> no_page(const char* what) {
    return fail(std::string("cannot make the page for dp_phase: ") + what + ": " + errno_text(errno));
}

}  // namespace

Phases::~Phases() {
    if (page_) munmap(page_, kPhasePageBytes);
    if (unsigned char* mark = mark_.load()) munmap(mark, kMarkBytes);
}

Try<void> Phases::make() {
    Fd file(memfd_create(kPhasePageName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return no_page("memfd_create");
    if (ftruncate(file.get(), static_cast<off_t>(kPhasePageBytes)) != 0) return no_page("ftruncate");
    // A page that vanished under the mapping would kill this process.
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return no_page("F_ADD_SEALS");
    void* mark = map(kMarkBytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (!mark) return no_page("mmap");
    void* page = nullptr;
    if (madvise(mark, kMarkBytes, MADV_WIPEONFORK) != 0 ||
        !(page = map(kPhasePageBytes, MAP_SHARED, file.get()))) {
        const auto failed = no_page("MADV_WIPEONFORK (since Linux 4.14) or mmap");
        munmap(mark, kMarkBytes);
        return failed;
    }
    file_ = std::move(file);
    page_ = static_cast<SharedPhasePage*>(page);
    *static_cast<unsigned char*>(mark) = 1;
    mark_.store(static_cast<unsigned char*>(mark), std::memory_order_release);
    return {};
}

Try<std::optional<int>> Phases::enter(uint64_t phase) {
    const std::lock_guard guard(mutex_);
    if (!page_) {
        DP_TRY(make());
        page_->begin(phase, monotonic_ns());
        return file_.get();
    }
    page_->enter(phase, monotonic_ns());
    return std::nullopt;
}

}  // namespace dp
