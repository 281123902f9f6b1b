// SPDX-License-Identifier: Apache-2.0
#include "dpctl/site_records.hpp"

#include <glob.h>

#include "common/slurm_patterns.hpp"
#include "doctor/slurm.hpp"
#include "record/entries.hpp"

namespace dp {

Try<std::string> pattern_of_records(const std::vector<std::string>& plugin_line, uint32_t job) {
    constexpr std::string_view kSetting = "record=";
    const std::string id = std::to_string(job);
    for (const std::string& word : plugin_line) {
        if (!word.starts_with(kSetting) || word == "record=off") continue;
        const std::string directory = word.substr(kSetting.size());
        if (!directory.starts_with('/'))
            return fail("plugstack.conf has " + word +
                        ", below each job's working directory; give the directory");
        return fill_in(directory, {{'j', id}, {'s', "*"}, {'N', "*"}}) + "/" + id + ".*" +
               std::string(kRecordSuffix);
    }
    return fail(
        "plugstack.conf has no record=DIR, so the site records no steps by itself; give the directory");
}

Try<std::vector<std::string>> records_of_job(uint32_t job) {
    const auto facts = doctor::read_slurm("scontrol");
    if (!facts.problem.empty()) return fail("Slurm's configuration cannot be asked for: " + facts.problem);
    if (!facts.lines)
        return fail(facts.setting("PlugStackConfig") + " cannot be read here; give the directory");
    const std::string pattern = DP_TRY(pattern_of_records(doctor::plugin_line(facts), job));
    std::vector<std::string> files;
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (files.empty())
        return fail("there is no record of job " + std::to_string(job) + " here (" + pattern +
                    "); where that directory is local to the job's nodes, bring its files here and give "
                    "their directory");
    return files;
}

}  // namespace dp
