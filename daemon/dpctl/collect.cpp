// SPDX-License-Identifier: Apache-2.0
//
// `dpctl collect`: brings the records of a job's nodes together. A step of one task a node sends them (send_records.cpp).
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "doctor/apart.hpp"
#include "dpctl/collect_srun.hpp"
#include "dpctl/collected_records.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "dpctl/site_records.hpp"

namespace dp {
namespace {

constexpr std::chrono::seconds kSlurmsPatience{30};
constexpr std::chrono::seconds kSrunEnds{10};

// Blocks them, and has them read.
Fd ending_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&signals, number);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    return Fd(signalfd(-1, &signals, SFD_CLOEXEC));
}

// srun, and what it and the nodes say.
struct RunningSrun {
    pid_t process = 0;
    Fd output;
};

Try<RunningSrun> start(std::vector<std::string> command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail("no pipe: " + errno_text(errno));
    RunningSrun srun{0, Fd(ends[0])};
    const Fd input(ends[1]);
    auto environment = environment_for_srun(environ);
    const auto pointers = [](std::vector<std::string>& texts) {
        std::vector<char*> out;
        out.reserve(texts.size() + 1);
        for (std::string& text : texts) out.push_back(text.data());
        out.push_back(nullptr);
        return out;
    };
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, input.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, input.get(), STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    // A group of its own: at Ctrl-C, which it would ask about, dpctl ends it.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawnp(&srun.process, command.front().c_str(), &files, &attributes,
                                   pointers(command).data(), pointers(environment).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) return fail(command.front() + " cannot be run: " + errno_text(error));
    return srun;
}

// Until everybody has said everything. A failure ends srun.
class Collection {
 public:
    Collection(CollectedRecords& records, const Fd& signals) : records_(records), signals_(signals) {}

    Try<void> run(const std::vector<std::string>& command) {
        RunningSrun srun = DP_TRY(start(command));
        auto read = read_all(srun.output.get());
        if (!read) kill(srun.process, SIGTERM);
        // What it says of its end is not read: it shall not wait for that.
        srun.output.reset();
        const auto deadline = std::chrono::steady_clock::now() + kSrunEnds;
        while (waitpid(srun.process, &status_, WNOHANG) == 0) {
            if (std::chrono::steady_clock::now() > deadline) kill(srun.process, SIGKILL);
            usleep(10000);
        }
        return read;
    }

    // Why nothing comes from a node, as far as that is known.
    std::string reason() const {
        if (!said_.empty()) return said_;
        return "srun " + describe_status(status_);
    }

 private:
    Try<void> read_all(int output) {
        std::string text;
        for (;;) {
            std::array<pollfd, 2> ready{{{output, POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
            if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR)
                return fail("no answer: " + errno_text(errno));
            if (ready[1].revents != 0)
                return fail("interrupted; only records that had come as a whole are there");
            std::array<char, 65536> some{};
            const ssize_t size = ready[0].revents != 0 ? read(output, some.data(), some.size()) : -1;
            if (size == 0) return {};
            if (size < 0) continue;
            text.append(some.data(), static_cast<size_t>(size));
            size_t begin = 0;
            for (size_t end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
                DP_TRY(take(std::string_view(text).substr(begin, end - begin)));
            text.erase(0, begin);
        }
    }

    Try<void> take(std::string_view text) {
        const auto line = read_record_line(text);
        bool is_known = false;
        if (line) is_known = DP_TRY(records_.take(*line));
        if (!is_known && said_.empty()) said_ = printable(text);
        return {};
    }

    CollectedRecords& records_;
    const Fd& signals_;
    std::string said_;  // by srun, slurmstepd or a prolog: the first line
    int status_ = 0;
};

Try<std::optional<SlurmJob>> ask_slurm(uint32_t job) {
    const auto said = DP_TRY(doctor::output_of(squeue_command(job), kSlurmsPatience));
    const auto known = read_squeue(said.text, job);
    if (!known && said.exit_code != 0 && said.text.find("Invalid job id") == std::string::npos)
        return fail("Slurm cannot be asked: " + printable(split(said.text, '\n').empty()
                                                              ? "squeue failed"
                                                              : split(said.text, '\n').front()));
    return known;
}

struct Plan {
    uint32_t job = 0;
    std::string from;
    SlurmJob asked;
    std::vector<std::string> nodes;
    std::vector<std::string> others;  // of the job, and not of the allocation that is asked
};

Try<Plan> plan_of(const CollectOptions& options) {
    const char* inherited = std::getenv("SLURM_JOB_ID");
    const auto own = parse_number<uint32_t>(inherited ? inherited : "");
    Plan plan;
    plan.job = options.job != 0 ? options.job : own.value_or(0);
    if (plan.job == 0) return fail("not in a job, and no --job N");
    plan.from = options.from;
    if (plan.from.empty()) plan.from = DP_TRY(site_directory());
    if (!plan.from.starts_with('/')) {
        std::error_code error;
        plan.from = (std::filesystem::current_path(error) / plan.from).string();
    }
    const auto known = DP_TRY(ask_slurm(plan.job));
    std::optional<SlurmJob> around;
    if (own && own != plan.job) around = DP_TRY(ask_slurm(*own));
    plan.asked = DP_TRY(job_to_ask(plan.job, known, around, user_name(getuid())));
    plan.nodes = DP_TRY(expand_hostlist(plan.asked.nodes));
    if (known && !known->nodes.empty())
        for (std::string& node : DP_TRY(expand_hostlist(known->nodes)))
            if (std::ranges::find(plan.nodes, node) == plan.nodes.end())
                plan.others.push_back(std::move(node));
    return plan;
}

// The nodes, with the hosts folded, if there are not too many words.
std::string folded(const std::vector<std::string>& nodes) {
    return printable(compress_hostlist(nodes));
}

int tell(const Plan& plan, const CollectOptions& options, const CollectedRecords& records,
         const std::string& reason) {
    int code = 0;
    if (!plan.others.empty())
        code = complain(folded(plan.others) + ": of job " + std::to_string(plan.job) + ", but not of job " +
                        std::to_string(plan.asked.id) + ", which was asked");
    for (const auto& [problem, nodes] : records.problems()) code = complain(folded(nodes) + ": " + problem);
    if (const auto missing = records.unfinished(); !missing.empty())
        code = complain(folded(missing) + ": did not answer to its end: " + reason);
    if (records.records() == 0)
        return complain("no record of job " + std::to_string(plan.job) + " was collected");
    const auto senders = records.senders();
    const int printed = print(plural(records.records(), "record") + " of job " + std::to_string(plan.job) +
                              ", of " + plural(senders.size(), "node") + " (" + folded(senders) + "), " +
                              (records.records() == 1 ? "is" : "are") + " in " + options.to + "\n");
    return printed != 0 ? printed : code;
}

// One file of each node may be open.
void raise_limit_of_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int collect(const CollectOptions& options) {
    const auto plan = plan_of(options);
    if (!plan) return complain(plan.error().message);
    raise_limit_of_files();
    const Fd signals = ending_signals();
    const auto records = CollectedRecords::into(options.to, plan->job, plan->nodes);
    if (!records) return complain(records.error().message);
    std::error_code error;
    const std::string own = std::filesystem::read_symlink("/proc/self/exe", error);
    Collection collection(**records, signals);
    const auto done = collection.run(
        srun_command(plan->asked, plan->nodes.size(),
                     {own, "send-records", "--job", std::to_string(plan->job), "--directory", plan->from}));
    if (!done) return complain(done.error().message);
    return tell(*plan, options, **records, collection.reason());
}

}  // namespace dp
