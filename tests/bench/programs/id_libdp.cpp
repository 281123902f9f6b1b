// SPDX-License-Identifier: Apache-2.0
//
// A rank that gets one unique id from libdp: from the common start, dp_open and dp_unique_id.
//   bench-id-libdp FOLDER
#include "dp/dp.hpp"
#include "start_line.hpp"

namespace {

std::optional<dp::UniqueId> make_id() {
    dp::UniqueId id{};
    if (getentropy(id.data(), id.size()) != 0) return std::nullopt;
    return id;
}

}  // namespace

int main(int argc, char** argv) {
    using namespace dp::bench;
    if (argc != 2) die("usage: bench-id-libdp FOLDER");
    end_after(kAllCome);
    wait_for_the_start(argv[1]);
    end_after(kLongest);
    const int64_t begin = monotonic_ns();
    auto context = dp::Context::open();
    if (!context) die(context.error().message);
    auto id = context->unique_id({}, make_id);
    const int64_t end = monotonic_ns();
    if (!id) die(id.error().message);
    report(argv[1], begin, end, hexadecimal({reinterpret_cast<const char*>(id->data()), id->size()}));
    return 0;
}
