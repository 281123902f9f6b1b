// SPDX-License-Identifier: Apache-2.0
//
// `dpctl doctor`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "doctor/cores.hpp"
#include "doctor/disks.hpp"
#include "doctor/gpus.hpp"
#include "doctor/kernel.hpp"
#include "doctor/libraries.hpp"
#include "doctor/network.hpp"
#include "doctor/pytorch.hpp"
#include "doctor/slurm.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"

namespace dp {
namespace {

using doctor::Finding;
using doctor::Level;

const char* in_words(Level level) {
    switch (level) {
        case Level::ok:
            return "ok";
        case Level::warning:
            return "warning";
        case Level::fault:
            return "fault";
    }
    return "";
}

size_t count(const std::vector<doctor::Topic>& topics, Level level) {
    size_t found = 0;
    for (const auto& topic : topics)
        found += static_cast<size_t>(std::ranges::count(topic.findings, level, &Finding::level));
    return found;
}

bool is_python(std::string_view program) {
    return program.substr(program.rfind('/') + 1).starts_with("python");
}

std::vector<doctor::Topic> look(const DoctorOptions& options) {
    const std::string program = options.command.empty() ? "" : options.command.front();
    std::vector<doctor::Topic> topics;
    topics.push_back({"kernel", check_kernel(doctor::read_kernel(options.root))});
    topics.push_back({"network", check_network(doctor::read_network(options.root))});
    topics.push_back({"Slurm", check_slurm(doctor::read_slurm(options.scontrol))});
    topics.push_back({"cores", check_cores(doctor::read_cores(options.root))});
    topics.push_back({"disks", check_folders(doctor::read_folders())});
    const auto gpus = doctor::read_gpus(options.root, options.nvml);
    topics.push_back({"GPUs", check_gpus(gpus)});
    const auto libraries = doctor::read_libraries(program);
    topics.push_back({"libraries", check_libraries(libraries, gpus.cuda)});
    // Another program does not care about PyTorch.
    const std::string python = program.empty()      ? "python3"
                               : is_python(program) ? program
                                                    : libraries.interpreter;
    if (is_python(python))
        topics.push_back({"Python", check_pytorch(doctor::read_pytorch(python), gpus.gpus.size())});
    return topics;
}

}  // namespace

std::string doctor_text(const std::string& host, const std::vector<doctor::Topic>& topics) {
    size_t width = 0, checks = 0;
    for (const auto& topic : topics)
        for (const Finding& one : topic.findings) width = std::max(width, one.check.size());
    std::string out;
    for (const auto& topic : topics) {
        if (topic.findings.empty()) continue;
        out += topic.name + "\n";
        for (const Finding& one : topic.findings) {
            ++checks;
            out += fmt::format("  {:<7}  {:<{}}  {}\n",
                               one.level == Level::ok      ? "ok"
                               : one.level == Level::fault ? "FAULT"
                                                           : "WARNING",
                               one.check, width, one.seen);
            if (one.level != Level::ok)
                out += fmt::format("           {}\n           → {}\n", one.why, one.remedy);
        }
    }
    return out + fmt::format("{}: {}, {}, {}\n", host, plural(checks, "check"),
                             plural(count(topics, Level::fault), "fault"),
                             plural(count(topics, Level::warning), "warning"));
}

std::string doctor_json(const std::string& host, const std::vector<doctor::Topic>& topics) {
    using Json = nlohmann::ordered_json;
    Json checks = Json::array();
    for (const auto& topic : topics)
        for (const Finding& one : topic.findings)
            checks.push_back({{"topic", topic.name},
                              {"check", one.check},
                              {"level", in_words(one.level)},
                              {"seen", one.seen},
                              {"why", one.why},
                              {"remedy", one.remedy}});
    const Json out = {{"host", host},
                      {"faults", count(topics, Level::fault)},
                      {"warnings", count(topics, Level::warning)},
                      {"checks", std::move(checks)}};
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int examine(const DoctorOptions& options) {
    const std::string host = printable(host_name(), 80);
    const auto topics = look(options);
    const int printed = print(options.json ? doctor_json(host, topics) : doctor_text(host, topics));
    return count(topics, Level::fault) > 0 ? 1 : printed;
}

}  // namespace dp
