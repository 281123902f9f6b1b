// SPDX-License-Identifier: Apache-2.0
//
// Slurm's configuration, as far as slurm-dp's work depends on it. What a site chose on purpose is no finding.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ports.hpp"
#include "findings/finding.hpp"

namespace dp::doctor {

struct SlurmFacts {
    bool is_here = true;                          // scontrol is installed
    bool is_configured = true;                    // and finds a slurm.conf
    std::string problem;                          // why it does not answer
    std::map<std::string, std::string> settings;  // of `scontrol show config`
    std::optional<std::vector<std::string>>
        lines;                    // of plugstack.conf and what it includes; nullopt: it cannot be read
    bool is_plugin_there = true;  // the file that the plugin's line names
    PortRange ephemeral{32768, 60999};

    // "" if it is not set.
    std::string setting(const std::string& name) const;
};

// "Name = value" lines; "(null)" is no value. Pure.
std::map<std::string, std::string> parse_settings(std::string_view text);

SlurmFacts read_slurm(const std::string& scontrol);
// The line of plugstack.conf that loads the plugin, as words; none if there is no such line. Pure.
std::vector<std::string> plugin_line(const SlurmFacts& facts);
Findings check_slurm(const SlurmFacts& facts);

}  // namespace dp::doctor
