// SPDX-License-Identifier: Apache-2.0
//
// `dpctl top`.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "dpctl/usage_table.hpp"

namespace dp {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr double kInterval = 1;
// The interval for a single table, so that it comes soon.
constexpr double kIntervalOnce = 0.5;
// ECMA-48: go to the first line; erase the rest of the line, and everything below.
constexpr const char* kHome = "\x1b[H";
constexpr const char* kClearLine = "\x1b[K";
constexpr const char* kClearBelow = "\x1b[J";

double unix_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Ctrl-C and the like as a descriptor that can be waited for.
Fd end_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int one : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, one);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    return Fd(signalfd(-1, &signals, SFD_CLOEXEC));
}

Result<wire::StepUsage> look(int socket) {
    wire::FromRank question;
    question.mutable_usage();
    auto answer = DP_TRY(ask_step(socket, question));
    if (!answer.has_usage()) return no_answer(DP_ERROR_INVALID, kOtherVersion);
    if (!answer.usage().problem().empty()) return no_answer(DP_ERROR_INVALID, answer.usage().problem());
    return std::move(*answer.mutable_usage());
}

// Not a file, and not a terminal that would print the control sequences (an editor's, a serial line's).
bool can_redraw() {
    const char* terminal = std::getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && terminal && *terminal && std::string_view(terminal) != "dumb";
}

// Replaces the last table.
std::string redrawn(const std::string& text) {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    std::string out = kHome;
    for (const char c : fit_screen(text, known ? size.ws_row : 24, known ? size.ws_col : 80))
        out += c == '\n' ? std::string(kClearLine) + "\n" : std::string(1, c);
    return out + kClearBelow;
}

class Top {
 public:
    Top(const TopOptions& options, StepConnection step)
        : options_(options),
          step_(std::move(step)),
          user_(user_name(step_.user)),
          redraws_(can_redraw() && !options.csv && !options.json && tables_wanted() != 1) {}

    int run() {
        auto before = look(step_.socket.get());
        if (!before) return complain(before.error().message);
        const auto interval =
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds()));
        for (auto next = Clock::now() + interval;; next = std::max(next + interval, Clock::now())) {
            const auto wait = std::max(std::chrono::ceil<Milliseconds>(next - Clock::now()), Milliseconds(0));
            // Ends early if the daemon leaves.
            pollfd entries[] = {{signals_.get(), POLLIN, 0}, {step_.socket.get(), POLLIN, 0}};
            poll(entries, 2, static_cast<int>(wait.count()));
            if (entries[0].revents & POLLIN) return 0;
            auto after = look(step_.socket.get());
            if (!after) return end(after.error());
            if (int failed = show(usage_between(*before, *after, options_.skip_idle))) return failed;
            if (++shown_ == tables_wanted()) return 0;
            before = std::move(after);
        }
    }

 private:
    const TopOptions& options_;
    StepConnection step_;
    std::string user_;
    bool redraws_;
    uint64_t shown_ = 0;
    const Fd signals_ = end_signals();
    std::set<uint32_t> without_rows_;  // nodes

    // 0: no end.
    uint64_t tables_wanted() const { return options_.count.value_or(options_.once ? 1 : 0); }
    double seconds() const {
        return options_.interval.value_or(tables_wanted() == 1 ? kIntervalOnce : kInterval);
    }

    // Not among the rows, and only once: readers of the rows would take such a node for one that has left.
    void tell_who_has_no_rows(const wire::StepUsage& usage) {
        std::set<uint32_t> now;
        for (const auto& node : usage.nodes())
            if (!node.problem().empty()) now.insert(node.node_rank());
        if (!std::includes(without_rows_.begin(), without_rows_.end(), now.begin(), now.end())) {
            const std::string problems = problems_of(usage);
            for (std::string_view line : split(problems, '\n'))
                if (!line.empty()) complain("no rows of " + std::string(line));
        }
        without_rows_ = std::move(now);
    }

    int show(UsageTable table) {
        table.step = step_.step;
        table.user = user_;
        table.unix_time = unix_time();
        if (options_.json) return print(usage_json(table));
        if (options_.csv) {
            tell_who_has_no_rows(table.usage);
            return print((shown_ == 0 ? usage_csv_titles() : "") + usage_csv(table));
        }
        if (redraws_) return print(redrawn(usage_text(table)));
        return print((shown_ == 0 ? "" : "\n") + usage_text(table));
    }

    int end(const Error& why) const {
        if (shown_ == 0 || why.status != DP_ERROR_LOST) return complain(why.message);
        std::fprintf(stderr, "dpctl: step %s has ended: %s\n", step_.step.c_str(), why.message.c_str());
        return 0;
    }
};

}  // namespace

int show_top(const TopOptions& options) {
    auto step = connect_step(options.step, "top");
    return step ? Top(options, std::move(*step)).run() : complain(step.error().message);
}

}  // namespace dp
