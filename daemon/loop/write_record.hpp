// SPDX-License-Identifier: Apache-2.0
//
// `dp-rendezvousd write-record FILE`, which the daemon runs with --dp-record (record_writer.hpp): the same program, because it starts
// soonest, and exists whatever file system the task sees.
#pragma once

#include <string>

namespace dp {

// Standard input goes to this new file, in folders that are made. Returns the exit code: 1, with a line on standard output, if it cannot
// be written.
int write_record(const std::string& file);

}  // namespace dp
