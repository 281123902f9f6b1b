// SPDX-License-Identifier: Apache-2.0
//
// Whose a Python file is, by its path. Pure.
#pragma once

#include <string_view>

namespace dp::stacks {

enum class PythonFile { user, package, standard };

// "/usr/lib/python3.11/queue.py" is Python's own, as is "<frozen importlib._bootstrap>"; what was installed beside it (torch) is a
// package; the rest is the user's.
inline PythonFile kind_of_python_file(std::string_view path) {
    if (path.find("-packages/") != std::string_view::npos) return PythonFile::package;
    const bool is_standard =
        path.starts_with("<frozen ") || path.find("/lib/python3") != std::string_view::npos;
    return is_standard ? PythonFile::standard : PythonFile::user;
}

}  // namespace dp::stacks
