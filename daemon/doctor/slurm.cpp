// SPDX-License-Identifier: Apache-2.0
#include "doctor/slurm.hpp"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "doctor/apart.hpp"
#include "tiles/sysfs.hpp"

namespace dp::doctor {
namespace {

constexpr std::chrono::seconds kScontrolPatience{5};
constexpr std::string_view kPlugin = "spank_dp.so";
constexpr int kDeepestInclude = 8;
constexpr uint32_t kShortKillWait = 10;  // seconds

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
    return first == text.npos ? "" : text.substr(first, last - first + 1);
}

// Of a line without its comment.
std::vector<std::string> words_of(std::string_view line) {
    constexpr std::string_view kBlanks = " \t\r";
    line = line.substr(0, line.find('#'));
    std::vector<std::string> words;
    for (size_t at = 0; (at = line.find_first_not_of(kBlanks, at)) != line.npos;) {
        const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
        words.emplace_back(line.substr(at, end - at));
        at = end;
    }
    return words;
}

// Its lines without comments, with those of included files in their place. nullopt: it cannot be read.
std::optional<std::vector<std::string>> read_plugstack(const std::string& path, int depth = 0) {
    const auto text = read_text(path, 1 << 20);
    if (!text || !*text || depth > kDeepestInclude) return std::nullopt;
    std::vector<std::string> lines;
    for (const auto line : split(**text, '\n')) {
        const auto words = words_of(line);
        if (words.empty()) continue;
        if (words.front() != "include" || words.size() < 2) {
            lines.push_back(join(words, " "));
            continue;
        }
        const std::string pattern =
            words[1].starts_with('/') ? words[1] : path.substr(0, path.rfind('/') + 1) + words[1];
        glob_t found{};
        if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc; ++i)
                for (auto& one :
                     read_plugstack(found.gl_pathv[i], depth + 1).value_or(std::vector<std::string>()))
                    lines.push_back(std::move(one));
        globfree(&found);
    }
    return lines;
}

Finding check_plugstack(const SlurmFacts& facts) {
    const std::string file = facts.setting("PlugStackConfig");
    if (!facts.lines)
        return warning("plugstack.conf", file + " cannot be read here",
                       "without its line for slurm-dp, srun knows no --dp option (a configless node has it "
                       "in Slurm's cache)",
                       "srun --help | grep dp-world");
    const auto line = plugin_line(facts);
    if (line.empty())
        return warning("plugstack.conf", file + " has no line for slurm-dp",
                       "srun, sbatch and salloc know no --dp option",
                       "echo 'include /usr/share/slurm-dp/plugstack.conf' >> " + file + ", on all nodes");
    if (!facts.is_plugin_there)
        return fault("plugstack.conf", line[1] + " is not there, and " + file + " names it",
                     line[0] == "required" ? "srun does not start, and batch jobs drain this node"
                                           : "srun complains, and knows no --dp option",
                     "install slurm-dp here, or take the line out");
    if (line[0] == "required")
        return warning("plugstack.conf", join(line, " "),
                       "if the plugin cannot be loaded one day (after an upgrade of Slurm), batch jobs drain "
                       "their nodes",
                       "write optional in the place of required");
    return ok("plugstack.conf", join(line, " "));
}

Finding check_ports(const SlurmFacts& facts) {
    const std::string parameters = facts.setting("MpiParams");
    const size_t at = parameters.find("ports=");
    if (at == parameters.npos)
        return ok("reserved ports",
                  fmt::format("Slurm reserves none (MpiParams); a step takes its ports from {} to {}",
                              kFirstPort, kLastPort));
    const std::string_view range = std::string_view(parameters).substr(at + 6);
    const std::string reserved(range.substr(0, range.find_first_not_of("0123456789-")));
    const std::string seen = "MpiParams=ports=" + reserved;
    if (ephemeral_warning(reserved, facts.ephemeral).empty()) return ok("reserved ports", seen);
    return warning("reserved ports",
                   fmt::format("{}, inside the kernel's ephemeral range {} to {}", seen,
                               facts.ephemeral.first, facts.ephemeral.last),
                   "any program's connection may hold one of them: MASTER_PORT then comes from elsewhere, "
                   "and each step says so",
                   "MpiParams=ports=12000-15000 in slurm.conf, or any range below the ephemeral one");
}

Finding check_tracking(const SlurmFacts& facts) {
    const std::string type = facts.setting("ProctrackType");
    if (type.ends_with("/cgroup") || type.empty())
        return ok("process tracking", type.empty() ? "not known" : type);
    return warning(
        "process tracking", type,
        "processes that have left their parents survive a step and hold its GPUs; some get signals twice",
        "ProctrackType=proctrack/cgroup in slurm.conf");
}

Finding check_binding(const SlurmFacts& facts) {
    const std::string plugins = facts.setting("TaskPlugin");
    if (plugins.find("affinity") != plugins.npos || plugins.find("cgroup") != plugins.npos || plugins.empty())
        return ok("binding", plugins.empty() ? "not known" : "TaskPlugin=" + plugins);
    return warning("binding", "TaskPlugin=" + plugins,
                   "ranks are not bound to CPUs, and wander between the sockets of a node, away from their "
                   "memory and GPUs",
                   "TaskPlugin=task/cgroup,task/affinity in slurm.conf");
}

Finding check_kill_wait(const SlurmFacts& facts) {
    const std::string seen = facts.setting("KillWait");
    uint32_t seconds = 0;
    const auto [end, error] = std::from_chars(seen.data(), seen.data() + seen.size(), seconds);
    if (error != std::errc{}) return ok("time to end", "not known");
    if (seconds >= kShortKillWait) return ok("time to end", "KillWait=" + std::to_string(seconds) + " s");
    return warning("time to end", "KillWait=" + std::to_string(seconds) + " s",
                   "a rank has no more than this between SIGTERM and SIGKILL, and a checkpoint takes longer",
                   "KillWait=30 in slurm.conf");
}

}  // namespace

std::string SlurmFacts::setting(const std::string& name) const {
    const auto found = settings.find(name);
    return found == settings.end() ? "" : found->second;
}

std::map<std::string, std::string> parse_settings(std::string_view text) {
    std::map<std::string, std::string> settings;
    for (const auto line : split(text, '\n')) {
        const size_t equals = line.find('=');
        if (equals == line.npos) continue;
        const auto value = trimmed(line.substr(equals + 1));
        if (value != "(null)") settings.emplace(trimmed(line.substr(0, equals)), printable(value, 1000));
    }
    return settings;
}

std::vector<std::string> plugin_line(const SlurmFacts& facts) {
    for (const std::string& line : facts.lines.value_or(std::vector<std::string>()))
        if (auto words = words_of(line); words.size() >= 2 && words[1].ends_with(kPlugin)) return words;
    return {};
}

SlurmFacts read_slurm(const std::string& scontrol) {
    SlurmFacts facts;
    const auto said = output_of({scontrol, "show", "config"}, kScontrolPatience);
    facts.is_here = said || said.error().message != scontrol + " is not here";
    if (!said || said->exit_code != 0) {
        facts.problem = !said                ? said.error().message
                        : said->text.empty() ? fmt::format("{} exited with {}", scontrol, said->exit_code)
                                             : printable(said->text.substr(0, said->text.find('\n')));
        // It asks the name service for a controller that has one.
        facts.is_configured = facts.problem.find("resolve_ctls_from_dns_srv") == std::string::npos;
        return facts;
    }
    facts.settings = parse_settings(said->text);
    facts.ephemeral = read_ephemeral_range();
    // Where nobody says where it is, it is beside slurm.conf.
    const std::string conf = facts.setting("SLURM_CONF");
    facts.settings.try_emplace("PlugStackConfig", conf.substr(0, conf.rfind('/') + 1) + "plugstack.conf");
    facts.lines = read_plugstack(facts.setting("PlugStackConfig"));
    if (const auto line = plugin_line(facts); !line.empty() && line[1].starts_with('/'))
        facts.is_plugin_there = access(line[1].c_str(), R_OK) == 0;
    return facts;
}

Findings check_slurm(const SlurmFacts& facts) {
    if (!facts.is_here) return {ok("Slurm", "not installed here; dpctl launch starts ranks without it")};
    if (!facts.is_configured) return {ok("Slurm", "installed, without a slurm.conf")};
    if (!facts.problem.empty())
        return {
            fault("Slurm", "its controller does not answer: " + facts.problem, "no job starts",
                  "scontrol ping; systemctl status munge, here and there: clocks and keys must be the same")};
    const std::string version = facts.setting("SLURM_VERSION");
    return {ok("Slurm", version.empty() ? "it answers" : version),
            check_plugstack(facts),
            check_ports(facts),
            check_tracking(facts),
            check_binding(facts),
            check_kill_wait(facts)};
}

}  // namespace dp::doctor
