// SPDX-License-Identifier: Apache-2.0
#include "dpctl/site_records.hpp"

#include <glob.h>

#include "common/slurm_patterns.hpp"
#include "doctor/slurm.hpp"
#include "record/entries.hpp"

namespace dp {

Try<std::string> site_directory(const std::vector<std::string>& plugin_line) {
    constexpr std::string_view kSetting = "record=";
    for (const std::string& word : plugin_line) {
        if (!word.starts_with(kSetting) || word == "record=off") continue;
        std::string directory = word.substr(kSetting.size());
        if (!directory.starts_with('/'))
            return fail("plugstack.conf has " + word +
                        ", below each job's working directory; give the directory");
        return directory;
    }
    return fail(
        "plugstack.conf has no record=DIR, so the site records no steps by itself; give the directory");
}

Try<std::string> site_directory() {
    const auto facts = doctor::read_slurm("scontrol");
    if (!facts.problem.empty()) return fail("Slurm's configuration cannot be asked for: " + facts.problem);
    if (!facts.lines)
        return fail(facts.setting("PlugStackConfig") + " cannot be read here; give the directory");
    return site_directory(doctor::plugin_line(facts));
}

std::string directories_of_job(std::string_view directory, uint32_t job, const std::string& node) {
    std::string literally;
    for (const char c : directory) {
        if (c == '*' || c == '?' || c == '[' || c == '\\') literally += '\\';
        literally += c;
    }
    return fill_in(literally, {{'j', std::to_string(job)}, {'s', "*"}, {'N', node}});
}

Try<std::vector<std::string>> records_of_job(uint32_t job) {
    const std::string directory = DP_TRY(site_directory());
    const std::string id = std::to_string(job);
    const std::string pattern =
        directories_of_job(directory, job, "*") + "/" + id + ".*" + std::string(kRecordSuffix);
    std::vector<std::string> files;
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (files.empty())
        return fail("there is no record of job " + std::to_string(job) + " here (" + pattern +
                    "); where that directory is local to the job's nodes, bring its files together with "
                    "dpctl collect");
    return files;
}

}  // namespace dp
