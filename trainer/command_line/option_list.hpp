// SPDX-License-Identifier: Apache-2.0
//
// The one description of an option: its names, where its value goes, what it may be, what it means, and what
// depends on it. From it follow the command line and its help (parse.hpp), what ranks compare before they
// train together, what a compiled plan depends on, and what a checkpoint has to agree with.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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
    // Why ranks may be given different values; null: all must have the same, else they wait for each other or
    // learn different things.
    const char* may_differ;
    PlanUse plan;
    bool resumes;  // a checkpoint that was written with another value can be gone on from
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
    std::string only_of = {};               // the model or optimizer that alone looks at it
    std::string bare = {};                  // the value that it has without one
    bool is_required = false, takes_many = false;

    std::string name() const { return names.substr(0, names.find(',')); }
};

class OptionList {
 public:
    const std::deque<OptionRow>& rows() const { return rows_; }
    // Of the rows that follow.
    void heading(std::string text) { heading_ = std::move(text); }

    // The field must outlive the list.
    template <typename Field, typename T>
    OptionRow& add(std::string names, Field& field, Format<T> format, std::string help, const Uses& uses) {
        return put(
            std::move(names), format, std::move(help), uses,
            [&field](T value) { field = static_cast<Field>(std::move(value)); },
            [&field, text = format.text] { return text(static_cast<T>(field)); });
    }
    template <typename T>
    OptionRow& add(std::string names, std::optional<T>& field, Format<T> format, std::string help,
                   const Uses& uses) {
        return put(
            std::move(names), format, std::move(help), uses, [&field](T value) { field = std::move(value); },
            [&field, text = format.text] { return field ? text(*field) : "none"; });
    }
    // Each time that it is given it adds one.
    template <typename T>
    OptionRow& add(std::string names, std::vector<T>& field, Format<T> format, std::string help,
                   const Uses& uses) {
        auto& row = put(
            std::move(names), format, std::move(help), uses,
            [&field](T value) { field.push_back(std::move(value)); }, [] { return std::string("none"); });
        row.takes_many = true;
        return row;
    }
    // Sets the field to `value`.
    template <typename T>
    OptionRow& flag(std::string names, T& field, T value, std::string help, const Uses& uses) {
        rows_.push_back({std::move(names), "", std::move(help), heading_, uses,
                         [&field, value](const std::string&) {
                             field = value;
                             return std::optional<std::string>();
                         },
                         [&field, value] { return std::string(field == value ? "given" : "none"); }});
        return rows_.back();
    }
    OptionRow& flag(std::string names, bool& field, std::string help, const Uses& uses) {
        return flag(std::move(names), field, true, std::move(help), uses);
    }

 private:
    std::deque<OptionRow> rows_;
    std::string heading_ = "Options";

    template <typename T, typename Set, typename Text>
    OptionRow& put(std::string names, const Format<T>& format, std::string help, const Uses& uses, Set set,
                   Text text) {
        const auto take = [set,
                           parse = format.parse](const std::string& given) -> std::optional<std::string> {
            auto value = parse(given);
            if (!value) return std::move(value.error().message);
            set(std::move(*value));
            return std::nullopt;
        };
        rows_.push_back({std::move(names), format.type, std::move(help), heading_, uses, take, text});
        return rows_.back();
    }
};

}  // namespace dp::trainer
