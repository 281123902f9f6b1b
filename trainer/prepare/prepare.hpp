// SPDX-License-Identifier: Apache-2.0
//
// `trainer prepare`: makes a data set ready in a directory, for --data-dir. main.cpp calls it.
#pragma once

#include <span>

#include "trainer/prepare/sources.hpp"

namespace dp::trainer {

struct PrepareOptions {
    std::string data = "sotu";                // one of sources.hpp's, where there is no `text`
    std::vector<std::filesystem::path> text;  // a user's own: files, or directories of *.txt
    std::filesystem::path output;
    std::optional<std::filesystem::path> from;  // where fetched files are
    std::string tokenizer = "gpt2";             // or "bytes", or a file of open_tokenizer_file()'s
    double validation = 0.05;                   // the part of the tokens that is for the test
};

// The directory has either all files or none; where it was not there it is not there after an error. Of
// processes that do this at the same time for one directory (ranks of a node, or on a shared file system) the
// first does it and the others wait; nothing is done twice. Returns the line for a person. `sources`: a test
// has one of its own.
Result<std::string> prepare_data(const PrepareOptions& options, std::span<const Source> sources = kSources);

}  // namespace dp::trainer
