// SPDX-License-Identifier: Apache-2.0
//
// dp-rendezvousd: the rendezvous daemon of one step on one node. Started by the plugin or by `dpctl launch`,
// never by hand; it gets everything from the descriptors of daemon_config.hpp, and takes an argument only from itself (loop/write_record.hpp).
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>

#include "common/daemon_config.hpp"
#include "common/plan_file.hpp"
#include "loop/daemon.hpp"
#include "loop/handshake.hpp"
#include "loop/log.hpp"
#include "loop/write_record.hpp"

namespace {

dp::Try<std::string> read_config_text() {
    std::string text;
    char chunk[4096];
    for (;;) {
        ssize_t n = pread(dp::kFdConfig, chunk, sizeof chunk, static_cast<off_t>(text.size()));
        if (n < 0) return dp::fail("it was started by hand; use srun --dp-world=auto, or dpctl launch");
        if (n == 0) break;
        text.append(chunk, static_cast<size_t>(n));
    }
    close(dp::kFdConfig);
    return text;
}

dp::Try<void> serve() {
    auto text = DP_TRY(read_config_text());
    auto config = DP_TRY(dp::read_config(text));
    auto secret = DP_TRY(dp::secret_from_hex(config.secret));
    config.secret.clear();

    dp::Daemon daemon(config, secret);
    daemon.run();
    return {};
}

// Must not allocate.
[[noreturn]] void out_of_memory() {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    std::array<char, 512> line{};
    const int n = std::snprintf(
        line.data(), line.size(),
        "slurm-dp: node %s: the rendezvous daemon is out of memory and ends; give the step more "
        "(--mem), or put less into the store\n",
        host.data());
    [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), static_cast<size_t>(n));
    _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && argv[1] == std::string_view("write-record")) return dp::write_record(argv[2]);
    std::set_new_handler(out_of_memory);
    // The secret is in this process: no core file, no debugger, no reading of its memory.
    if (prctl(PR_SET_DUMPABLE, 0) != 0) {
        dp::log_line(
            "dp-rendezvousd does not start: the kernel does not let it protect its memory (PR_SET_DUMPABLE)");
        return 1;
    }
    if (auto served = serve(); !served) {
        std::string why = "dp-rendezvousd: " + served.error().message;
        // Where there is a plan file, its tasks wait for an answer; else a person reads this.
        if (!dp::publish_failure(dp::kFdPlanFile, dp::kFdReady, why)) dp::log_line(why);
        return 1;
    }
    return 0;
}
