// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/compile_options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "trainer/command_line/checks.hpp"
#include "trainer/compile/cache.hpp"

namespace dp::trainer {

void add_cache_options(CLI::App& app, CacheOptions& options) {
    app.add_option("--cache-dir", options.directory,
                   "where `compile` keeps what it made, and a run looks for it; none: nowhere (default: "
                   "$XDG_CACHE_HOME/slurm-dp, else ~/.cache/slurm-dp)")
        ->type_name("DIR");
    app.add_flag("--no-cache", options.off, "look for nothing that `compile` made");
}

void add_compile_options(CLI::App& verb, CacheOptions& options) {
    verb.add_flag("--force", options.force, "make it again where it is there and fits, too");
    verb.add_option("--cache-limit", options.limit,
                    "remove what was used longest ago until all that is kept takes no more than this "
                    "(default: 10GiB)")
        ->transform(size_in_bytes())
        ->type_name("SIZE");
}

std::optional<std::filesystem::path> cache_directory(const CacheOptions& options) {
    if (options.off || options.directory == "none") return std::nullopt;
    if (options.directory) return options.directory;
    return default_cache_directory(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

}  // namespace dp::trainer
