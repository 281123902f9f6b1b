// SPDX-License-Identifier: Apache-2.0
#include "real_broker.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "common/control.hpp"
#include "common/daemon_config.hpp"
#include "common/keeper.hpp"
#include "common/plan_file.hpp"
#include "failing.hpp"

namespace dp::bench {
namespace {

NodeSetup prepare(const std::string& daemon, const StepShape& shape) {
    const auto job = static_cast<uint32_t>(getpid());
    PortWishes ports;
    ports.candidates = candidate_ports({job, 0, 0, ""});
    ports.ephemeral = read_ephemeral_range();
    ports.serve_master = shape.torch_store;
    auto setup = prepare_node(daemon, "bench." + std::to_string(job), getuid(), ports,
                              shape.on_failure == FailureAction::restart);
    if (!setup) die(setup.error().message);
    return std::move(*setup);
}

DaemonConfig config_of(const StepShape& shape, const NodeSetup& setup, const std::string& secret) {
    DaemonConfig c;
    c.broker = true;
    c.world_size = shape.world();
    c.nodes = shape.nodes;
    c.host = c.broker_host = "sim0";
    for (uint32_t rank = 0; rank < shape.ranks_per_node; ++rank) c.ranks.push_back(rank);
    c.tasks = shape.ranks_per_node;
    c.settings.timeout_seconds = static_cast<uint32_t>(kPatience.count());
    c.settings.on_failure = shape.on_failure;
    c.settings.restarts = kMaxRestarts;
    c.settings.spares = shape.spares;
    c.settings.hang_timeout_seconds = shape.hang_timeout_seconds;
    c.candidates = candidate_ports({static_cast<uint32_t>(getpid()), 0, 0, ""});
    if (shape.torch_store) c.settings.store = StoreKind::torch;
    c.secret = secret;
    c.master_addr = "127.0.0.1";
    c.master_port = setup.master.port;
    c.coordinator_port = setup.coordinator.port;
    return c;
}

}  // namespace

RealBroker::RealBroker(const std::string& daemon, const StepShape& shape)
    : shape_(shape), setup_(prepare(daemon, shape)) {
    auto secret = make_secret();
    if (!secret) die(secret.error().message);
    secret_ = *secret;
    port_ = setup_.broker.port;
    master_port_ = setup_.master.port;
    if (auto spawned = spawn_daemon(setup_, write_config(config_of(shape, setup_, secret_)), STDERR_FILENO);
        !spawned)
        die(spawned.error().message);
    drop_daemon_ends(setup_);
    pollfd announcement{setup_.control_launcher.get(), POLLIN, 0};
    poll(&announcement, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
    auto pid = daemon_pid(setup_.control_launcher.get());
    if (!pid) die("the daemon did not start");
    pid_ = *pid;
}

void RealBroker::wait_for_plan() {
    if (auto plan = dp::wait_for_plan(setup_.plan_file.get(), setup_.ready_read.get(), kPatience); !plan)
        die(plan.error().message);
}

std::vector<std::unique_ptr<Client>> RealBroker::open_ranks() {
    std::vector<std::unique_ptr<Client>> ranks;
    for (uint32_t rank = 0; rank < shape_.ranks_per_node; ++rank) {
        WorldEnvironment environment;
        environment.socket = setup_.socket_name.substr(1);
        environment.rank = rank;
        environment.size = shape_.world();
        auto client = Client::connect(environment);
        if (!client) die(client.error().message);
        ranks.push_back(std::move(*client));
    }
    return ranks;
}

std::vector<pid_t> RealBroker::start_ranks(const std::function<void(uint32_t rank)>& be_rank) {
    std::vector<pid_t> ranks;
    for (uint32_t rank = 0; rank < shape_.ranks_per_node; ++rank) {
        ranks.push_back(fork());
        if (ranks.back() < 0) die_of_errno("fork");
        if (ranks.back() == 0) {
            be_rank(rank);
            _exit(1);
        }
        send_control(setup_.control_launcher.get(), {ControlEvent::Kind::task, rank, ranks.back()});
    }
    return ranks;
}

void RealBroker::start_keepers() {
    auto plan = dp::wait_for_plan(setup_.plan_file.get(), setup_.ready_read.get(), kPatience);
    if (!plan) die(plan.error().message);
    for (uint32_t rank = 0; rank < shape_.ranks_per_node; ++rank) {
        const pid_t keeper = fork();
        if (keeper < 0) die_of_errno("fork");
        if (keeper > 0) {
            keepers_.push_back(keeper);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        send_control(setup_.control_launcher.get(), {ControlEvent::Kind::task, rank, getpid()});
        setup_.control_launcher.reset();
        if (auto life = keep(setup_.socket_name, rank, *plan); !life) die(life.error().message);
        for (;;) pause();
    }
}

void RealBroker::kill_all() {
    for (const pid_t keeper : keepers_) kill(keeper, SIGKILL);
    kill(pid_, SIGKILL);
}

bool RealBroker::leave() {
    for (uint32_t rank = 0; rank < shape_.ranks_per_node; ++rank)
        send_control(setup_.control_launcher.get(), {ControlEvent::Kind::exit, rank, 0});
    const Fd gone = open_daemon(setup_.control_launcher.get(), pid_);
    send_control(setup_.control_launcher.get(), {ControlEvent::Kind::end});
    return wait_until_gone(gone, kDaemonLeaves) == Ended::gone;
}

}  // namespace dp::bench
