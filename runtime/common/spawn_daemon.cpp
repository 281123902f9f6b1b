// SPDX-License-Identifier: Apache-2.0
//
// spawn_daemon of daemon_config.hpp: from a launcher's process to a running dp-rendezvousd.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/errno_text.hpp"
#include "common/daemon_config.hpp"

namespace dp {
namespace {

// Above every number of DaemonFd, so that moving one descriptor into place cannot overwrite another.
constexpr int kFdStaging = 16;

struct Handover {
    int from;
    int to;
};

// Shared by the caller and the two processes between it and the daemon. These run in the caller's memory
// while it waits (CLONE_VM | CLONE_VFORK, as posix_spawn does): copying slurmstepd's page tables twice would
// cost each node of a step half a millisecond. So they make only async-signal-safe calls, and no signal
// handler of the caller may run there.
struct Launch {
    int binary;
    int stderr_fd;
    Handover* handovers;
    size_t count;
    char* daemon_stack;  // its upper end
    // On failure: the step that failed, and errno.
    enum class Step { none, fork, descriptors, exec } failed;
    int error;
};
constexpr size_t kStackBytes = 64 << 10;

// The sanitizers know only the caller's stack.
#define DP_ON_ANOTHER_STACK __attribute__((no_sanitize("address", "thread", "undefined")))

[[noreturn]] DP_ON_ANOTHER_STACK void give_up(Launch* launch, Launch::Step step) {
    launch->failed = step;
    launch->error = errno;
    _exit(1);
}

// A copy above every number of DaemonFd.
DP_ON_ANOTHER_STACK int stage(Launch* launch, int fd) {
    const int copy = fcntl(fd, F_DUPFD, kFdStaging);
    if (copy >= 0) return copy;
    if (errno == EINVAL) errno = EMFILE;  // the limit of open files is not even kFdStaging
    give_up(launch, Launch::Step::descriptors);
}

DP_ON_ANOTHER_STACK int become_daemon(void* argument) {
    auto* launch = static_cast<Launch*>(argument);
    Handover* handovers = launch->handovers;
    const size_t count = launch->count;
    setsid();
    for (int sig = 1; sig < NSIG; ++sig) signal(sig, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);

    // The daemon will have many connections, and moving descriptors takes room as well.
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) give_up(launch, Launch::Step::descriptors);
    const int staged_null = stage(launch, null);
    const bool has_stderr = fcntl(launch->stderr_fd, F_GETFD) >= 0;
    const int staged_stderr = has_stderr ? stage(launch, launch->stderr_fd) : staged_null;
    const int staged_binary = stage(launch, launch->binary);
    for (size_t i = 0; i < count; ++i) handovers[i].from = stage(launch, handovers[i].from);
    dup2(staged_null, 0);
    dup2(staged_stderr, 1);
    dup2(staged_stderr, 2);
    int last = 2;
    for (size_t i = 0; i < count; ++i) {
        // Closes gaps (a step without keepers), so that no stray descriptor takes their place.
        for (int fd = last + 1; fd < handovers[i].to; ++fd) close(fd);
        if (dup2(handovers[i].from, handovers[i].to) < 0) give_up(launch, Launch::Step::descriptors);
        last = handovers[i].to;
    }
    // The binary stays open just after the others, close-on-exec, for the exec itself.
    int exec_fd = last + 1;
    if (dup2(staged_binary, exec_fd) < 0) give_up(launch, Launch::Step::descriptors);
    fcntl(exec_fd, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, static_cast<unsigned>(exec_fd + 1), ~0U, 0U);

    static char name[] = "dp-rendezvousd";
    char* argv[] = {name, nullptr};
    // Else nettle would query the processor, which in a virtual machine takes longer than all its work here.
    static char plain_nettle[] = "NETTLE_FAT_OVERRIDE=none";
    char* envp[] = {plain_nettle, nullptr};
    // Executes the descriptor, not the path: the task may see other mounts than the plugin did in user_init.
    syscall(SYS_execveat, exec_fd, "", argv, envp, AT_EMPTY_PATH);
    give_up(launch, Launch::Step::exec);
}

// The intermediate process: exits at once, so that the daemon is nobody's child.
DP_ON_ANOTHER_STACK int start_orphan(void* argument) {
    auto* launch = static_cast<Launch*>(argument);
    if (clone(become_daemon, launch->daemon_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, argument) < 0)
        give_up(launch, Launch::Step::fork);
    _exit(0);
}

}  // namespace

Try<void> spawn_daemon(const NodeSetup& node, const std::string& config_text, int stderr_fd) {
    Fd config(memfd_create("slurm-dp-config", MFD_CLOEXEC));
    if (!config || pwrite(config.get(), config_text.data(), config_text.size(), 0) !=
                       static_cast<ssize_t>(config_text.size()))
        return fail(std::string("cannot hand the daemon its configuration: ") + errno_text(errno));

    Handover handovers[] = {{config.get(), kFdConfig},
                            {node.ranks_listener.get(), kFdRanks},
                            {node.control_daemon.get(), kFdControl},
                            {node.plan_file.get(), kFdPlanFile},
                            {node.ready_write.get(), kFdReady},
                            {node.keepers_listener.get(), kFdKeepers},
                            {node.broker.socket.get(), kFdBroker},
                            {node.master.socket.get(), kFdMaster},
                            {node.coordinator.socket.get(), kFdCoordinator}};
    // Those of this node, in ascending order of their numbers.
    const auto there = std::remove_if(std::begin(handovers), std::end(handovers),
                                      [](const Handover& one) { return one.from < 0; });
    const auto count = static_cast<size_t>(there - std::begin(handovers));

    alignas(16) static char stacks[2 * kStackBytes];  // mostly never touched
    Launch launch{node.daemon_binary.get(), stderr_fd,          handovers, count,
                  std::end(stacks),         Launch::Step::none, 0};
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t child = clone(start_orphan, stacks + kStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD, &launch);
    const int why = errno;
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (child < 0) return fail(std::string("cannot fork the daemon: ") + errno_text(why));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    switch (launch.failed) {
        case Launch::Step::none:
            return {};
        case Launch::Step::descriptors:
            return fail("cannot hand the daemon its descriptors: " + errno_text(launch.error));
        case Launch::Step::exec:
            return fail(
                "dp-rendezvousd cannot be executed (" + errno_text(launch.error) +
                "): install it again; its file is not whole, not built for this machine, or on a file "
                "system mounted noexec");
        case Launch::Step::fork:
            break;
    }
    return fail(
        "cannot fork the daemon: the user's limit on processes (ulimit -u) or the job's memory is used up");
}

void drop_broker_ports(NodeSetup& node) {
    node.broker.socket.reset();
    node.master.socket.reset();
    node.coordinator.socket.reset();
}

void drop_daemon_ends(NodeSetup& node) {
    node.daemon_binary.reset();
    node.ranks_listener.reset();
    node.keepers_listener.reset();
    node.ready_write.reset();
    node.control_daemon.reset();
    drop_broker_ports(node);
}

}  // namespace dp
