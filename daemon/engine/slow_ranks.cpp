// SPDX-License-Identifier: Apache-2.0
#include "engine/slow_ranks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/phase_page.hpp"

namespace dp {
namespace {

using Pace = wire::RankPace;

// Of an even number, the lower one: of two ranks the faster sets the pace.
double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

std::string milliseconds(double ns) {
    return fmt::format("{:.3g} ms", ns / 1e6);
}

// By dp_phase_kind; what is no wait for others.
constexpr std::array<const char*, kPhases> kPhaseNames = {"idle", "compute", "load", nullptr, "checkpoint"};

// What sets a slow rank apart if it has much more of it than the others.
struct Sign {
    bool (Pace::*is_known)() const;
    double (Pace::*value)() const;
    void (Pace::*set)(double);
    double least;  // the smallest difference that matters
    double apart;  // and how often the others' it must be
    std::string (*in_words)(double own, double usual);
};

std::string percent(double share) {
    return fmt::format("{:.0f} %", 100 * share);
}

constexpr double kApart = 2;
const Sign kSigns[] = {
    {&Pace::has_gpu_slowed, &Pace::gpu_slowed, &Pace::set_gpu_slowed, 0.5, kApart,
     [](double, double) { return std::string("heat or its power supply slows its GPU down"); }},
    {&Pace::has_throttled, &Pace::throttled, &Pace::set_throttled, 0.02, kApart,
     [](double own, double usual) {
         return "its CPU quota (cpu.max) holds it back in " + percent(own) + " of the periods (median " +
                percent(usual) + ")";
     }},
    {&Pace::has_core_waited, &Pace::core_waited, &Pace::set_core_waited, 0.05, kApart,
     [](double own, double usual) {
         return "it waits for a core for " + percent(own) + " of the time (median " + percent(usual) +
                "): other threads run there, of this program or another";
     }},
    {&Pace::has_overheated, &Pace::overheated, &Pace::set_overheated, 0.1, kApart,
     [](double own, double usual) {
         return fmt::format("the kernel throttles its core {:.1f} times a second (median {:.1f}): heat", own,
                            usual);
     }},
    {&Pace::has_gpu_clock_lost, &Pace::gpu_clock_lost, &Pace::set_gpu_clock_lost, 0.15, 1,
     [](double own, double usual) {
         return "its GPU runs at " + percent(1 - own) + " of its highest clock (median " +
                percent(1 - usual) + ")";
     }},
    {&Pace::has_major_faults, &Pace::major_faults, &Pace::set_major_faults, 10, kApart,
     [](double own, double usual) {
         return fmt::format(
             "it reads mapped files or swapped memory: {:.0f} major page faults a second (median {:.0f})",
             own, usual);
     }},
    {&Pace::has_retransmissions, &Pace::retransmissions, &Pace::set_retransmissions, 10, kApart,
     [](double own, double usual) {
         return fmt::format("its node retransmits {:.0f} TCP segments a second (median {:.0f})", own, usual);
     }},
    {&Pace::has_memory_bytes, &Pace::memory_bytes, &Pace::set_memory_bytes, 5e9, 1.5,
     [](double own, double usual) {
         return fmt::format(
             "the cores that share its L3 cache move {:.0f} GB/s from and to memory (median {:.0f} GB/s): a "
             "neighbour's "
             "work, or its own",
             own / 1e9, usual / 1e9);
     }},
    {&Pace::has_clock_lost, &Pace::clock_lost, &Pace::set_clock_lost, 0.15, 1,
     [](double own, double usual) {
         return "its core runs at " + percent(1 - own) + " of its highest clock (median " +
                percent(1 - usual) + ")";
     }},
    {&Pace::has_gpu_xid, &Pace::gpu_xid, &Pace::set_gpu_xid, 0.5, kApart,
     [](double own, double) {
         return fmt::format(
             "its GPU has had the XID event {:.0f} meanwhile: see dmesg and NVIDIA's \"XID Errors\"", own);
     }},
    {&Pace::has_gpu_errors, &Pace::gpu_errors, &Pace::set_gpu_errors, 0.5, kApart,
     [](double own, double) {
         return "its GPU has had " + plural(static_cast<size_t>(own), "uncorrected memory error") +
                " meanwhile";
     }},
};
constexpr double kMostOfASign = 1e12;
// Of a whole step; what is less costs nobody anything.
constexpr double kLeastPartOfStep = 0.05;

// The phase that takes longer than it does elsewhere. Its time is the mean of all steps, checkpoints among them, and does not always
// explain the median.
std::string phase_in_words(const Pace& own, const std::vector<const Pace*>& all, double excess) {
    constexpr double kExplains = 1.5;
    std::string out;
    double most = 0;
    for (size_t phase = 0; phase < kPhases; ++phase) {
        const int i = static_cast<int>(phase);
        if (!kPhaseNames[phase] || own.phase_ns_size() <= i) continue;
        std::vector<double> values;
        for (const Pace* one : all)
            if (one->phase_ns_size() > i) values.push_back(static_cast<double>(one->phase_ns(i)));
        const double usual = median(values);
        const double more = static_cast<double>(own.phase_ns(i)) - usual;
        if (more <= most || more > kExplains * excess) continue;
        most = more;
        out = "; " + milliseconds(static_cast<double>(own.phase_ns(i))) + " in " + kPhaseNames[phase] +
              " (median " + milliseconds(usual) + ")";
    }
    return out;
}

// The first sign: the others may follow from it.
std::string sign_in_words(const Pace& own, const std::vector<const Pace*>& all) {
    for (const Sign& sign : kSigns) {
        if (!(own.*sign.is_known)()) continue;
        std::vector<double> values;
        for (const Pace* one : all)
            if ((one->*sign.is_known)()) values.push_back((one->*sign.value)());
        const double value = (own.*sign.value)(), usual = median(values);
        if (value > sign.apart * usual && value - usual > sign.least)
            return "; " + sign.in_words(value, usual);
    }
    return "";
}

}  // namespace

// What a node says is untrusted: only what can be is taken over.
void SlowRanks::note(const wire::RankPace& said) {
    if (percent_ == 0 || said.own_ns() <= 0) return;
    Rank& rank = ranks_[said.rank()];
    if (said.steps() < rank.pace.steps()) rank = {};  // another program of the same rank
    rank.pace = {};
    rank.pace.set_steps(said.steps());
    rank.pace.set_own_ns(said.own_ns());
    if (said.phase_ns_size() == static_cast<int>(kPhases))
        for (const int64_t ns : said.phase_ns()) rank.pace.add_phase_ns(std::max<int64_t>(ns, 0));
    for (const Sign& sign : kSigns)
        if (const double value = (said.*sign.value)();
            (said.*sign.is_known)() && value >= 0 && value < kMostOfASign)
            (rank.pace.*sign.set)(value);
    has_news_ = true;
}

// That have the same work.
std::vector<const wire::RankPace*> SlowRanks::alike(uint32_t rank) const {
    std::vector<const wire::RankPace*> paces;
    for (const uint32_t other : sizes_.group_of(Dimension::data, rank))
        if (const auto found = ranks_.find(other); found != ranks_.end())
            paces.push_back(&found->second.pace);
    return paces;
}

std::vector<std::string> SlowRanks::take(const Membership& members, Time now) {
    const auto due = next_deadline();
    if (!due || now < *due) return {};
    judged_at_ = now;
    has_news_ = false;
    std::map<uint32_t, std::vector<double>> own;  // by the first rank of the group
    for (const auto& [number, rank] : ranks_)
        own[sizes_.first_of(Dimension::data, number)].push_back(static_cast<double>(rank.pace.own_ns()));
    std::map<uint32_t, double> medians;
    for (auto& [group, times] : own) medians[group] = median(std::move(times));
    std::map<uint32_t, std::vector<uint32_t>> slow, recovered;  // likewise
    for (auto& [number, rank] : ranks_) {
        const uint32_t group = sizes_.first_of(Dimension::data, number);
        const bool is_slow = is_slower(rank, medians.at(group));
        if (is_slow == rank.is_slow) {
            rank.differs_since.reset();
            continue;
        }
        if (!rank.differs_since) rank.differs_since = {rank.pace.steps(), now};
        if (rank.pace.steps() - rank.differs_since->steps < kSlowSteps ||
            now - rank.differs_since->at < kSlowFor)
            continue;
        rank.is_slow = is_slow;
        rank.differs_since.reset();
        (is_slow ? slow : recovered)[group].push_back(number);
    }
    std::vector<std::string> lines;
    for (const auto& [group, ranks] : slow) lines.push_back(slow_line(ranks, medians.at(group), members));
    for (const auto& [group, ranks] : recovered)
        lines.push_back(name_ranks(ranks) + " on " + members.hosts_of(ranks) +
                        (ranks.size() == 1 ? " keeps" : " keep") +
                        " up with the others again: " + times_in_words(ranks, medians.at(group)));
    return lines;
}

// It must also matter: where a device does the work, the host's part of a step may be small. Who is slow becomes fast again well below
// the limit.
bool SlowRanks::is_slower(const Rank& rank, double usual) const {
    if (rank.pace.phase_ns_size() == 0) return rank.is_slow;
    const auto own = static_cast<double>(rank.pace.own_ns());
    const double step = own + static_cast<double>(rank.pace.phase_ns(kWaits));
    const double part = rank.is_slow ? 0.5 : 1;
    return own > usual * (1 + part * percent_ / 100.0) && own - usual >= part * kLeastPartOfStep * step;
}

// "131 ms to 140 ms a step, not counting waits for other ranks; the median is 104 ms".
std::string SlowRanks::times_in_words(const std::vector<uint32_t>& ranks, double usual) const {
    const auto own = [this](uint32_t rank) { return ranks_.at(rank).pace.own_ns(); };
    const auto [fastest, slowest] = std::ranges::minmax(ranks, {}, own);
    const std::string least = milliseconds(static_cast<double>(own(fastest)));
    const std::string most = milliseconds(static_cast<double>(own(slowest)));
    return (least == most ? most : least + " to " + most) +
           " a step, not counting waits for other ranks; the median is " + milliseconds(usual);
}

// With what sets the slowest of them apart.
std::string SlowRanks::slow_line(const std::vector<uint32_t>& ranks, double usual,
                                 const Membership& members) const {
    const uint32_t slowest =
        *std::ranges::max_element(ranks, {}, [this](uint32_t rank) { return ranks_.at(rank).pace.own_ns(); });
    const auto& pace = ranks_.at(slowest).pace;
    const auto all = alike(slowest);
    return name_ranks(ranks) + " on " + members.hosts_of(ranks) + (ranks.size() == 1 ? " is" : " are") +
           " slow (--dp-slow): " + times_in_words(ranks, usual) +
           (ranks.size() == 1 ? "" : "; the slowest is rank " + std::to_string(slowest)) +
           phase_in_words(pace, all, static_cast<double>(pace.own_ns()) - usual) + sign_in_words(pace, all);
}

}  // namespace dp
