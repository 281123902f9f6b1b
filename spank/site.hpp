// SPDX-License-Identifier: Apache-2.0
//
// The site's settings: the words behind the plugin on its line in plugstack.conf.
//
//   required /usr/lib/.../spank_dp.so daemon=/usr/libexec/slurm-dp/dp-rendezvousd timeout=600
#pragma once

#include <span>
#include <string>

#include "common/options.hpp"
#include "common/result.hpp"

namespace dp::plugin {

struct Site {
    std::string daemon;  // absolute path of dp-rendezvousd
    Settings defaults;   // weaker than the environment; never turn the plugin on by themselves
};

// Fails on the first word that is no setting; what came before it holds.
Try<Site> read_site(std::span<char* const> words, const std::string& default_daemon);

}  // namespace dp::plugin
