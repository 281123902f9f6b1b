// SPDX-License-Identifier: Apache-2.0
//
// The small texts that plugin, daemon and tasks hand each other, and networks as people write them. The first
// byte chooses.
#include <string>

#include "common/address.hpp"
#include "common/control.hpp"
#include "common/daemon_config.hpp"
#include "common/fields.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    fuzz::Bytes bytes(data, size);
    const uint8_t choice = bytes.byte();
    const std::string_view text = bytes.take(size);
    switch (choice % 4) {
        case 0:
            fuzz::must(field_of(field_line("name", std::string(text)), "name").size() == text.size(),
                       "a field written is found");
            field_of(text, "name");
            break;
        case 1:
            if (auto config = read_config(text)) {
                auto again = read_config(write_config(*config));
                fuzz::must(again && write_config(*again) == write_config(*config),
                           "a configuration written and read is the same");
            }
            break;
        case 2:
            if (auto event = read_control(text)) {
                auto again = read_control(write_control(*event));
                fuzz::must(again && *again == *event, "a packet written and read is the same");
            }
            break;
        default:
            if (auto network = parse_cidr(text)) {
                fuzz::must(network->prefix <= 8 * network->address.size(),
                           "no prefix longer than the address");
                network->contains("10.0.0.1");
                network->contains("fd00::1");
            }
            break;
    }
    return 0;
}
