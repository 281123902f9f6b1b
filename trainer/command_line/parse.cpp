// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>

#include "base/help_lines.hpp"

namespace dp::trainer {
namespace {

using Words = std::vector<std::string>;

// What a script's unset variable leaves. CLI11 would take the next word for the value of "--json=".
std::optional<std::string> empty_word(const Words& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        const std::string before = i > 0 ? words[i - 1] : "";
        if (word.starts_with("--") && word.find('=') == word.size() - 1)
            return word.substr(0, word.size() - 1);
        if (!word.empty() || before == "--prompt") continue;  // only a text may begin with nothing
        return before.starts_with("--") ? before : i + 1 == words.size() ? "the last word" : "a word";
    }
    return std::nullopt;
}

// With those that other programs' scripts write: --batch_size.
std::string names_in_cli(const OptionRow& row) {
    std::string names = row.names, others = row.names;
    for (std::size_t i = 1; i < others.size(); ++i)
        if (others[i] == '-' && std::isalnum(static_cast<unsigned char>(others[i - 1])) != 0) others[i] = '_';
    return others == names ? names : names + "," + others;
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

// ---- CLI11

// A line an option, where it can be.
class ShortHelp : public CLI::Formatter {
 public:
    ShortHelp() {
        column_width(38);
        keep_help_lines(*this);
    }
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
        return option->get_name(is_positional);  // without the others
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        return (option->get_type_name().empty() ? "" : " " + option->get_type_name()) +
               (option->get_required() ? " (required)" : "");
    }
};

std::string without_empty_lines(std::string text) {
    for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at))
        text.erase(at, 1);
    return text;
}

void add(CLI::App& app, const OptionRow& row) {
    const auto comma = row.names.find(',');
    const std::string help = comma == std::string::npos
                                 ? row.help
                                 : fmt::format("{} (also {})", row.help, row.names.substr(comma + 1));
    if (row.type.empty()) {
        const auto set = [&row] { (void)row.set(""); };
        app.add_flag_callback(names_in_cli(row), set, help)->group(row.heading);
        return;
    }
    auto* option = app.add_option(names_in_cli(row), help);
    option->group(row.heading)->required(row.is_required)->type_name(row.type);
    if (row.takes_many)
        option->expected(CLI::detail::expected_max_vector_size)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (!row.bare.empty()) option->expected(0, 1);
    // CLI11 checks each value in its turn: the last one that is given stays in the field.
    option->check(
        CLI::Validator([&row](std::string& value) { return row.set(value).value_or(std::string()); }, ""));
}

void add_all(CLI::App& app, const OptionList& list) {
    for (const OptionRow& row : list.rows()) add(app, row);
    for (const OptionRow& row : list.rows()) {
        if (!row.needs.empty()) app.get_option(row.name())->needs(app.get_option(row.needs));
        if (!row.excludes.empty()) app.get_option(row.name())->excludes(app.get_option(row.excludes));
    }
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

std::string suggestion(const std::string& word, const Words& names) {
    const auto like = nearest(word, names);
    return like ? fmt::format("; do you mean {}?", *like) : "";
}

// An option that does not exist, or that is another subcommand's.
std::string unknown_option(const std::string& name, const CommandLine& line, const Subcommand* chosen) {
    const bool takes_common = chosen == nullptr || chosen->takes_common;
    if (const auto ours = ours_for(name))
        return fmt::format("no such option: {}; here it is {}", name, *ours);
    for (const Subcommand& other : line.subcommands)
        if (row_named(other.options, name) != nullptr)
            return fmt::format("{} is an option of `trainer {}`", name, other.name);
    if (!takes_common && row_named(line.common, name) != nullptr)
        return fmt::format("{} is for training; `trainer {}` does not take it", name, chosen->name);
    Words names;
    const auto add_names = [&](const OptionList& list) {
        for (const OptionRow& row : list.rows())
            for (auto& one : names_of(row)) names.push_back(std::move(one));
    };
    if (takes_common) add_names(line.common);
    if (chosen != nullptr) add_names(chosen->options);
    return fmt::format("no such option: {}{}", name, suggestion(name, names));
}

std::string unknown_word(const std::string& word, const CommandLine& line, const Subcommand* chosen) {
    if (word.starts_with('-')) {
        std::string name = word.substr(0, word.find('='));
        std::replace(name.begin(), name.end(), '_', '-');
        return unknown_option(name, line, chosen);
    }
    if (chosen != nullptr) return fmt::format("unexpected argument of `trainer {}`: {}", chosen->name, word);
    Words names;
    for (const Subcommand& one : line.subcommands) names.push_back(one.name);
    return fmt::format("no such subcommand: {}{}", word, suggestion(word, names));
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

ParsedWords parse_words(Words words, const CommandLine& line) {
    ParsedWords parsed;
    std::erase(words, "--prompt=");  // what it is without the option, too
    if (const auto empty = empty_word(words)) {
        parsed.complaint = refused(fmt::format(
            "{} is empty; give a value, or leave the option out (is a variable of the script not set?)",
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
        std::reverse(words.begin(), words.end());
        app.parse(std::move(words));
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
            refused(fmt::format("{0} is for training; the options of `trainer {1}` come after {1}",
                                *parsed.given.begin(), subcommand->name));
    note_given(*app.get_subcommand(subcommand->name), subcommand->options, parsed.given);
    return parsed;
}

}  // namespace dp::trainer
