// SPDX-License-Identifier: Apache-2.0
//
// Small files of /proc as text.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "base/fd.hpp"

namespace dp {

// As much as can be read; "" if the file cannot be opened.
inline std::string read_file(const std::string& path) {
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text;
    char chunk[4096];
    for (ssize_t n = 0; file && (n = read(file.get(), chunk, sizeof chunk)) > 0;)
        text.append(chunk, static_cast<size_t>(n));
    return text;
}

}  // namespace dp
