// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "exporter/exporter.hpp"

int main(int argc, char** argv) {
    if (argc == 3) return dp::run_exporter(argv[1], argv[2]);
    std::fputs("dp-exporter: start it as `dpctl exporter`\n", stderr);
    return 2;
}
