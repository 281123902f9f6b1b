// SPDX-License-Identifier: Apache-2.0
//
// A rank that dies or is told of it: when all are there rank VICTIM notes the time and kills itself, and
// every other one notes when libdp's call-back has told it, and what. Lines in FOLDER/times: "RANK died NS"
// and "RANK told NS DEAD REASON".
//   bench-told-of-death FOLDER VICTIM
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "dp/dp.hpp"
#include "start_line.hpp"

namespace {

using namespace dp::bench;

constexpr std::chrono::seconds kPatience{20};
// Until the others have come from the start and wait.
constexpr std::chrono::milliseconds kStill{100};

struct News {
    int64_t at = 0;
    dp::Event event;
};

std::string line_of(unsigned rank, const News& news) {
    std::string dead;
    for (auto one : news.event.ranks) dead += (dead.empty() ? "" : ",") + std::to_string(one);
    return std::to_string(rank) + " told " + std::to_string(news.at) + " " +
           (dead.empty() ? "nobody" : dead) + " " + news.event.reason + "\n";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) die("usage: bench-told-of-death FOLDER VICTIM");
    end_after(kAllCome);
    const std::string folder = argv[1];
    auto context = dp::Context::open();
    if (!context) die(context.error().message);
    const unsigned rank = context->world().rank;

    std::promise<News> told;
    bool first = true;
    auto watch = context->on_event([&](const dp::Event& event) {
        const int64_t now = monotonic_ns();
        if (std::exchange(first, false)) told.set_value({now, event});
    });
    if (!watch) die(watch.error().message);
    if (auto met = context->barrier(); !met) die(met.error().message);
    wait_for_the_start(folder);

    if (rank == static_cast<unsigned>(std::atoi(argv[2]))) {
        std::this_thread::sleep_for(kStill);
        append(folder + "/times", std::to_string(rank) + " died " + std::to_string(monotonic_ns()) + "\n");
        raise(SIGKILL);
    }
    auto news = told.get_future();
    if (news.wait_for(kPatience) != std::future_status::ready)
        die("rank " + std::to_string(rank) + " was told of nothing within 20 s");
    append(folder + "/times", line_of(rank, news.get()));
    return 0;
}
