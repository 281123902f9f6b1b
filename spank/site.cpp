// SPDX-License-Identifier: Apache-2.0
#include "site.hpp"

#include <string_view>

#include "common/text.hpp"

namespace dp::plugin {

Site read_site(std::span<char* const> words, const std::string& default_daemon) {
    Site site;
    site.daemon = default_daemon;
    auto mistake = [&](const std::string& what) { site.mistakes.push_back("plugstack.conf: " + what); };
    for (const char* raw : words) {
        std::string_view word(raw);
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
        if (name == "daemon") {
            if (value.empty() || value[0] != '/')
                mistake("daemon=" + printable(value, 80) + ": give the absolute path of dp-rendezvousd");
            else
                site.daemon = value;
        } else if (name == "timeout") {
            if (auto set = set_option(site.defaults, "dp-timeout", value); !set)
                mistake("timeout: " + set.error().message);
        } else {
            mistake("\"" + printable(word, 80) +
                    "\" is no setting of slurm-dp; there are daemon=PATH and timeout=SECONDS");
        }
    }
    return site;
}

}  // namespace dp::plugin
