// SPDX-License-Identifier: Apache-2.0
//
// The words of the command line before CLI11 takes them; options.cpp calls these.
#ifndef TRAINER_COMMAND_LINE_WORDS_HPP
#define TRAINER_COMMAND_LINE_WORDS_HPP

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dp::trainer {

// What a script's variable that is not set leaves. CLI11 would take the next word for the value of "--json=",
// and a --checkpoint-dir that is nowhere would save nothing.
std::optional<std::string> empty_word(const std::vector<std::string>& words);

// Only a text may begin with nothing; that is what it does without the option, too.
std::vector<std::string> without_empty_prompt(std::vector<std::string> words);

// The seeds' scripts write --batch_size. What no option is called stays as it is, and so does an option's
// value, which CLI11 takes whatever it looks like.
std::vector<std::string> with_dashes(std::vector<std::string> words, const CLI::App& app);

}  // namespace dp::trainer

#endif
