// SPDX-License-Identifier: Apache-2.0
//
// Whether the stages of a pipeline can wait for each other in a circle, over the links that NCCL's communicators are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/devices/nccl_group.hpp"
#include "trainer/training/pipeline_schedule.hpp"

namespace dp::trainer {
namespace {

// What a stream does next: note that it has come here, wait until another stream of the same GPU has come there, or take part in a
// message, which ends on both sides together.
struct Action {
    enum class Kind { note, wait, message } kind;
    std::size_t event = 0;  // of note and wait
    std::int64_t from = 0, to = 0;
    bool operator==(const Action&) const = default;
};

// As NcclCommunicator queues work: a stream for what the device does (-1), and one for each link, which has a communicator.
class Gpus {
 public:
    using Links = std::function<int(Lane lane, std::int64_t from, std::int64_t to)>;

    Gpus(Passes passes, const Links& links, std::size_t gradient_buffers) : all_(passes.stages) {
        for (; passes.stage < passes.stages; ++passes.stage) queue_all(passes, links, gradient_buffers);
    }
    // Whether all come to their end.
    bool end() {
        for (bool moves = true; moves;) {
            moves = false;
            for (Gpu& gpu : all_)
                for (auto& [link, stream] : gpu.streams)
                    while (step(gpu, link, stream)) moves = true;
        }
        return std::ranges::all_of(all_, [](const Gpu& gpu) {
            return std::ranges::all_of(
                gpu.streams, [](const auto& one) { return one.second.next == one.second.actions.size(); });
        });
    }

 private:
    static constexpr int kDevice = -1;
    struct Stream {
        std::vector<Action> actions;
        std::size_t next = 0;
    };
    struct Gpu {
        std::map<int, Stream> streams;
        std::vector<bool> events;
    };
    std::vector<Gpu> all_;

    std::size_t note(Gpu& gpu, int stream) {
        gpu.events.push_back(false);
        gpu.streams[stream].actions.push_back({Action::Kind::note, gpu.events.size() - 1});
        return gpu.events.size() - 1;
    }
    static void wait(Gpu& gpu, int stream, std::size_t event) {
        gpu.streams[stream].actions.push_back({Action::Kind::wait, event});
    }
    // After what the device has queued; returns when it is over.
    std::size_t message(Gpu& gpu, int link, std::int64_t from, std::int64_t to) {
        wait(gpu, link, note(gpu, kDevice));
        gpu.streams[link].actions.push_back({Action::Kind::message, 0, from, to});
        return note(gpu, link);
    }

    void queue_all(const Passes& passes, const Links& links, std::size_t gradient_buffers) {
        const std::int64_t here = passes.stage, last = passes.stages - 1;
        const std::int64_t before = (here + last) % passes.stages, after = (here + 1) % passes.stages;
        Gpu& gpu = all_[static_cast<std::size_t>(here)];
        std::map<std::int64_t, std::size_t> activations;  // sent from this slot
        std::vector<std::optional<std::size_t>> gradients(gradient_buffers);
        std::size_t backward_passes = 0;
        const auto wait_for_device = [&](std::size_t event) { wait(gpu, kDevice, event); };
        for (const Turn& turn : turns_of(passes)) {
            const bool begins = here == 0 && turn.chunk == 0,
                       ends = here == last && turn.chunk + 1 == passes.chunks;
            if (turn.forward) {
                if (const auto sent = activations.find(turn.slot); sent != activations.end())
                    wait_for_device(sent->second);
                if (!begins)
                    wait_for_device(message(gpu, links(Lane::activations, before, here), before, here));
                if (!ends)
                    activations[turn.slot] = message(gpu, links(Lane::activations, here, after), here, after);
            } else {
                auto& sent = gradients[backward_passes++ % gradient_buffers];
                if (sent) wait_for_device(*sent);
                sent.reset();
                if (!ends) wait_for_device(message(gpu, links(Lane::gradients, after, here), after, here));
                if (!begins) sent = message(gpu, links(Lane::gradients, here, before), here, before);
            }
        }
    }

    bool step(Gpu& gpu, int link, Stream& stream) {
        if (stream.next == stream.actions.size()) return false;
        const Action& action = stream.actions[stream.next];
        if (action.kind == Action::Kind::note) {
            gpu.events[action.event] = true;
        } else if (action.kind == Action::Kind::wait) {
            if (!gpu.events[action.event]) return false;
        } else {
            const auto here = static_cast<std::int64_t>(&gpu - all_.data());
            Gpu& other = all_[static_cast<std::size_t>(here == action.from ? action.to : action.from)];
            Stream& theirs = other.streams[link];
            if (theirs.next == theirs.actions.size() || theirs.actions[theirs.next] != action) return false;
            ++theirs.next;
        }
        ++stream.next;
        return true;
    }
};

int own_links(Lane lane, std::int64_t from, std::int64_t to) {
    return static_cast<int>(link_of(lane, from, to));
}
int one_for_each_lane(Lane lane, std::int64_t, std::int64_t) {
    return static_cast<int>(lane);
}
int one_for_all(Lane, std::int64_t, std::int64_t) {
    return 0;
}
// What closes the ring goes over one link, both ways.
int one_that_closes_the_ring(Lane lane, std::int64_t from, std::int64_t to) {
    const StageLink link = link_of(lane, from, to);
    return static_cast<int>(link == StageLink::from_first ? StageLink::from_last : link);
}

// How many of small pipelines' schedules end.
struct Ended {
    int all = 0, ended = 0;
};
Ended play(PipelineSchedule schedule, const Gpus::Links& links, std::size_t gradient_buffers) {
    Ended found;
    const bool is_ring = schedule == PipelineSchedule::interleaved;
    for (std::int64_t stages = 2; stages <= 8; ++stages)
        for (std::int64_t chunks = is_ring ? 2 : 1; chunks <= (is_ring ? 4 : 1); ++chunks)
            for (std::int64_t micro_batches = is_ring ? stages : 1; micro_batches <= 3 * stages;
                 micro_batches += is_ring ? stages : 1) {
                ++found.all;
                if (Gpus({schedule, 0, stages, chunks, micro_batches}, links, gradient_buffers).end())
                    ++found.ended;
            }
    return found;
}

constexpr auto k1f1b = PipelineSchedule::one_forward_one_backward, kGpipe = PipelineSchedule::gpipe,
               kInterleaved = PipelineSchedule::interleaved;

TEST(NcclLinks, NoStageWaitsForEver) {
    for (const PipelineSchedule schedule : {k1f1b, kGpipe, kInterleaved}) {
        const Ended found = play(schedule, own_links, schedule == kInterleaved ? 2 : 1);
        EXPECT_GT(found.all, 50);
        EXPECT_EQ(found.ended, found.all) << name_of(schedule);
    }
}

// What each of them is for.
TEST(NcclLinks, FewerWouldHaveStagesWaitInACircle) {
    EXPECT_LT(play(k1f1b, one_for_all, 1).ended, play(k1f1b, one_for_all, 1).all);
    const std::pair<Gpus::Links, std::size_t> too_few[] = {
        {one_for_each_lane, 2}, {one_that_closes_the_ring, 2}, {own_links, 1}};
    for (const auto& [links, gradient_buffers] : too_few) {
        const Ended found = play(kInterleaved, links, gradient_buffers);
        EXPECT_LT(found.ended, found.all);
    }
}

// Two ranks connect at their first message: each that comes later is between two that have met.
TEST(NcclLinks, AllThatSendMeetAtTheStart) {
    for (std::int64_t stages = 2; stages <= 5; ++stages) {
        std::map<StageLink, std::vector<std::pair<std::int64_t, std::int64_t>>> met;
        for (const NamedLink& one : kStageLinks) met[one.link] = senders_of(one.link, stages);
        const auto have_met = [&](Lane lane, std::int64_t from, std::int64_t to) {
            const auto& all = met[link_of(lane, from, to)];
            EXPECT_EQ(std::ranges::count(all, std::pair{from, to}), 1) << stages << ": " << from << " " << to;
        };
        const std::int64_t last = stages - 1;
        for (std::int64_t stage = 0; stage < stages; ++stage) {
            have_met(Lane::activations, stage, (stage + 1) % stages);
            have_met(Lane::gradients, (stage + 1) % stages, stage);
        }
        have_met(Lane::activations, 0, last);  // the ends exchange gradients so
        have_met(Lane::gradients, last, 0);
    }
}

}  // namespace
}  // namespace dp::trainer
