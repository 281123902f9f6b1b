// SPDX-License-Identifier: Apache-2.0
#include "doctor/examination.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <map>

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "doctor/cores.hpp"
#include "doctor/disks.hpp"
#include "doctor/gpu_speed.hpp"
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

// Faults that only a program on GPUs runs into.
void spare_whoever_has_none(std::vector<Topic>& topics) {
    for (Topic& topic : topics)
        for (Finding& one : topic.findings)
            if (one.level == Level::fault &&
                (topic.name == "GPUs" || one.check == "locked memory" || one.check.starts_with("RDMA")))
                one.level = Level::warning;
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
    const bool is_all = machine.depth == Depth::all;
    if (is_all) add("Slurm", check_slurm(read_slurm(machine.scontrol)));
    const CoreFacts cores = read_cores(machine.root, machine.depth);
    add("cores", check_cores(cores));
    add("disks", check_folders(read_folders(machine.depth, machine.temporary)));
    const GpuFacts gpus = read_gpus(machine.root, machine.nvml);
    add("GPUs", check_gpus(gpus));
    if (machine.depth == Depth::measured && !machine.cuda_devices.empty()) {
        const std::vector<GpuSpeed> speeds = measure_gpus(machine.cuda_devices, machine.cuda);
        add("GPU speeds", check_gpu_speeds(speeds));
        const auto note_slowest = [&](const char* name, double GpuSpeed::*what) {
            const auto slowest = std::ranges::min_element(speeds, {}, what);
            if (slowest != speeds.end() && *slowest.*what > 0) found.measures[name] = *slowest.*what;
        };
        note_slowest("GPU speed", &GpuSpeed::multiplies);
        note_slowest("GPU memory", &GpuSpeed::copies);
    }

    found.facts = {{"GPUs", kinds_of(gpus.gpus)},
                   {"CPUs", std::to_string(cores.allowed)},
                   {"slurm-dp", machine.version}};
    if (const auto mtu = mtu_for_others(network, machine.address)) found.facts["MTU"] = std::to_string(*mtu);
    if (!gpus.driver.empty()) found.facts["driver"] = gpus.driver;
    if (utsname system{}; uname(&system) == 0) found.facts["kernel"] = printable(system.release, 80);
    if (!cores.model.empty()) found.facts["CPU model"] = cores.model;
    if (!machine.has_gpus) spare_whoever_has_none(found.topics);
    if (cores.slowest_core > 0) found.measures["cores"] = cores.slowest_core;
    if (const auto& memory = cores.memory_bandwidth; !memory.empty())
        found.measures["memory"] = *std::ranges::max_element(memory);
    if (!is_all) return found;

    const LibraryFacts libraries = read_libraries(machine.program);
    add("libraries", check_libraries(libraries, gpus.cuda));
    if (const auto nccl = libraries.found.find("NCCL"); nccl != libraries.found.end())
        found.facts["NCCL"] = nccl->second.substr(0, nccl->second.find(','));

    // Another program does not care about PyTorch.
    const std::string& given = machine.program;
    const std::string python = given.empty() ? "python3" : is_python(given) ? given : libraries.interpreter;
    if (!is_python(python)) return found;
    const PyTorchFacts torch = read_pytorch(python);
    add("Python", check_pytorch(torch, gpus.gpus.size()));
    if (torch.state == PyTorchFacts::works) found.facts["PyTorch"] = torch.version;
    return found;
}

wire::NodeExamination message_of(const Examination& examination) {
    wire::NodeExamination message;
    message.set_host(examination.host);
    for (const Topic& topic : examination.topics) {
        auto& told = *message.add_topics();
        told.set_name(topic.name);
        for (const Finding& one : topic.findings) {
            auto& finding = *told.add_findings();
            finding.set_check(one.check);
            finding.set_level(static_cast<wire::NodeExamination::Level>(one.level));
            finding.set_seen(one.seen);
            finding.set_why(one.why);
            finding.set_remedy(one.remedy);
        }
    }
    for (const auto& [name, value] : examination.facts) {
        auto& property = *message.add_properties();
        property.set_name(name);
        property.set_value(value);
    }
    for (const auto& [name, value] : examination.measures) {
        auto& measure = *message.add_measures();
        measure.set_name(name);
        measure.set_value(value);
    }
    return message;
}

Examination examination_of(const wire::NodeExamination& message) {
    Examination found;
    found.host = printable(message.host(), 80);
    for (const auto& topic : message.topics()) {
        Findings findings;
        for (const auto& one : topic.findings()) {
            const int level = std::clamp<int>(one.level(), 0, static_cast<int>(Level::fault));
            findings.push_back({one.check(), static_cast<Level>(level), one.seen(), one.why(), one.remedy()});
        }
        found.topics.push_back({topic.name(), std::move(findings)});
    }
    for (const auto& property : message.properties()) found.facts[property.name()] = property.value();
    for (const auto& measure : message.measures()) found.measures[measure.name()] = measure.value();
    return found;
}

}  // namespace dp::doctor
