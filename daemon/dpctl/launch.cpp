// SPDX-License-Identifier: Apache-2.0
//
// `dpctl launch`.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/host_name.hpp"
#include "common/control.hpp"
#include "common/daemon_config.hpp"
#include "common/environment.hpp"
#include "common/hostfile.hpp"
#include "common/hostlist.hpp"
#include "common/keeper.hpp"
#include "common/plan_file.hpp"
#include "common/processes.hpp"
#include "common/task_environment.hpp"
#include "common/told_environment.hpp"
#include "common/wait_status.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/helper_programs.hpp"
#include "dpctl/query.hpp"
#include "tiles/inventory.hpp"

namespace dp {
namespace {

// How long ranks may take to end after a signal, perhaps with a checkpoint, before they are killed.
constexpr std::chrono::seconds kKillWait{10};
// One event may send several signals at once (a closed session: SIGTERM and SIGHUP); a person is slower.
constexpr std::chrono::seconds kSecondWish{1};

using Clock = std::chrono::steady_clock;

// One world of local processes.
class World {
 public:
    explicit World(const LaunchOptions& options)
        : options_(options), settings_(with_defaults(options.settings)), pids_(options.ranks, 0) {}
    int run();

 private:
    const LaunchOptions& options_;
    const Settings settings_;
    // It replaces the job's number: two launches on one machine get different ports and names.
    const uint32_t pid_ = static_cast<uint32_t>(getpid());
    NodeSetup node_;
    std::vector<pid_t> pids_;
    pid_t daemon_ = 0;
    uint32_t running_ = 0;
    int result_ = 0;
    int ended_by_ = 0;  // the first signal that is to end the ranks

    Try<NodePlan> start_daemon();
    bool start_rank(uint32_t rank, const NodePlan& plan);
    [[noreturn]] void become_rank(uint32_t rank, NodePlan plan);
    void reap();
    void forward(int signal);
    Fd find_daemon();
    void wait_for_ranks(int signals);
    void kill_ranks(bool late);
    void end_daemon();
};

Try<NodePlan> World::start_daemon() {
    PortWishes ports;
    ports.candidates = candidate_ports({pid_, 0, 0, ""});
    ports.ephemeral = read_ephemeral_range();
    ports.master = *settings_.port;
    ports.serve_master = settings_.serves_torch();
    node_ = DP_TRY(prepare_node(options_.daemon.empty() ? helper_program("dp-rendezvousd") : options_.daemon,
                                "local." + std::to_string(pid_), getuid(), ports, settings_.tasks_tell()));

    DaemonConfig c;
    c.broker = true;
    c.world_size = c.tasks = options_.ranks;
    c.nodes = 1;
    c.step_id = pid_;
    c.broker_host = c.host = host_name();
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) c.ranks.push_back(rank);
    c.tiles_conf = kTilesConf;
    c.settings = settings_;
    const char* const temporary = std::getenv("TMPDIR");
    c.temporary = temporary ? temporary : "";
    c.gpus = true;  // whoever has none here has no faults of theirs
    c.cuda_devices = cuda_devices(get_environment).value_or("all");
    c.secret = DP_TRY(make_secret());
    // One machine: nothing of this world leaves it.
    c.master_addr = "127.0.0.1";
    c.master_port = node_.master.port;
    c.coordinator_port = node_.coordinator.port;
    if (settings_.restarts_ranks()) c.candidates = ports.candidates;
    DP_TRY(spawn_daemon(node_, write_config(c), STDERR_FILENO));
    drop_daemon_ends(node_);
    return wait_for_plan(node_.plan_file.get(), node_.ready_read.get(),
                         settings_.timeout() + settings_.longest_preflight());
}

void World::become_rank(uint32_t rank, NodePlan plan) {
    // If dpctl is killed, its ranks die with it. The daemon does the same for ranks that change their user.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (settings_.restarts_ranks()) {
        // Before it connects there; the daemon takes the closing of this end for dpctl's death.
        send_control(node_.control_launcher.get(), {ControlEvent::Kind::task, rank, getpid()});
        node_.control_launcher.reset();
        auto life = keep(node_.socket_name, rank, plan);
        if (!life) _exit(complain(life.error().message));
        plan = std::move(*life);
    }

    TaskFacts facts;
    facts.rank = rank;
    facts.world_size = facts.first_world_size = options_.ranks;
    facts.local_rank = rank;
    facts.local_world_size = options_.ranks;
    facts.nodes = 1;
    facts.hostfile = path_of_hostfile(make_hostfile(hostfile_of(plan.hosts, plan.ranks_per_host)));
    facts.settings = settings_;
    facts.sizes = settings_.sizes(options_.ranks);
    facts.take(plan);
    let_daemon_read_this_process(plan.daemon);
    facts.socket = node_.socket_name;
    std::vector<std::string> warnings;
    if (settings_.wants_nccl_debug())
        facts.nccl_debug_file = usable_nccl_debug_file(
            *settings_.nccl_debug, {0, pid_, facts.rank, facts.generation, host_name(), working_directory()},
            warnings);
    const TaskEnvironment environment = task_environment(facts, plan, get_environment);
    if (settings_.wants_record()) tell_environment(facts.socket, rank, plan.generation, environment.changes);
    warnings.insert(warnings.end(), environment.warnings.begin(), environment.warnings.end());
    for (const auto& change : environment.changes) {
        if (change.value)
            setenv(change.name.c_str(), change.value->c_str(), 1);
        else
            unsetenv(change.name.c_str());
    }
    if (rank == 0 && plan.generation == 0)
        for (const auto& warning : warnings) std::fprintf(stderr, "dpctl: %s\n", warning.c_str());

    std::vector<char*> argv;
    for (const auto& word : options_.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    const int code = errno == ENOENT ? 127 : 126;  // as a shell has it
    if (rank == 0) complain("cannot run " + options_.command[0] + ": " + std::strerror(errno));
    _exit(code);
}

bool World::start_rank(uint32_t rank, const NodePlan& plan) {
    const pid_t pid = fork();
    if (pid < 0) return false;
    if (pid == 0) become_rank(rank, plan);
    pids_[rank] = pid;
    ++running_;
    send_control(node_.control_launcher.get(), {ControlEvent::Kind::task, rank, pid});
    return true;
}

void World::reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const auto found = std::ranges::find(pids_, pid);
        if (found == pids_.end()) continue;
        *found = 0;
        --running_;
        const auto rank = static_cast<uint32_t>(found - pids_.begin());
        send_control(node_.control_launcher.get(), {ControlEvent::Kind::exit, rank, status});
        // The first failure counts: the others follow from it.
        if (result_ == 0) result_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

// Empty if it is gone.
Fd World::find_daemon() {
    const int control = node_.control_launcher.get();
    if (daemon_ <= 0) daemon_ = daemon_pid(control).value_or(0);
    return daemon_ > 0 ? open_daemon(control, daemon_) : Fd();
}

void World::forward(int signal) {
    for (pid_t pid : pids_)
        if (pid > 0) kill(pid, signal);
}

void World::kill_ranks(bool late) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < pids_.size(); ++rank)
        if (pids_[rank] > 0) ranks.push_back(rank);
    complain(name_ranks(ranks) + " did not end " +
             (late ? "within " + std::to_string(kKillWait.count()) + " s of " : "at ") +
             signal_name(ended_by_) + (ranks.size() == 1 ? " and was killed" : " and were killed") +
             (late ? "" : " at the second"));
    if (result_ == 0) result_ = 128 + ended_by_;
    forward(SIGKILL);
}

void World::wait_for_ranks(int signals) {
    constexpr auto kNever = Clock::time_point::max();
    auto deadline = kNever;
    while (running_ > 0) {
        int wait = -1;
        if (deadline != kNever) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
            wait = static_cast<int>(std::max<long>(left.count(), 0));
        }
        pollfd entry{signals, POLLIN, 0};
        const int ready = poll(&entry, 1, wait);
        if (ready < 0 && errno != EINTR) break;
        if (ready == 0) {
            kill_ranks(true);
            deadline = kNever;
        }
        signalfd_siginfo info{};
        while (running_ > 0 && read(signals, &info, sizeof info) == sizeof info) {
            const int signal = static_cast<int>(info.ssi_signo);
            if (signal == SIGCHLD) {
                reap();
                continue;
            }
            // The daemon must know that the ranks were told to end.
            if (find_daemon()) kill(daemon_, signal);
            // The terminal has sent its signal (Ctrl-C) to the ranks, too.
            if (info.ssi_code != SI_KERNEL) forward(signal);
            if (signal == SIGUSR1 || signal == SIGUSR2) continue;
            if (ended_by_ == 0) {
                ended_by_ = signal;
                deadline = Clock::now() + kKillWait;
            } else if (deadline != kNever && Clock::now() >= deadline - kKillWait + kSecondWish) {
                kill_ranks(false);
                deadline = kNever;
            }
        }
    }
}

void World::end_daemon() {
    if (!node_.control_launcher) return;
    const Fd daemon = find_daemon();
    send_control(node_.control_launcher.get(), {ControlEvent::Kind::end});
    if (wait_until_gone(daemon, kDaemonLeaves) != Ended::gone)
        complain("the rendezvous daemon had to be killed");
}

int World::run() {
    // Orphans of the ranks become our children, as a step's container holds them under Slurm.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    auto plan = start_daemon();
    if (!plan) {
        end_daemon();
        // Empty: the daemon has said why.
        return plan.error().message.empty() ? 1 : complain(plan.error().message);
    }
    // Until here these signals end dpctl at once, and with it its daemon.
    constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    for (int sig : kForwarded) sigaddset(&handled, sig);
    sigprocmask(SIG_BLOCK, &handled, nullptr);
    Fd signals(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals) return complain(std::string("cannot watch signals: ") + std::strerror(errno));
    if (*settings_.verbose) std::fputs(plan->table.c_str(), stderr);
    if (settings_.tensor || settings_.pipeline)
        std::fprintf(stderr, "%s\n",
                     model_parallel_line(options_.ranks, settings_.sizes(options_.ranks)).c_str());
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
        if (start_rank(rank, *plan)) continue;
        complain(std::string("cannot fork rank ") + std::to_string(rank) + ": " + std::strerror(errno));
        result_ = 1;
        forward(SIGKILL);
        // Ranks that were never started have ended for the daemon.
        break;
    }
    wait_for_ranks(signals.get());
    end_daemon();
    // Processes that the ranks started and left behind are our children now.
    signal_step(SIGKILL, {}, {getpid()});
    return result_;
}

}  // namespace

int launch(const LaunchOptions& options) {
    if (auto why = missing_option(options.settings, with_defaults(options.settings))) return complain(*why);
    const StepVerdict verdict = judge_step(options.settings, options.settings, options.ranks, 1);
    return verdict.decision == StepVerdict::refuse ? complain(verdict.why) : World(options).run();
}

}  // namespace dp
