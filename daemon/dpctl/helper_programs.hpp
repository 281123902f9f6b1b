// SPDX-License-Identifier: Apache-2.0
//
// The programs that dpctl starts.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace dp {

// The one beside this program, else the installed one.
inline std::string helper_program(const char* name) {
    std::error_code unknown;
    auto beside = std::filesystem::read_symlink("/proc/self/exe", unknown);
    beside.replace_filename(name);
    return !unknown && access(beside.c_str(), X_OK) == 0 ? beside.string()
                                                         : DP_LIBEXEC "/" + std::string(name);
}

}  // namespace dp
