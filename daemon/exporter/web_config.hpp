// SPDX-License-Identifier: Apache-2.0
//
// The exporter's file for TLS, as those of Prometheus' exporters are written
// (https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md). Clients always need a certificate.
#pragma once

#include <string>

#include "base/failure.hpp"

namespace dp {

// Paths of PEM files.
struct WebConfig {
    std::string certificates;  // the exporter's, with those that signed it
    std::string key;
    std::string client_authorities;
};
// Relative paths in it are below its directory. The failure says which file, and what to give instead.
Try<WebConfig> read_web_config(const std::string& path);

}  // namespace dp
