// SPDX-License-Identifier: Apache-2.0
#include "record/environment.hpp"

#include "base/text.hpp"
#include "common/control.hpp"
#include "record/entries.hpp"

namespace dp {
namespace {

constexpr size_t kMostVariables = 128;  // of a rank; slurm-dp sets some 30

// What is not in `other`, or has another value there, is each rank's own from now on.
void keep_common(RecordedEnvironment& all, const Variables& other) {
    std::erase_if(all.common, [&](const auto& variable) {
        const auto found = other.find(variable.first);
        if (found != other.end() && found->second == variable.second) return false;
        for (auto& [rank, own] : all.ranks) own.insert(variable);
        return true;
    });
}

template <typename List>
void write_variables(const Variables& variables, List& list) {
    for (const auto& [name, value] : variables) {
        auto& one = *list.Add();
        one.set_name(name);
        one.set_value(value);
    }
}

// nullopt: no rank can have told so much.
template <typename List>
std::optional<Variables> read_variables(const List& list) {
    Variables variables;
    size_t bytes = 0;
    // Each may become each rank's own.
    if (static_cast<size_t>(list.size()) > kMostVariables) return std::nullopt;
    for (const auto& one : list) {
        bytes += one.name().size() + one.value().size();
        if (bytes > kMaxControl) return std::nullopt;
        variables[printable(one.name())] = printable(one.value(), kMaxRecordText);
    }
    return variables;
}

}  // namespace

void RecordedEnvironment::merge(RecordedEnvironment more) {
    if (ranks.empty()) common = more.common;
    const Variables before = common;
    keep_common(*this, more.common);
    keep_common(more, before);
    ranks.merge(more.ranks);
}

Variables variables_of(std::string_view told) {
    Variables variables;
    for (const std::string_view variable : split(told, '\0'))
        if (const size_t equals = variable.find('='); equals != variable.npos)
            variables[printable(variable.substr(0, equals))] =
                printable(variable.substr(equals + 1), kMaxRecordText);
    return variables;
}

record::Entry environment_entry(uint32_t generation, const std::map<uint32_t, Variables>& ranks) {
    RecordedEnvironment all;
    for (const auto& [rank, variables] : ranks) all.merge({variables, {{rank, {}}}});
    record::Entry entry;
    auto& environment = *entry.mutable_environment();
    environment.set_generation(generation);
    write_variables(all.common, *environment.mutable_common());
    for (const auto& [rank, own] : all.ranks) {
        auto& one = *environment.add_ranks();
        one.set_rank(rank);
        write_variables(own, *one.mutable_variables());
    }
    return entry;
}

std::optional<RecordedEnvironment> environment_of(const record::Environment& said, size_t ranks) {
    RecordedEnvironment out;
    auto common = read_variables(said.common());
    if (!common || static_cast<size_t>(said.ranks_size()) > ranks) return std::nullopt;
    out.common = std::move(*common);
    for (const auto& one : said.ranks()) {
        auto own = read_variables(one.variables());
        if (!own) return std::nullopt;
        out.ranks[one.rank()] = std::move(*own);
    }
    return out;
}

}  // namespace dp
