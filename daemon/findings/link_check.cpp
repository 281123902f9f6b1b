// SPDX-License-Identifier: Apache-2.0
#include "findings/link_check.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp::doctor {
namespace {

constexpr double kSlowLink = 1.0 / 3, kHopelessLink = 0.1;  // of the usual
constexpr double kSlowAnyway = 100e6 / 8;                   // bytes per second
constexpr double kClocksApart = 1, kMungesPatience = 300;   // seconds

// What a good link has: with three nodes, one of which is slow, most are not.
double upper_quartile(std::vector<double> values) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[values.size() * 3 / 4];
}

// Of an even number of values the middle one that is nearer zero: with three nodes, one of which is wrong, the others are not.
double cautious_median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    const double upper = values[values.size() / 2], lower = values[(values.size() - 1) / 2];
    return std::abs(lower) < std::abs(upper) ? lower : upper;
}

// "0.96 Mbit/s", "9.6 Gbit/s"
std::string in_bits(double bytes_per_second) {
    const double megabits = bytes_per_second * 8 / 1e6;
    const bool is_fast = megabits >= 999.5;
    return fmt::format("{:.3g} {}bit/s", is_fast ? megabits / 1000 : megabits, is_fast ? 'G' : 'M');
}

// Nodes all of whose links are bad, so that it is theirs and not their partners'.
std::set<uint32_t> nodes_at_fault(const std::vector<Link>& links, const std::vector<const Link*>& bad) {
    std::map<uint32_t, size_t> all, theirs;
    for (const Link& link : links) ++all[link.from], ++all[link.to];
    for (const Link* link : bad) ++theirs[link->from], ++theirs[link->to];
    std::set<uint32_t> nodes;
    for (const auto& [node, count] : theirs)
        if (count == all[node] && all[node] > 1) nodes.insert(node);
    // If it is everybody's, it is nobody's own.
    return nodes.size() * 2 > all.size() ? std::set<uint32_t>() : nodes;
}

Finding about_links(std::vector<std::string> told, bool is_broken, const std::string& usually,
                    std::string remedy) {
    constexpr size_t kMost = 5;
    const size_t more = told.size() > kMost ? told.size() - kMost : 0;
    told.resize(told.size() - more);
    return (is_broken ? fault : warning)(
        "links", join(told, "; ") + (more ? fmt::format("; and {} more", more) : "") + usually,
        is_broken ? "ranks there cannot meet, or hang at their first large message"
                  : "every all-reduce is as slow as the slowest link",
        std::move(remedy));
}

ComparedFact about_nodes(const std::set<uint32_t>& nodes, const std::vector<const Link*>& bad, double usual,
                         const std::vector<std::string>& hosts, const std::string& usually) {
    bool is_one_broken = false;
    std::vector<std::string> told, names;
    std::vector<size_t> odd;
    for (const uint32_t node : nodes) {
        double best = 0;
        std::string problem;
        size_t all = 0, broken = 0;
        for (const Link* link : bad)
            if (link->from == node || link->to == node) {
                ++all;
                best = std::max(best, std::min(link->there, link->back));
                if (link->problem.empty()) continue;
                ++broken;
                problem = link->problem;
            }
        // A third of the usual may be the way that its switch is connected.
        const bool is_hopeless = best < std::max(kHopelessLink * usual, kSlowAnyway);
        const bool is_broken = 2 * broken > all || (is_hopeless && broken > 0);
        is_one_broken |= is_broken;
        if (is_broken || is_hopeless) odd.push_back(node);
        names.push_back(hosts[node]);
        told.push_back(hosts[node] +
                       " with all others: " + (is_broken ? problem : "at most " + in_bits(best)));
    }
    return {about_links(std::move(told), is_one_broken, usually,
                        "leave it out: --exclude=" + compress_hostlist(names)),
            std::move(odd)};
}

bool is_odd(const std::vector<ComparedFact>& found, size_t node) {
    return std::ranges::any_of(
        found, [&](const ComparedFact& one) { return std::ranges::find(one.odd, node) != one.odd.end(); });
}

std::vector<ComparedFact> check_bandwidth(const std::vector<Link>& links,
                                          const std::vector<std::string>& hosts) {
    std::vector<double> all;
    for (const Link& link : links)
        if (link.problem.empty()) all.insert(all.end(), {link.there, link.back});
    const double usual = upper_quartile(all);
    std::vector<const Link*> bad;
    for (const Link& link : links)
        if (!link.problem.empty() ||
            std::min(link.there, link.back) < std::max(kSlowLink * usual, kSlowAnyway))
            bad.push_back(&link);
    const std::string usually = all.empty() ? "" : ", the usual is " + in_bits(usual);
    if (bad.empty())
        return {{ok("links", fmt::format("{} between {} nodes, {} to {}{}", plural(links.size(), "pair"),
                                         hosts.size(), in_bits(*std::ranges::min_element(all)),
                                         in_bits(*std::ranges::max_element(all)), usually))}};
    const std::set<uint32_t> nodes = nodes_at_fault(links, bad);
    std::vector<ComparedFact> found;
    if (!nodes.empty()) found.push_back(about_nodes(nodes, bad, usual, hosts, usually));
    bool is_broken = false;
    std::vector<std::string> told;
    for (const Link* link : bad) {
        // A slow node may have a broken link, too.
        const bool is_theirs = link->problem.empty() ? nodes.contains(link->from) || nodes.contains(link->to)
                                                     : is_odd(found, link->from) || is_odd(found, link->to);
        if (is_theirs) continue;
        is_broken |= !link->problem.empty();
        told.push_back(hosts[link->from] + " with " + hosts[link->to] + ": " +
                       (link->problem.empty() ? in_bits(std::min(link->there, link->back)) : link->problem));
    }
    if (!told.empty())
        found.push_back({about_links(std::move(told), is_broken, usually,
                                     "check the cables and switch ports between them")});
    return found;
}

ComparedFact check_clocks(const std::vector<Link>& links, const std::vector<std::string>& hosts) {
    std::map<uint32_t, std::vector<double>> ahead;
    for (const Link& link : links) {
        if (!link.problem.empty()) continue;
        ahead[link.to].push_back(link.ahead);
        ahead[link.from].push_back(-link.ahead);
    }
    if (ahead.empty()) return {ok("clocks", "not compared: no link works")};
    double worst = 0;
    std::vector<std::string> apart;
    std::vector<size_t> odd;
    for (const auto& [node, all] : ahead) {
        const double by = cautious_median(all);
        worst = std::abs(by) > std::abs(worst) ? by : worst;
        if (std::abs(by) <= kClocksApart) continue;
        // Of two nodes nobody knows whose clock is wrong.
        if (std::abs(by) > kMungesPatience && ahead.size() > 2) odd.push_back(node);
        apart.push_back(
            fmt::format("{} is {:.3g} s {}", hosts[node], std::abs(by), by > 0 ? "ahead" : "behind"));
    }
    if (apart.empty()) return {ok("clocks", fmt::format("at most {:.2g} ms apart", std::abs(worst) * 1e3))};
    const Finding found = (std::abs(worst) > kMungesPatience ? fault : warning)(
        "clocks", join(apart, ", "),
        "munge refuses credentials that are minutes old, and the nodes' logs cannot be compared",
        "systemctl enable --now chronyd there; chronyc tracking");
    return {found, odd};
}

}  // namespace

std::vector<ComparedFact> check_links(const std::vector<Link>& links, const std::vector<std::string>& hosts) {
    if (links.empty()) return {};
    std::vector<ComparedFact> found = check_bandwidth(links, hosts);
    found.push_back(check_clocks(links, hosts));
    return found;
}

wire::MeasuredLink message_of(const Link& link) {
    wire::MeasuredLink message;
    message.set_from(link.from);
    message.set_to(link.to);
    message.set_there(link.there);
    message.set_back(link.back);
    message.set_round_trip(link.round_trip);
    message.set_ahead(link.ahead);
    message.set_problem(link.problem);
    return message;
}

// Whoever can rewrite packets between the two nodes can have made up any number.
Link link_of(const wire::MeasuredLink& message) {
    const auto is_speed = [](double one) { return std::isfinite(one) && one >= 0; };
    if (!is_speed(message.there()) || !is_speed(message.back()) || !is_speed(message.round_trip()) ||
        !std::isfinite(message.ahead()))
        return {message.from(), message.to(), 0, 0, 0, 0, "measured nonsense"};
    return {message.from(),
            message.to(),
            message.there(),
            message.back(),
            message.round_trip(),
            message.ahead(),
            printable(message.problem(), 200)};
}

}  // namespace dp::doctor
