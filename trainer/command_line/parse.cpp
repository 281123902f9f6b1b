// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "trainer/command_line/nearest.hpp"

namespace dp::trainer {
namespace {

using Words = std::vector<std::string>;

// ---- before CLI11

// What a script's variable that is not set leaves. CLI11 would take the next word for the value of "--json=",
// and a
// --checkpoint-dir that is nowhere would save nothing.
std::optional<std::string> empty_word(const Words& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        const bool is_option = word.starts_with("--");
        if (is_option && word.find('=') == word.size() - 1) return word.substr(0, word.size() - 1);
        if (!word.empty()) continue;
        const bool is_value = i > 0 && words[i - 1].starts_with("--");
        return is_value ? words[i - 1] : i + 1 == words.size() ? "the last word" : "a word";
    }
    return std::nullopt;
}

// Only a text may begin with nothing; that is what it does without the option, too.
Words without_empty_prompt(Words words) {
    std::erase(words, "--prompt=");
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] != "--prompt" || !words[i + 1].empty()) continue;
        const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
        words.erase(at, at + 2);
    }
    return words;
}

Words names_of(const OptionRow& row) {
    return CLI::detail::split(row.names, ',');
}

// Null where there is none of that name.
const OptionRow* row_named(const OptionList& list, std::string_view name) {
    for (const OptionRow& row : list.rows())
        for (const auto& one : names_of(row))
            if (one == name) return &row;
    return nullptr;
}

const OptionRow* row_anywhere(const CommandLine& line, std::string_view name) {
    const OptionRow* row = row_named(line.common, name);
    for (const Subcommand& subcommand : line.subcommands)
        if (row == nullptr) row = row_named(subcommand.options, name);
    return row;
}

// Other programs' scripts write --batch_size. What no option is called stays as it is, and so does an
// option's value, which CLI11 takes whatever it looks like.
Words with_dashes(Words words, const CommandLine& line) {
    bool is_value = false;
    for (std::string& word : words) {
        if (word == "--" && !is_value) break;  // files from here on
        std::string name = word.substr(0, word.find('='));
        const bool has_value = name.size() < word.size();
        std::replace(name.begin(), name.end(), '_', '-');
        const bool is_name = !is_value && name.starts_with("--");
        const OptionRow* row = is_name ? row_anywhere(line, name) : nullptr;
        is_value = row != nullptr && !has_value && !row->type.empty() && row->bare.empty();
        if (row != nullptr) word.replace(0, name.size(), name);
    }
    return words;
}

// ---- CLI11

// A line an option, where it can be.
class ShortHelp : public CLI::Formatter {
 public:
    ShortHelp() { column_width(38); }
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
        return option->get_name(is_positional);  // without the others
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        return (option->get_type_name().empty() ? "" : " " + option->get_type_name()) +
               (option->get_required() ? " (required)" : "");
    }
};

std::string help_of(const OptionRow& row) {
    const auto comma = row.names.find(',');
    return comma == std::string::npos ? row.help
                                      : fmt::format("{} (also {})", row.help, row.names.substr(comma + 1));
}

std::string without_empty_lines(std::string text) {
    for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at))
        text.erase(at, 1);
    return text;
}

CLI::Option* option_for(CLI::App& app, const OptionRow& row) {
    const auto ignore = [](const auto&) {};  // its check has taken the value
    if (row.takes_many) return app.add_option_function<Words>(row.names, ignore, help_of(row));
    return app.add_option_function<std::string>(row.names, ignore, help_of(row));
}

void add(CLI::App& app, const OptionRow& row) {
    if (row.type.empty()) {
        const auto set = [&row] { (void)row.set(""); };
        app.add_flag_callback(row.names, set, help_of(row))->group(row.heading);
        return;
    }
    auto* option = option_for(app, row);
    option->group(row.heading)->required(row.is_required)->type_name(row.type);
    if (row.takes_many) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (!row.bare.empty()) option->expected(0, 1);
    // CLI11 checks each value in its turn: the last one that is given stays in the field.
    option->check(
        CLI::Validator([&row](std::string& value) { return row.set(value).value_or(std::string()); }, ""));
}

// Once all are there.
void relate(CLI::App& app, const OptionList& list) {
    for (const OptionRow& row : list.rows()) {
        if (!row.needs.empty()) app.get_option(row.name())->needs(app.get_option(row.needs));
        if (!row.excludes.empty()) app.get_option(row.name())->excludes(app.get_option(row.excludes));
    }
}

void add_all(CLI::App& app, const OptionList& list) {
    for (const OptionRow& row : list.rows()) add(app, row);
    relate(app, list);
}

void note_given(CLI::App& app, const OptionList& list, Given& given) {
    for (const OptionRow& row : list.rows()) {
        const CLI::Option* option = app.get_option(row.name());
        if (option->count() == 0) continue;
        given.insert(row.name());
        if (!row.bare.empty() && option->results().back().empty()) (void)row.set(row.bare);
    }
}

// ---- what is wrong

// An option that is nobody's, or another's.
std::string unknown_option(std::string name, const CommandLine& line, const Subcommand* chosen) {
    std::replace(name.begin(), name.end(), '_', '-');
    const bool takes_common = chosen == nullptr || chosen->takes_common;
    if (const auto ours = ours_for(name))
        return fmt::format("no such option: {}; here it is {}", name, *ours);
    for (const Subcommand& other : line.subcommands)
        if (row_named(other.options, name) != nullptr)
            return fmt::format("{} is an option of `trainer {}`", name, other.name);
    if (!takes_common && row_named(line.common, name) != nullptr)
        return fmt::format("{} is an option of trainings, and `trainer {}` is none", name, chosen->name);
    Words names;
    const auto add_names = [&](const OptionList& list) {
        for (const OptionRow& row : list.rows())
            for (auto& one : names_of(row)) names.push_back(std::move(one));
    };
    if (takes_common) add_names(line.common);
    if (chosen != nullptr) add_names(chosen->options);
    const auto like = nearest(name, names);
    return fmt::format("no such option: {}{}", name, like ? fmt::format("; do you mean {}?", *like) : "");
}

std::string unknown_word(const std::string& word, const CommandLine& line, const Subcommand* chosen) {
    if (word.starts_with('-')) return unknown_option(word.substr(0, word.find('=')), line, chosen);
    Words names;
    for (const Subcommand& one : line.subcommands) names.push_back(one.name);
    const auto like = nearest(word, names);
    return fmt::format("no such subcommand: {}{}", word, like ? fmt::format("; do you mean {}?", *like) : "");
}

// Of several words that nobody knows it is the first.
std::string complaint_about(const CLI::ParseError& error, const CLI::App& app, const CommandLine& line,
                            const Subcommand* chosen) {
    const std::string what = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)  // "--epochs: 1 required N missing"
        return what.substr(0, what.find(':')) + " needs a value (a negative one is written --option=-1)";
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        const auto unknown = app.remaining(true);
        const bool is_behind_mark = unknown.size() > 1 && unknown.front() == "--";
        return unknown_word(unknown[is_behind_mark ? 1 : 0], line, chosen);
    }
    return what.substr(0, what.find('\n'));
}

}  // namespace

std::string refused(const std::string& what) {
    return what + "; `trainer --help` lists the options";
}

ParsedWords parse_words(const Words& given_words, const CommandLine& line) {
    ParsedWords parsed;
    const Words words = without_empty_prompt(given_words);
    if (const auto empty = empty_word(words)) {
        parsed.complaint =
            refused(fmt::format("{} is empty; give what is missing, or leave the option out (a script's "
                                "variable that is not set?)",
                                *empty));
        return parsed;
    }
    CLI::App app(line.description, "trainer");
    app.footer(line.footer);
    app.formatter(std::make_shared<ShortHelp>());
    // The last of two counts, so that what a job script says can be changed behind it.
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.set_version_flag("--version", line.version);
    app.require_subcommand(0, 1);
    add_all(app, line.common);
    for (const Subcommand& one : line.subcommands) {
        auto* subcommand = app.add_subcommand(one.name, one.help)->fallthrough(one.takes_common);
        subcommand->footer(one.footer);
        add_all(*subcommand, one.options);
    }
    const auto chosen = [&]() -> const Subcommand* {
        for (const Subcommand& one : line.subcommands)
            if (app.got_subcommand(one.name)) return &one;
        return nullptr;
    };
    try {
        // CLI11 takes the words from the back of the vector.
        auto known = with_dashes(words, line);
        std::reverse(known.begin(), known.end());
        app.parse(std::move(known));
    } catch (const CLI::CallForVersion& call) {
        parsed.help = std::string(call.what()) + "\n";
        return parsed;
    } catch (const CLI::Success&) {  // --help
        parsed.help = without_empty_lines(app.help());
        return parsed;
    } catch (const CLI::ParseError& error) {
        parsed.complaint = refused(complaint_about(error, app, line, chosen()));
        return parsed;
    }
    note_given(app, line.common, parsed.given);
    const Subcommand* subcommand = chosen();
    if (subcommand == nullptr) return parsed;
    parsed.subcommand = subcommand->name;
    if (!subcommand->takes_common && !parsed.given.empty())
        parsed.complaint =
            refused(fmt::format("{0} is an option of trainings; those of `trainer {1}` stand behind {1}",
                                *parsed.given.begin(), subcommand->name));
    note_given(*app.get_subcommand(subcommand->name), subcommand->options, parsed.given);
    return parsed;
}

}  // namespace dp::trainer
