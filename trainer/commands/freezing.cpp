// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/freezing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "trainer/command_line/parse.hpp"
#include "trainer/models/freezing.hpp"

namespace dp::trainer {
namespace {

// What people may mean: of h.11.ln_1.bias that, h, h.*, h.*.ln_1 and h.*.ln_1.bias.
std::vector<std::string> names_to_mean(const ParameterSet& parameters) {
    std::set<std::string> names;
    for (const Parameter& one : parameters.all()) {
        names.insert(one.name);
        std::string name;
        for (const std::string_view part : split(one.name, '.')) {
            const bool is_number = part.find_first_not_of("0123456789") == std::string_view::npos;
            name += (name.empty() ? "" : ".") + (is_number ? "*" : std::string(part));
            names.insert(name);
        }
    }
    return {names.begin(), names.end()};
}

// "h, ln_f, wpe and wte".
std::string first_words(const ParameterSet& parameters) {
    std::set<std::string> names;
    for (const Parameter& one : parameters.all()) names.insert(one.name.substr(0, one.name.find('.')));
    const std::string last = *names.rbegin();
    names.erase(last);
    return names.empty() ? last : fmt::format("{} and {}", fmt::join(names, ", "), last);
}

}  // namespace

Result<void> check_freeze(const ModelInfo& info, const ModelShape& shape) {
    if (shape.freeze.empty()) return {};
    const auto model = make_model(info, shape);
    const ParameterSet& parameters = model->parameters();
    for (const std::string& pattern : shape.freeze) {
        const auto is_meant = [&](const Parameter& one) { return is_named_like(one.name, pattern); };
        if (std::ranges::any_of(parameters.all(), is_meant)) {
            const auto would_learn = [&](const Parameter& one) { return one.is_adapter && is_meant(one); };
            if (shape.gpt.lora_rank == 0 || std::ranges::any_of(parameters.all(), would_learn)) continue;
            return fail(Fault::usage,
                        "--freeze={}: --lora-rank freezes these parameters already; leave out --freeze or "
                        "--lora-rank",
                        pattern);
        }
        const auto similar = nearest(pattern, names_to_mean(parameters));
        return fail(Fault::usage,
                    "--freeze: {} has no parameter '{}'; {}; `trainer info --model={}` lists them", info.name,
                    pattern,
                    similar ? fmt::format("do you mean {}?", *similar)
                            : fmt::format("its names begin with {}", first_words(parameters)),
                    info.name);
    }
    if (parameters.whole_learned_count() == 0)
        return fail(Fault::usage, "--freeze: '{}' is all of {}, and leaves nothing to train; freeze less",
                    fmt::join(shape.freeze, ","), info.name);
    return {};
}

}  // namespace dp::trainer
