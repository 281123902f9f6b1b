// SPDX-License-Identifier: Apache-2.0
//
// Which checkpoints are written once a rank that has died is replaced, and the others have given it their state
// (Checkpointing::catch_up): what it had begun to write in the background ended with it.
#include <algorithm>
#include <string>
#include <vector>

#include "patterns.hpp"
#include "saved_training.hpp"
#include "trainer/training/checkpointing.hpp"

namespace dp::trainer {
namespace {

struct Case {
    bool is_async;
    std::int64_t every, step;             // after which the ranks go on
    std::vector<std::int64_t> saved;      // before
    std::vector<std::int64_t> caught_up;  // then
};

std::vector<std::int64_t> saved_in(const std::filesystem::path& directory) {
    std::vector<std::int64_t> steps;
    for (const std::string& name : names_in(directory))
        if (name.starts_with("step-")) steps.push_back(std::stoll(name.substr(5)));
    return steps;
}

// On ranks of one node each of which knows what the others know.
std::vector<std::int64_t> caught_up(const Case& one, std::int64_t world) {
    const Scratch directory;
    const ModelInfo& info = *find_model("ffn");
    const Dataset data = pattern_set();
    ThreadWorld(world).run([&](Communicator& communicator) {
        Settings settings = saved_settings(directory.path());
        settings.batch /= world;
        settings.checkpoints.is_async = one.is_async;
        settings.checkpoints.every = one.every;
        settings.checkpoints.keep = 100;
        const auto schedule = *make_schedule(settings, data.train.count, world);
        const auto device = open_cpu(1);
        const auto model = info.make({});
        place_model(*model, settings, 1, *device);
        Seen seen;
        const TrainingContext run{info, *model, data, settings, schedule, *device, communicator, seen};
        const Optimizer optimizer({settings.optimizer}, *device,
                                  shard_of(model->parameters().learned_count(), communicator.rank(), world));
        const auto progress_at = [](std::int64_t step) {
            Progress progress;
            progress.step = step;
            return progress;
        };
        {
            Checkpointing before(run, optimizer, nullptr);
            ASSERT_TRUE(before.prepare());
            for (const std::int64_t step : one.saved) ASSERT_TRUE(before.at_end(step, progress_at(step)));
        }
        Checkpointing after(run, optimizer, nullptr);
        ASSERT_TRUE(after.prepare());
        ASSERT_TRUE(after.catch_up(progress_at(one.step)));
        ASSERT_TRUE(after.finish());
    });
    std::vector<std::int64_t> all = saved_in(directory.path()), more;
    std::ranges::set_difference(all, one.saved, std::back_inserter(more));
    return more;
}

TEST(CatchUp, WritesWhatTheDeathLeftOut) {
    for (const Case& one : {
             Case{true, 10, 25, {10}, {25}},  // that of 20 was being written
             {true, 10, 25, {10, 20}, {}},    // it was written
             {true, 10, 25, {}, {25}},        // the first one was
             {true, 10, 20, {10}, {20}},      // the rank died as it began
             {true, 10, 20, {10, 20}, {}},    // or after all had ended
             {true, 10, 5, {}, {}},           // none was due
             {true, 10, 0, {}, {}},           // nor has a step been
             {true, 0, 25, {}, {}},           // only the end is saved
             {true, 10, 69, {60}, {69}},      // and this is the end
             {false,
              10,
              25,
              {10},
              {}},  // written while the training waits: that of 20 could not be, and was told
             {false, 10, 20, {10}, {20}},
             {false, 10, 20, {10, 20}, {}},
             {false, 10, 69, {60}, {69}},
         })
        for (const std::int64_t world : {1, 2})
            EXPECT_EQ(caught_up(one, world), one.caught_up)
                << (one.is_async ? "in the background" : "waiting") << ", every " << one.every
                << " steps, after step " << one.step << ", " << one.saved.size() << " saved, " << world
                << " ranks";
}

}  // namespace
}  // namespace dp::trainer
