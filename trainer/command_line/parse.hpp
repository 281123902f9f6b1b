// SPDX-License-Identifier: Apache-2.0
//
// From the words of a command line into the fields of its options (option_list.hpp), and its help. Whoever
// includes this pays nothing for CLI11, which parse.cpp alone does.
#pragma once

#include <set>
#include <vector>

#include "trainer/command_line/option_list.hpp"

namespace dp::trainer {

struct Subcommand {
    std::string name, help;
    bool takes_common = false;  // the options of the command line, too
    OptionList options = {};
    std::string footer = {};
};

struct CommandLine {
    std::string version, description, footer;
    OptionList common;
    std::deque<Subcommand> subcommands;
};

using Given = std::set<std::string, std::less<>>;

struct ParsedWords {
    Given given;                           // the names of the options that were
    std::string subcommand;                // "": none
    std::optional<std::string> help;       // to print, and no more
    std::optional<std::string> complaint;  // one line, without the program's name
};

ParsedWords parse_words(std::vector<std::string> words, const CommandLine& command_line);

// What every complaint about a command line ends with.
std::string refused(const std::string& what);

}  // namespace dp::trainer
