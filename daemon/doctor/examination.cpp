// SPDX-License-Identifier: Apache-2.0
#include "doctor/examination.hpp"

#include <sys/utsname.h>

#include <map>
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

namespace dp::doctor {
namespace {

bool is_python(std::string_view program) {
    return program.substr(program.rfind('/') + 1).starts_with("python");
}

// "8 NVIDIA H100, 1 NVIDIA A100"
std::string kinds_of(const std::vector<Gpu>& gpus) {
    std::map<std::string, size_t> kinds;
    for (const Gpu& gpu : gpus) ++kinds[gpu.name];
    std::vector<std::string> words;
    for (const auto& [name, count] : kinds) words.push_back(std::to_string(count) + " " + name);
    return words.empty() ? "none" : join(words, ", ");
}

}  // namespace

Examination examine_machine(const Machine& machine) {
    Examination found;
    const auto add = [&](const char* topic, Findings findings) {
        found.topics.push_back({topic, std::move(findings)});
    };
    found.host = printable(host_name(), 80);
    add("kernel", check_kernel(read_kernel(machine.root)));
    const NetworkFacts network = read_network(machine.root);
    add("network", check_network(network));
    add("Slurm", check_slurm(read_slurm(machine.scontrol)));
    const CoreFacts cores = read_cores(machine.root);
    add("cores", check_cores(cores));
    add("disks", check_folders(read_folders()));
    const GpuFacts gpus = read_gpus(machine.root, machine.nvml);
    add("GPUs", check_gpus(gpus));
    const LibraryFacts libraries = read_libraries(machine.program);
    add("libraries", check_libraries(libraries, gpus.cuda));

    found.facts = {{"GPUs", kinds_of(gpus.gpus)},
                   {"CPUs", std::to_string(cores.allowed)},
                   {"slurm-dp", machine.version}};
    if (const auto mtu = mtu_for_others(network)) found.facts["MTU"] = std::to_string(*mtu);
    if (!gpus.driver.empty()) found.facts["driver"] = gpus.driver;
    if (const auto nccl = libraries.found.find("NCCL"); nccl != libraries.found.end())
        found.facts["NCCL"] = nccl->second.substr(0, nccl->second.find(','));
    if (utsname system{}; uname(&system) == 0) found.facts["kernel"] = printable(system.release, 80);

    // Another program does not care about PyTorch.
    const std::string& given = machine.program;
    const std::string python = given.empty() ? "python3" : is_python(given) ? given : libraries.interpreter;
    if (!is_python(python)) return found;
    const PyTorchFacts torch = read_pytorch(python);
    add("Python", check_pytorch(torch, gpus.gpus.size()));
    if (torch.state == PyTorchFacts::works) found.facts["PyTorch"] = torch.version;
    return found;
}

std::string to_text(const Examination& examination) {
    nlohmann::json topics = nlohmann::json::array();
    for (const Topic& topic : examination.topics) {
        nlohmann::json findings = nlohmann::json::array();
        for (const Finding& one : topic.findings)
            findings.push_back({one.check, static_cast<int>(one.level), one.seen, one.why, one.remedy});
        topics.push_back({topic.name, std::move(findings)});
    }
    const nlohmann::json all = {
        {"host", examination.host}, {"topics", std::move(topics)}, {"facts", examination.facts}};
    return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Try<Examination> examination_from(const std::string& text) try {
    const auto all = nlohmann::json::parse(text);
    Examination found;
    found.host = printable(all.at("host").get<std::string>(), 80);
    for (const auto& topic : all.at("topics")) {
        Findings findings;
        for (const auto& one : topic.at(1)) {
            const int level = one.at(1).get<int>();
            if (level < 0 || level > static_cast<int>(Level::fault)) return fail("no such level");
            findings.push_back({one.at(0), static_cast<Level>(level), one.at(2), one.at(3), one.at(4)});
        }
        found.topics.push_back({topic.at(0), std::move(findings)});
    }
    found.facts = all.at("facts").get<NodeFacts>();
    return found;
} catch (const nlohmann::json::exception& error) {
    return fail(std::string("another version's answer: ") + error.what());
}

}  // namespace dp::doctor
