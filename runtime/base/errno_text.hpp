// SPDX-License-Identifier: Apache-2.0
//
// The words for an errno, with the remedy where there is one that holds wherever it happens. Used in messages
// by the plugin, the daemon and libdp.
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
