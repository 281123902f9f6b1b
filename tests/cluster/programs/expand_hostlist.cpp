// SPDX-License-Identifier: Apache-2.0
//
// For test_hostlists.py: each line of standard input is a node list; prints what it expands to, separated by
// spaces, and "compressed" again. A list that is none yields "malformed".
#include "common/hostlist.hpp"

#include <iostream>
#include <string>

int main() {
    for (std::string list; std::getline(std::cin, list);) {
        auto hosts = dp::expand_hostlist(list);
        if (!hosts) {
            std::cout << "malformed\n";
            continue;
        }
        for (const auto& host : *hosts) std::cout << host << ' ';
        std::cout << "= " << dp::compress_hostlist(*hosts) << '\n';
    }
}
