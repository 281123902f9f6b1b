// SPDX-License-Identifier: Apache-2.0
//
// The one description of an option. From it follow the command line and its help (parse_words()), what ranks
// compare before they train together, what a compiled plan depends on, and what a checkpoint must agree with.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "trainer/command_line/values.hpp"

namespace dp::trainer {

// Whether a plan that `trainer compile` made holds for another value.
enum class PlanUse {
    none,         // it does
    given,        // it holds for all values but "none"
    every_value,  // it does not
};

// What depends on an option. There is no default: whoever adds an option says it.
struct Uses {
    // Why ranks may be given different values; null: they would hang, or learn different things.
    const char* may_differ;
    PlanUse plan;
    bool resumes;  // whether a training can resume from a checkpoint that was written with another value
};

// How a training goes; what it is; and where it writes or looks, which changes neither.
inline constexpr Uses kCourse{nullptr, PlanUse::none, true};
inline constexpr Uses kIdentity{nullptr, PlanUse::every_value, false};
inline constexpr Uses kCost{nullptr, PlanUse::every_value, true};
inline constexpr Uses kCostIfGiven{nullptr, PlanUse::given, true};
constexpr Uses own_of_a_rank(const char* why) {
    return {why, PlanUse::none, true};
}

struct OptionRow {
    std::string names;  // "--lr-schedule,--lr-decay-style": messages have the first
    std::string type;   // of its value, in help; "": it takes none
    std::string help;
    std::string heading;  // in help
    Uses uses;
    // Takes a value; or the complaint.
    std::function<std::optional<std::string>(const std::string&)> set;
    // The value now, as ranks compare it; "none" where there is none.
    std::function<std::string()> text;
    // What few options have.
    std::string needs = {}, excludes = {};  // names of others
    std::string only_of = {};               // the only model or optimizer that uses it
    std::string bare = {};                  // its value if none is given
    bool is_required = false, takes_many = false;

    std::string name() const { return names.substr(0, names.find(',')); }
};

class OptionList {
 public:
    const std::deque<OptionRow>& rows() const { return rows_; }
    // Of the rows that follow.
    void heading(std::string text) { heading_ = std::move(text); }

    // The field must outlive the list. It is a value, an optional, or a vector, to which each use adds one.
    template <typename Field, typename T>
    OptionRow& add(std::string names, Field& field, const Format<T>& format, std::string help,
                   const Uses& uses) {
        constexpr bool kIsVector = requires(T value) {
            field.push_back(value);
        };
        const auto set = [&field, parse = format.parse](const std::string& given) {
            Try<T> value = parse(given);
            if (!value) return std::optional(value.error().message);
            if constexpr (kIsVector)
                field.push_back(*std::move(value));
            else
                field = static_cast<Field>(*std::move(value));
            return std::optional<std::string>();
        };
        const auto text = [&field, write = format.text]() -> std::string {
            if constexpr (kIsVector)
                return (void)field, "none";  // clang 14 wants each capture used in each instance
            else if constexpr (requires { field.has_value(); })
                return field ? write(*field) : "none";
            else
                return write(static_cast<T>(field));
        };
        rows_.push_back({std::move(names), format.type, std::move(help), heading_, uses, set, text});
        rows_.back().takes_many = kIsVector;
        return rows_.back();
    }
    // Sets the field to `value`.
    template <typename T>
    OptionRow& flag(std::string names, T& field, T value, std::string help, const Uses& uses) {
        const auto set = [&field, value](const std::string&) {
            field = value;
            return std::optional<std::string>();
        };
        const auto text = [&field, value] { return std::string(field == value ? "given" : "none"); };
        rows_.push_back({std::move(names), "", std::move(help), heading_, uses, set, text});
        return rows_.back();
    }
    OptionRow& flag(std::string names, bool& field, std::string help, const Uses& uses) {
        return flag(std::move(names), field, true, std::move(help), uses);
    }

 private:
    std::deque<OptionRow> rows_;
    std::string heading_ = "Options";
};

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

// Pure, for an unknown word (nearest.cpp): the most similar name, if it is a few letters off or longer; and
// our name for an option of Megatron-LM, PyTorch or Hugging Face's trainer.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names);
std::optional<std::string_view> ours_for(std::string_view name);

}  // namespace dp::trainer
