// SPDX-License-Identifier: Apache-2.0
//
// Stands in for a dp-rendezvousd of another version in the cluster tests: the real one, which finds the
// number of a version that it does not know in what the plugin hands over.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "common/daemon_config.hpp"

int main() {
    std::string text(1 << 16, '\0');
    const ssize_t size = pread(dp::kFdConfig, text.data(), text.size(), 0);
    if (size <= 0) return 1;
    text.resize(static_cast<size_t>(size));
    const std::string known = "version=" + std::to_string(dp::kDaemonConfigVersion) + "\n";
    const size_t at = text.find(known);
    if (at == std::string::npos) return 1;
    text.replace(at, known.size(), "version=4711\n");
    if (pwrite(dp::kFdConfig, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return 1;
    execl(DP_TEST_DAEMON, "dp-rendezvousd", nullptr);
    return 1;
}
