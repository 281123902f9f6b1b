// SPDX-License-Identifier: Apache-2.0
//
// The text for an errno in a message, with a remedy if there is one that always holds.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace dp {

inline bool out_of_descriptors(int error) {
    return error == EMFILE || error == ENFILE;
}

inline std::string errno_text(int error) {
    std::string text = std::strerror(error);
    if (error == EMFILE)
        text += "; raise the limit of open files (ulimit -n; for slurmd, LimitNOFILE in its unit)";
    else if (error == ENFILE)
        text += "; raise this machine's limit of open files (sysctl fs.file-max)";
    return text;
}

}  // namespace dp
