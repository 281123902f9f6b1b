// SPDX-License-Identifier: Apache-2.0
//
// `dpctl exporter`.
#include <unistd.h>

#include <cerrno>

#include "base/errno_text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/helper_programs.hpp"
#include "dpctl/query.hpp"

namespace dp {

int run_exporter(const ExporterOptions& options) {
    const std::string program = helper_program("dp-exporter");
    execl(program.c_str(), program.c_str(), options.listen.c_str(), options.web_config.c_str(), nullptr);
    return complain(program + ": " + errno_text(errno) +
                    (errno == ENOENT ? "; install slurm-dp-exporter" : ""));
}

}  // namespace dp
