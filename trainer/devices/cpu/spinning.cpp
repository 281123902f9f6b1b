// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cpu/spinning.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

namespace dp::trainer::cpu {

bool must_bound_spinning(int threads, const char* wait_policy, const char* spin_count) {
    return threads > 1 && wait_policy == nullptr && spin_count == nullptr;
}

void bound_spinning(int threads, char** arguments) {
    constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
    if (!must_bound_spinning(threads, std::getenv("OMP_WAIT_POLICY"), std::getenv(kSpinCount))) return;
    // If the program was started through ld.so, which then has no address of its own, /proc/self/exe
    // names another program.
    if (getauxval(AT_BASE) == 0) return;
    // By its path, from which the kernel takes the process's name.
    std::string program(PATH_MAX, '\0');
    const ssize_t length = readlink("/proc/self/exe", program.data(), program.size() - 1);
    if (length <= 0) return;
    program.resize(static_cast<std::size_t>(length));
    // It is set from now on, so this happens only once.
    if (setenv(kSpinCount, kSpins, 1) == 0) execv(program.c_str(), arguments);
}

}  // namespace dp::trainer::cpu
