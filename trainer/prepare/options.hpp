// SPDX-License-Identifier: Apache-2.0
//
// The options of `trainer prepare`: options.cpp adds them to the verb, prepare.cpp does what they say.
#ifndef TRAINER_PREPARE_OPTIONS_HPP
#define TRAINER_PREPARE_OPTIONS_HPP

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dp::trainer {

struct PrepareOptions {
    std::string data = "sotu";                // one of sources.hpp's, where there is no `text`
    std::vector<std::filesystem::path> text;  // a user's own: files, or directories of *.txt
    std::filesystem::path output;
    std::optional<std::filesystem::path> from;  // where fetched files are
    std::string tokenizer = "gpt2";
    double validation = 0.05;  // the part of the tokens that is for the test
};

// `options` must outlive the parsing.
void add_prepare_options(CLI::App& verb, PrepareOptions& options);

}  // namespace dp::trainer

#endif
