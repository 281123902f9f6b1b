// SPDX-License-Identifier: Apache-2.0
//
// A file that is there as a whole or, if it cannot be written, as it was before: for what dpctl writes where the user says.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "base/failure.hpp"

namespace dp {

// `write` writes beside the file that is there, which is then replaced and keeps its permissions. What is no file (/dev/stdout, a pipe)
// is written to as it is, and so is a file that this process has open: the shell's >.
Try<void> write_whole_file(const std::string& path, const std::function<Try<void>(std::ostream&)>& write);

}  // namespace dp
