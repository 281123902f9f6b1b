// SPDX-License-Identifier: Apache-2.0
//
// `dpctl examine`, which the daemon runs with --dp-preflight.
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/node_setup.hpp"
#include "doctor/links.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "framing.hpp"

namespace dp {
namespace {

constexpr size_t kMaxQuestion = 4096;  // bytes

// The daemon has the CPUs of the step's first task here. A cgroup of the step gives it those of the others; where it would get all
// of the node, perhaps nobody keeps it from another job's, so it stays with its own.
void use_cpus_of_step() {
    cpu_set_t own, all;
    CPU_ZERO(&own);
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
    if (sched_getaffinity(0, sizeof own, &own) != 0 || sched_setaffinity(0, sizeof all, &all) != 0) return;
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) >= sysconf(_SC_NPROCESSORS_ONLN)) sched_setaffinity(0, sizeof own, &own);
}

bool say(const wire::FromNode& message) {
    const std::string frame = to_frame(message);
    for (size_t at = 0; at < frame.size();) {
        const ssize_t written = write(STDOUT_FILENO, frame.data() + at, frame.size() - at);
        if (written < 0) return false;
        at += static_cast<size_t>(written);
    }
    return true;
}

// Until standard input ends.
int measure_links(const doctor::LinkServer& server, uint64_t token) {
    const auto measure = [&](const wire::MeasureLink& asked) {
        wire::MeasuredLink measured;
        if (asked.serve())
            server.serve({token, asked.round()}, doctor::kServePatience);
        else
            measured =
                message_of(doctor::measure_link(asked.address(), static_cast<uint16_t>(asked.port()),
                                                {asked.token(), asked.round()}, doctor::kLinkPatience));
        measured.set_round(asked.round());
        say(wrap(&wire::FromNode::mutable_measured_link, std::move(measured)));
    };
    std::string said;
    std::array<char, 4096> some{};
    for (;;) {
        const ssize_t size = read(STDIN_FILENO, some.data(), some.size());
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) return 0;
        said.append(some.data(), static_cast<size_t>(size));
        if (!take_frames<wire::MeasureLink>(said, kMaxQuestion, measure))
            return complain("no question of dp-rendezvousd");
    }
}

}  // namespace

int print_examination(const ExamineOptions& options) {
    use_cpus_of_step();
    doctor::Machine machine;
    machine.version = DP_VERSION;
    machine.depth = options.full ? doctor::Depth::measured : doctor::Depth::quick;
    machine.temporary = options.temporary;
    machine.address = options.address;
    machine.has_gpus = options.gpus;
    machine.cuda_devices = options.cuda_devices;
    wire::NodeExamination examination = message_of(examine_machine(machine));
    std::optional<doctor::LinkServer> server;
    uint64_t token = 0;
    if (!options.ports.empty() && getrandom(&token, sizeof token, 0) == sizeof token)
        if (auto port = listen_on_first_free(options.ports, "measuring links")) {
            examination.set_link_port(port->port);
            examination.set_link_token(token);
            server.emplace(std::move(port->socket), port->port);
        }
    if (!say(wrap(&wire::FromNode::mutable_examination, std::move(examination))))
        return complain("cannot write what this node is like");
    return server ? measure_links(*server, token) : 0;
}

}  // namespace dp
