// SPDX-License-Identifier: Apache-2.0
//
// `dpctl history`: the deaths that a step has survived (--dp-on-failure=restart).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "engine/table.hpp"

namespace dp {

std::string generation_in_words(const wire::StepStatus& status) {
    std::string out = fmt::format("generation {}", status.generation());
    if (status.has_restarts_left()) out += ", " + plural(status.restarts_left(), "restart") + " left";
    if (status.spares_left() > 0) out += ", " + plural(status.spares_left(), "spare node");
    return out;
}

std::string history_text(const std::string& step, const wire::StepStatus& status) {
    std::string out = fmt::format("step {}: {}\n", step, generation_in_words(status));
    std::vector<std::vector<std::string>> lines;
    for (const auto& one : status.restarts()) {
        lines.push_back({fmt::format("after {:.2f} s", static_cast<double>(one.died_ms()) / 1e3),
                         fmt::format("generation {} began {:.2f} s later", one.generation(),
                                     static_cast<double>(one.began_ms() - one.died_ms()) / 1e3),
                         one.reason()});
        if (one.has_first_step())
            lines.back().back() += fmt::format(
                "; its first step, {}, came {:.2f} s after the failure, {} repeated", one.first_step().step(),
                static_cast<double>(one.first_step().at_ms() - one.died_ms()) / 1e3,
                plural(one.first_step().repeated(), "step"));
    }
    return out + aligned(lines, 2);
}

std::string history_json(const std::string& step, const wire::StepStatus& status) {
    using Json = nlohmann::ordered_json;
    Json restarts = Json::array();
    for (const auto& one : status.restarts()) {
        Json& restart = restarts.emplace_back(Json{{"generation", one.generation()},
                                                   {"died_ms", one.died_ms()},
                                                   {"began_ms", one.began_ms()},
                                                   {"reason", one.reason()}});
        if (!one.has_first_step()) continue;
        restart["first_step"] = one.first_step().step();
        restart["first_step_ms"] = one.first_step().at_ms();
        restart["steps_repeated"] = one.first_step().repeated();
    }
    Json out = {{"step", step}, {"generation", status.generation()}, {"restarts", std::move(restarts)}};
    if (status.has_restarts_left()) out["restarts_left"] = status.restarts_left();
    out["spares_left"] = status.spares_left();
    return out.dump(2) + "\n";
}

int show_history(const StatusOptions& options) {
    auto answer = query_step(options.step);
    if (!answer) return complain(answer.error().message);
    return print(options.json ? history_json(answer->step, answer->status)
                              : history_text(answer->step, answer->status));
}

}  // namespace dp
