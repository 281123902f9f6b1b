// SPDX-License-Identifier: Apache-2.0
#include "site.hpp"

#include "base/text.hpp"

namespace dp::plugin {
namespace {

const OptionSpec* default_of_site(std::string_view name) {
    for (const OptionSpec& spec : option_specs())
        if (spec.places.plugstack && name == spec.name + 3) return &spec;
    return nullptr;
}

std::string names_of_settings() {
    std::string names = "daemon=PATH, dead-after=SECONDS, exporter=USER, host-suffix=TEXT, tiles-conf=PATH";
    for (const OptionSpec& spec : option_specs())
        if (spec.places.plugstack) names += std::string(", ") + (spec.name + 3) + "=" + spec.argument;
    return names;
}

// A word as host and user names have them.
bool is_plain(std::string_view text) {
    return !text.empty() && text.size() <= 64 &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
               std::string_view::npos;
}

}  // namespace

Site read_site(std::span<char* const> words, const std::string& default_daemon) {
    Site site;
    site.daemon = default_daemon;
    auto mistake = [&](const std::string& what) { site.mistakes.push_back("plugstack.conf: " + what); };
    for (const char* raw : words) {
        std::string_view word(raw);
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
        if (name == "daemon" || name == "tiles-conf") {
            if (value.starts_with('/'))
                (name == "daemon" ? site.daemon : site.tiles_conf) = value;
            else
                mistake(std::string(name) + "=" + printable(value, 80) + ": give an absolute path");
        } else if (name == "host-suffix") {
            if (is_plain(value))
                site.host_suffix = value;
            else
                mistake("host-suffix=" + printable(value, 80) +
                        ": give what makes a host name one of the fast network, such as -ib0 or .hsn");
        } else if (name == "exporter") {
            if (is_plain(value))
                site.exporter = value;
            else
                mistake("exporter=" + printable(value, 80) + ": give the user that dpctl exporter runs as");
        } else if (name == "dead-after") {
            const auto seconds = parse_number<uint32_t>(value);
            if (!seconds || *seconds == 0 || *seconds > kMaxTimeoutSeconds)
                mistake("dead-after=" + printable(value, 80) +
                        ": give how many seconds a silent node is waited for, 1 to " +
                        std::to_string(kMaxTimeoutSeconds));
            else
                site.dead_after_seconds = *seconds;
        } else if (const OptionSpec* spec = default_of_site(name)) {
            if (auto set = set_option(site.defaults, spec->name, value); !set)
                mistake(std::string(name) + ": " + set.error().message);
        } else {
            mistake("\"" + printable(word, 80) + "\" is not a setting of slurm-dp; there are " +
                    names_of_settings());
        }
    }
    return site;
}

}  // namespace dp::plugin
