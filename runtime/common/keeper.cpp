// SPDX-License-Identifier: Apache-2.0
#include "common/keeper.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "common/control.hpp"
#include "common/processes.hpp"
#include "common/socket_names.hpp"

namespace dp {
namespace {

// Signals with which Slurm, a user or a terminal asks a rank to end.
constexpr std::array kEndings = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGXCPU};
// How long a keeper that is told to end between two lives waits for the daemon's word.
constexpr std::chrono::seconds kDaemonSays{5};
// How often, and how far apart in microseconds, a keeper without a daemon kills what descends from it.
constexpr int kPasses = 1000;
constexpr useconds_t kBetweenPasses = 2000;
// The numbers below which nearly all descriptors of a launcher are.
constexpr int kTriedDescriptors = 4096;

std::vector<int> open_descriptors() {
    std::vector<int> open_ones;
    // Linux 6.2 and later say here how many there are. To read their names takes ten times as long.
    struct stat folder {};
    const size_t count =
        stat("/proc/self/fd", &folder) == 0 ? static_cast<size_t>(std::max<off_t>(folder.st_size, 0)) : 0;
    for (int fd = 0; open_ones.size() < count && fd < kTriedDescriptors; ++fd)
        if (fcntl(fd, F_GETFD) >= 0) open_ones.push_back(fd);
    if (count > 0 && open_ones.size() >= count) return open_ones;
    open_ones.clear();
    const std::unique_ptr<DIR, int (*)(DIR*)> names(opendir("/proc/self/fd"), closedir);
    while (const dirent* entry = names ? readdir(names.get()) : nullptr)
        if (const auto fd = parse_number<int>(entry->d_name)) open_ones.push_back(*fd);
    return open_ones;
}

// The launcher's ends of pipes and terminals close when a program starts (O_CLOEXEC), and no program ever starts
// here: the ranks would see no end of their input. Their numbers stay taken, for the launcher's code in later lives.
void let_go_of_pipes() {
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null) return;
    for (const int fd : open_descriptors()) {
        struct stat what {};
        if (fd <= STDERR_FILENO || !(fcntl(fd, F_GETFD) & FD_CLOEXEC) || fstat(fd, &what) != 0) continue;
        const bool is_terminals_master = S_ISCHR(what.st_mode) && what.st_rdev == makedev(5, 2);
        if (S_ISFIFO(what.st_mode) || is_terminals_master) dup3(null.get(), fd, O_CLOEXEC);
    }
}

// A process with one thread needs none of what libraries do around a fork, and each page that they write to there is
// copied.
pid_t fork_plainly() {
#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 34)
    return _Fork();
#endif
#endif
    return fork();
}

Try<Fd> connect(const std::string& socket_name) {
    const std::string name = keepers_socket_name(socket_name.substr(1));
    const auto address = AbstractAddress::of(name);
    Fd daemon(address ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1);
    if (!daemon || !address->connect(daemon.get()))
        return fail("the rank's keeper cannot reach the rendezvous daemon at @" + name + ": " +
                    errno_text(errno));
    if (const auto peer = peer_of(daemon.get()); !peer || peer->uid != getuid())
        return fail("the socket @" + name + " is not this step's: somebody else listens there");
    return daemon;
}

class Keeper {
 public:
    Keeper(Fd daemon, uint32_t local_rank) : daemon_(std::move(daemon)), local_rank_(local_rank) {
        tell(ControlEvent::Kind::keep);
    }
    // Returns in the lives; failures are those of the first.
    Try<NodePlan> run(NodePlan plan);

 private:
    Fd daemon_;
    Fd signals_;
    const uint32_t local_rank_;
    const bool has_terminal_ = isatty(STDIN_FILENO) == 1;
    sigset_t before_{};
    struct sigaction child_before_ {};
    pid_t rank_ = 0;                // 0: between two lives
    int status_ = 0;                // the last life's end
    bool has_lived_ = false;        // a spare's has not
    std::optional<NodePlan> next_;  // the daemon's word
    bool no_other_life_ = false;
    std::vector<int> waiting_;  // for the next life: signals that ask for the end

    void tell(ControlEvent::Kind kind, int value = 0) const {
        if (daemon_) send_control(daemon_.get(), {kind, local_rank_, value});
    }
    Try<void> watch_signals();
    Try<bool> begin_life(bool is_first);
    void become_rank();
    void wait_for_events();
    void take_signals();
    void pass_on(const signalfd_siginfo& signal);
    void reap();
    void hear_daemon();
    static void kill_offspring();
    [[noreturn]] void die() const;
};

Try<void> Keeper::watch_signals() {
    sigset_t all;
    sigfillset(&all);
    // A fault of the keeper's own is no rank's.
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&all, fault);
    sigprocmask(SIG_SETMASK, &all, &before_);
    // What the rank starts and leaves behind becomes ours, so that the daemon finds it (Tasks::kill_offspring).
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    // A launcher that ignores SIGCHLD would leave us nothing to wait for.
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &plain, &child_before_);
    signals_.reset(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals_) return {};
    const int why = errno;
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    return fail("the rank's keeper cannot watch signals: " + errno_text(why));
}

// In the child.
void Keeper::become_rank() {
    // Not if the rank changes its user: then slurmstepd's end of the step does it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!has_terminal_) setpgid(0, 0);
    sigaction(SIGCHLD, &child_before_, nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    signals_.reset();
    daemon_.reset();
}

// True in the rank's process. Fails only in the first generation.
Try<bool> Keeper::begin_life(bool is_first) {
    const pid_t keeper = getpid();
    rank_ = fork_plainly();
    if (rank_ == 0) {
        become_rank();
        if (getppid() != keeper) raise(SIGKILL);  // it was killed just now
        return true;
    }
    if (rank_ < 0) {
        const int why = errno;
        rank_ = 0;
        if (is_first) {
            sigprocmask(SIG_SETMASK, &before_, nullptr);
            return fail("the rank's keeper cannot fork: " + errno_text(why));
        }
        status_ = 1 << 8;
        std::fprintf(stderr, "slurm-dp: the keeper of local rank %u cannot fork: %s\n", local_rank_,
                     errno_text(why).c_str());
        tell(ControlEvent::Kind::exit, status_);
        return false;
    }
    has_lived_ = true;
    if (!has_terminal_) setpgid(rank_, rank_);  // whichever of the two is first
    return false;
}

Try<NodePlan> Keeper::run(NodePlan plan) {
    DP_TRY(watch_signals());
    for (bool is_first = true;; is_first = false) {
        const bool is_spare = plan.place && local_rank_ >= plan.place->ranks.size();
        if (!is_spare && DP_TRY(begin_life(is_first))) return plan;
        // Without a space: slurmstepd finds the tasks to signal by the words of /proc/PID/stat (proctrack/cgroup).
        if (is_first) prctl(PR_SET_NAME, "dp-keeper");
        if (is_first) let_go_of_pipes();
        if (rank_ > 0) {
            tell(ControlEvent::Kind::task, rank_);
            for (const int signal : waiting_) kill(rank_, signal);
            waiting_.clear();
        }
        next_.reset();
        while (rank_ > 0 || !(next_ || no_other_life_)) wait_for_events();
        if (no_other_life_) die();
        plan = *next_;
    }
}

void Keeper::wait_for_events() {
    pollfd events[] = {{signals_.get(), POLLIN, 0}, {daemon_.get(), POLLIN, 0}};
    // A daemon that hangs must not keep those for ever who are told to end.
    const bool waits_for_daemon = has_lived_ && rank_ == 0 && !waiting_.empty();
    const int patience =
        waits_for_daemon ? static_cast<int>(std::chrono::milliseconds(kDaemonSays).count()) : -1;
    const int ready = poll(events, daemon_ ? 2 : 1, patience);
    if (ready == 0) no_other_life_ = true;
    if (ready <= 0) return;
    if (events[0].revents) take_signals();
    if (daemon_ && events[1].revents) hear_daemon();
}

void Keeper::take_signals() {
    signalfd_siginfo signal{};
    while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
        if (signal.ssi_signo == SIGCHLD)
            reap();
        else
            pass_on(signal);
    }
}

void Keeper::pass_on(const signalfd_siginfo& signal) {
    const int number = static_cast<int>(signal.ssi_signo);
    const bool asks_for_the_end = std::find(kEndings.begin(), kEndings.end(), number) != kEndings.end();
    if (asks_for_the_end) tell(ControlEvent::Kind::told, number);
    // A terminal has sent its signal to the rank, too.
    if (has_terminal_ && signal.ssi_code == SI_KERNEL) return;
    if (rank_ > 0)
        kill(rank_, number);
    else if (asks_for_the_end)
        waiting_.push_back(number);
}

void Keeper::reap() {
    int status = 0;
    // Also orphans of the rank.
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != rank_) continue;
        rank_ = 0;
        status_ = status;
        tell(ControlEvent::Kind::exit, status);
    }
}

// Also what one of them forks meanwhile. (A process that waits for a dead file system dies when that comes back.)
void Keeper::kill_offspring() {
    for (int pass = 0; pass < kPasses && signal_step(SIGKILL, {}, {getpid()}) > 0; ++pass)
        usleep(kBetweenPasses);
}

void Keeper::hear_daemon() {
    std::array<char, kMaxControl> packet;
    const ssize_t size = recv(daemon_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    const bool is_whole = size > 0 && static_cast<size_t>(size) <= packet.size();
    const std::string_view word(packet.data(), is_whole ? static_cast<size_t>(size) : 0);
    if (!word.empty() && word != kNoOtherLife)
        if (auto plan = read_plan(word)) {
            next_ = std::move(*plan);
            return;
        }
    no_other_life_ = true;
    daemon_.reset();
    // Nobody else can end the rank now before it begins on another node.
    if (word != kNoOtherLife) kill_offspring();
}

// As the last life did, but without another core file.
void Keeper::die() const {
    if (WIFEXITED(status_)) _exit(WEXITSTATUS(status_));
    const int number = WTERMSIG(status_);
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    kill(getpid(), number);
    _exit(128 + number);
}

}  // namespace

Try<NodePlan> keep(const std::string& socket_name, uint32_t local_rank, const NodePlan& first) {
    auto daemon = DP_TRY(connect(socket_name));
    return Keeper(std::move(daemon), local_rank).run(first);
}

}  // namespace dp
