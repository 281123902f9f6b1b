// SPDX-License-Identifier: Apache-2.0
//
// Options: lines of NAME=VALUE. What is accepted survives the way through the environment, and can be judged.
#include "common/options.hpp"

#include <map>
#include <string>

#include "base/text.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    Settings settings;
    for (std::string_view line : split(fuzz::text_of(data, size), '\n')) {
        const size_t equals = line.find('=');
        const auto set = set_option(settings, line.substr(0, equals),
                                    equals == std::string_view::npos ? "" : line.substr(equals + 1));
        if (!set) fuzz::must(set.error().message.find('\n') == std::string::npos, "a refusal is one line");
    }
    std::map<std::string, std::string> environment;
    for (auto& [name, value] : settings_to_environment(settings)) environment.emplace(name, value);
    const auto again = settings_from_environment([&](const char* name) -> std::optional<std::string> {
        auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
    fuzz::must(again && *again == settings, "the environment carries what the options said");
    fuzz::must(merge(settings, Settings{}) == settings, "nothing added is nothing changed");
    for (uint32_t tasks : {0u, 1u, 8u, 4096u})
        for (uint32_t nodes : {1u, 4u}) judge_step(settings, settings, tasks, nodes);
    contradiction(settings);
    return 0;
}
