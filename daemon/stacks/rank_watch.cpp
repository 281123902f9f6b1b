// SPDX-License-Identifier: Apache-2.0
#include "stacks/rank_watch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "stacks/children.hpp"
#include "stacks/read_stacks.hpp"
#include "stacks/thread_snapshot.hpp"

namespace dp::stacks {
namespace {

constexpr size_t kMostDescendants = 256;
// Python that cannot be read for so long may be another program by now.
constexpr auto kUnseen = std::chrono::seconds(1);
// After a stack that could not be unwound.
constexpr std::chrono::nanoseconds kUnwindAgain = std::chrono::milliseconds(250);

std::string file_of(pid_t pid, std::string_view file) {
    return fmt::format("/proc/{}/{}", pid, file);
}

// What the kernel says of a process in /proc/PID/stat.
struct Stat {
    char state = '?';
    std::chrono::nanoseconds cpu{};  // of it all
};

std::optional<Stat> stat_of(pid_t pid) {
    const std::string text = read_file(file_of(pid, "stat"));
    const size_t name_ends = text.rfind(')');  // the name may have any character in it
    if (name_ends == std::string::npos) return std::nullopt;
    const auto fields = split(std::string_view(text).substr(name_ends + 2), ' ');
    constexpr size_t kState = 0, kUser = 11, kSystem = 12;
    if (fields.size() <= kSystem || fields[kState].empty()) return std::nullopt;
    static const int64_t ticks = sysconf(_SC_CLK_TCK);
    const int64_t used =
        parse_number<int64_t>(fields[kUser]).value_or(0) + parse_number<int64_t>(fields[kSystem]).value_or(0);
    return Stat{fields[kState].front(), std::chrono::nanoseconds(used * 1'000'000'000 / ticks)};
}

// The sum of two counters, of reading and of writing, in a /proc/PID/io or /proc/PID/task/TID/io.
uint64_t counted(const std::string& file, std::string_view reads, std::string_view writes) {
    const std::string text = read_file(file);
    uint64_t sum = 0;
    for (const std::string_view line : split(text, '\n')) {
        const std::string_view name = line.substr(0, line.find(": "));
        if (name == reads || name == writes)
            sum += parse_number<uint64_t>(line.substr(name.size() + 2)).value_or(0);
    }
    return sum;
}

// Bytes, also of the page cache.
uint64_t transferred(const std::string& file) {
    return counted(file, "rchar", "wchar");
}

uint64_t hash_of(const std::string& seen) {
    return std::hash<std::string>()(seen) | 1;
}

}  // namespace

// With its variables there and in its nearest calls.
RankWatch::Wait RankWatch::wait_in_kernel() const {
    const auto call = system_call_of(program_->pid(), program_->pid());
    if (!call) return {};
    std::array<char, 4096> variables{};
    const size_t size = program_->read_some(call->stack_pointer, variables.data(), variables.size());
    // What a stop changes there, this program's own among them, is no progress.
    constexpr size_t kTimespec = 16;
    for (const uint64_t address : remaining_times(*call))
        if (const uint64_t at = address - call->stack_pointer; at + kTimespec <= size && at < size)
            std::fill_n(variables.begin() + static_cast<ptrdiff_t>(at), kTimespec, '\0');
    std::string seen = fmt::format("{} {} {}\n", call->number, call->stack_pointer, call->instruction);
    const uint64_t from = hash_of(seen);
    seen += fmt::format("{}\n", fmt::join(call->arguments, " "));
    seen.append(variables.data(), size);
    return {from, hash_of(seen)};
}

// Python's process, if there is one, else the one for which the task waits.
Try<void> RankWatch::find_program(SteadyTime now) {
    found_ = now;
    std::vector<pid_t> candidates{task_};
    const auto started = descendants_of(task_, kMostDescendants);
    candidates.insert(candidates.end(), started.begin(), started.end());
    python_.reset();
    for (const pid_t pid : candidates) {
        auto process = Process::open(pid);
        if (!process && pid == task_) return fail(process.error().message);
        if (!process) continue;
        auto program = std::make_unique<Process>(std::move(*process));
        auto python = Python::find(*program);
        if (!python || !*python) continue;
        program_ = std::move(program);
        python_ = **python;
        return {};
    }
    program_ = std::make_unique<Process>(DP_TRY(Process::open(awaited_by(task_))));
    return {};
}

// 0: it is in none. Who waits busily is stopped seldom, for some microseconds; meanwhile its memory tells whether it has gone on.
uint64_t RankWatch::place_of_busy_wait(SteadyTime now, bool seems_to_wait) {
    if (busy_wait_ && !may_still_be_in(*program_, *busy_wait_)) busy_wait_.reset();
    const bool is_early = seems_to_wait && !busy_wait_ && now >= early_at_;
    if (is_early) early_at_ = now + seldom();
    if (is_early || now >= unwind_at_) {
        NativeReader reader(*program_, "", NativeClock::time_point::max());
        const NativeStack stack = reader.read(program_->pid());
        auto found = busy_wait_of(*program_, stack.frames);
        // Now and then a stack cannot be unwound.
        const bool is_known = found || stack.incomplete.empty();
        unwind_at_ = now + (is_known ? seldom() : kUnwindAgain);
        if (!found || !busy_wait_ || !may_be_the_same(*busy_wait_, *found)) {
            if (is_known) busy_wait_ = std::move(found);
            if (is_known && busy_wait_) ++busy_waits_;
        }
    }
    return busy_wait_ ? (std::hash<uint64_t>()(busy_waits_) ^ busy_wait_->memory) | 1 : 0;
}

void RankWatch::look_at_place(Look& look) {
    program_->renew_budget();
    if (!python_) return look_at_native_place(look);
    const Python::Place place = python_->place();
    look.line = place.line;
    look.place = place.number;
    // In a call of the user's code into a library: where in that, too, because a loop of such calls looks the same in Python. In
    // packages' and Python's own code a wait that polls is usual.
    if (place.number != 0 && place.innermost == PythonFile::user) look.place ^= wait_in_kernel().place;
}

// A wait that polls has other variables each time, its deadline: then the variables of who has called it tell.
void RankWatch::look_at_native_place(Look& look) {
    const Wait before = std::exchange(wait_, wait_in_kernel());
    polls_ |= wait_.call != 0 && wait_.call == before.call && wait_.place != before.place;
    const bool seems_to_wait = wait_.place != 0 && wait_.place == before.place;
    look.place = may_wait_busily_ || polls_ ? place_of_busy_wait(look.at, seems_to_wait) : 0;
    if (look.place == 0) look.place = wait_.place;
}

void RankWatch::measure(Look& look) const {
    const pid_t pid = program_->pid();
    // Other threads than the main one may write a log now and then, but not 16 MiB in a timeout.
    constexpr uint64_t kLessOfOthers = 256;
    const std::string main_thread = file_of(pid, fmt::format("task/{}/io", pid));
    look.calls = counted(main_thread, "syscr", "syscw");
    look.transferred = transferred(main_thread) + transferred(file_of(pid, "io")) / kLessOfOthers;
    if (const auto stat = stat_of(pid)) look.cpu = stat->cpu;
    look.children_cpu = std::chrono::nanoseconds(0);
    for (const pid_t child : descendants_of(pid, kMostDescendants)) {
        look.transferred += transferred(file_of(child, "io"));
        if (const auto stat = stat_of(child)) look.children_cpu += stat->cpu;
    }
}

bool RankWatch::has_ended() const {
    const auto stat = stat_of(task_);
    return !stat || stat->state == 'Z' || stat->state == 'X';
}

std::optional<TcpTraffic> RankWatch::traffic() const {
    std::vector<pid_t> all = descendants_of(task_, kMostDescendants);
    all.push_back(task_);
    return tcp_traffic_of(all);
}

void RankWatch::note_traffic(SteadyTime now) {
    const auto came = detector_.came();
    if (came != traffic_of_) {
        traffic_.reset();
        has_asked_traffic_ = false;
    }
    traffic_of_ = came;
    if (came && now - *came >= timeout_ / 2 && !std::exchange(has_asked_traffic_, true)) traffic_ = traffic();
}

// If it has not moved. So far apart that there is something to compare.
bool RankWatch::is_to_be_judged(SteadyTime now) const {
    const auto apart = told_still_ ? timeout_ / 2 : timeout_ / 4;
    const auto came = detector_.came();
    return came && now - *came >= timeout_ && now - judged_ >= apart &&
           (!traffic_ || now - traffic_->at >= apart);
}

// nullopt: it may well be working.
std::optional<RankWatch::News> RankWatch::judge() {
    // First: to be read wakes one that is stopped, for a moment.
    const auto stat = stat_of(program_->pid());
    ProcessStacks stacks = read_stacks(program_->pid(), {});
    if (stacks.threads.empty()) return std::nullopt;
    News news{doing_of(stacks.threads.front()), {}, std::move(stacks.threads.front())};
    Doing& doing = *news.still;
    if (stat && stat->state == 'T') {
        // The others wait for it, wherever it is, also in the same calls.
        doing.waits_for_others = false;
        doing.place ^= std::hash<std::string>()("stopped");
        doing.where += ", stopped by a signal";
        return news;
    }
    // What computes and talks by turns looks the same for a while.
    if (doing.waits_for_others && busy_wait_ && detector_.is_busy() && !detector_.has_been_busy_for_long())
        return std::nullopt;
    if (doing.waits_for_others) return news;
    if (doing.waits_for_own_thread) return std::nullopt;
    // At one place for long, and busy: a loop of Python's own, or a computation of a library, which may take its time.
    if (detector_.is_busy() && (!doing.is_python_alone || !detector_.has_been_busy_for_long()))
        return std::nullopt;
    if (stat && stat->state == 'D') doing.where += ", in a system call that does not return (a file system?)";
    return news;
}

Try<std::optional<RankWatch::News>> RankWatch::look(SteadyTime now) {
    // Another program may follow; on Python only one that it executes in its own place, and then nothing can be read any more.
    if (!program_ || ((!python_ || now - seen_ >= kUnseen) && now - found_ >= seldom())) {
        const auto which = [this] {
            return program_ ? std::pair(program_->pid(), program_->program())
                            : std::pair<pid_t, std::string>();
        };
        const auto before = which();
        DP_TRY(find_program(now));
        if (which() != before) {
            detector_.reset();
            polls_ = false;
            wait_ = {};
            busy_wait_.reset();
        }
        may_wait_busily_ = may_wait_busily(*program_);
    }
    Look look = last_;
    look.at = now;
    look_at_place(look);
    if (look.place != 0) seen_ = now;
    const bool is_due = is_to_be_judged(now);  // by what it has done until now
    look.is_counted = is_due || now - measured_ >= seldom() || detector_.wants_counts(look);
    if (look.is_counted) {
        measured_ = now;
        const auto stat = stat_of(program_->pid());
        if (!stat || stat->state == 'Z') {  // another program follows, or the task has ended, too
            program_.reset();
            if (has_ended()) return fail("it has ended");
            return std::nullopt;
        }
        if (stat->state == 't') look.place = 0;  // a debugger holds it
        measure(look);
    }
    last_ = look;
    detector_.note(look);
    note_traffic(now);
    const auto since = detector_.still_since();
    if (!since && std::exchange(told_still_, false)) return News{};
    // What it does is read after it was seen there, and before it is seen there again: else it may just have gone on.
    if (!since || !is_due || !detector_.is_at_its_place(look)) return std::nullopt;
    judged_ = now;
    // A thread or a process of its own may load, or a collective may take its time.
    const auto before = std::exchange(traffic_, traffic());
    if (before && traffic_ && is_transfer(*before, *traffic_)) {
        detector_.reset();
        return std::exchange(told_still_, false) ? std::optional(News{}) : std::nullopt;
    }
    if (told_still_) return std::nullopt;
    auto news = judge();
    look_at_place(look);
    if (!news || !detector_.is_at_its_place(look)) return std::nullopt;
    told_still_ = true;
    news->stood = std::chrono::duration_cast<std::chrono::milliseconds>(now - *since);
    return news;
}

}  // namespace dp::stacks
