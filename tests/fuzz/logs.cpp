// SPDX-License-Identifier: Apache-2.0
//
// The logs that `trainer report` reads: whatever is in them, each run has taken some time, and the tables have no number that is NaN or
// infinite.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "target.hpp"
#include "trainer/reports/run_table.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    using namespace dp::trainer;
    std::istringstream text{std::string(fuzz::text_of(data, size))};
    const auto runs = compare_runs(find_runs("log", text));
    for (const auto& run : runs) {
        fuzz::must(run.at("train_seconds").is_number() && run["train_seconds"].get<double>() > 0,
                   "a run takes time");
        for (const auto& [key, value] : run.items())
            fuzz::must(!value.is_number_float() || std::isfinite(value.get<double>()), "numbers are numbers");
    }
    (void)text_table(runs);
    (void)csv_table(runs);
    return 0;
}
