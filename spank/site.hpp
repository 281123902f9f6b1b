// SPDX-License-Identifier: Apache-2.0
//
// The site's settings: the words after the plugin on its line in plugstack.conf.
//
//   required /usr/lib/.../spank_dp.so daemon=/usr/libexec/slurm-dp/dp-rendezvousd timeout=600
#pragma once

#include <span>

#include "common/options.hpp"
#include "tiles/inventory.hpp"

namespace dp::plugin {

struct Site {
    std::string daemon;  // absolute path of dp-rendezvousd
    // The suffix that turns a node's name into its name on the fast network: "-ib0"; "" if none is needed.
    std::string host_suffix;
    std::string tiles_conf = kTilesConf;  // absolute path
    std::string exporter;                 // the user of `dpctl exporter`; "": nobody, or root
    uint32_t dead_after_seconds = 0;      // how long a silent node is waited for; 0: the daemon's default
    Settings defaults;  // weaker than the environment; never turn the plugin on by themselves
    // One line per unknown word, for slurmd's log. The other words still hold, and users' jobs still run.
    std::vector<std::string> mistakes;
};

Site read_site(std::span<char* const> words, const std::string& default_daemon);

}  // namespace dp::plugin
