// SPDX-License-Identifier: Apache-2.0
//
// `dpctl exporter`: the metrics of all steps on this node, for Prometheus. It reads; it changes and keeps nothing. As the user that
// plugstack.conf names (exporter=), or as root. A program of its own: what it links would delay each start of dpctl by 2 ms.
#pragma once

#include <string>

namespace dp {

// `listen`: "127.0.0.1:9951". `web_config`: a file for TLS (exporter/web_config.hpp); "": none, and clients of this node only.
// Until SIGTERM, SIGINT or SIGHUP: 0. 1: it could not begin, and has said why.
int run_exporter(const std::string& listen, const std::string& web_config);

}  // namespace dp
