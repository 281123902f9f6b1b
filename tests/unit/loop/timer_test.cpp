// SPDX-License-Identifier: Apache-2.0
#include "loop/timer.hpp"

#include <string>

#include "server_test.hpp"

namespace dp {
namespace {

TEST(Timer, IsDoneOnceAfterEverythingElseThatIsDueInTheTurn) {
    const EventBase base(event_base_new());
    std::string seen;
    Timer work(base.get(), [&] { seen += "work "; });
    const auto say = [&](const char* word) {
        return [&, word] {
            seen += word;
            work.at_end_of_turn();
        };
    };
    Timer first(base.get(), say("first "));
    Timer second(base.get(), say("second "));
    first.after(Time(0));
    second.after(Time(0));
    event_base_loop(base.get(), EVLOOP_ONCE);
    EXPECT_EQ(seen, "first second work ");
    first.after(Time(0));
    event_base_loop(base.get(), EVLOOP_ONCE);
    EXPECT_EQ(seen, "first second work first work ");
}

TEST(Timer, IsDoneInTheNextTurnWhereItIsAskedForOutsideOfOne) {
    const EventBase base(event_base_new());
    int done = 0;
    Timer work(base.get(), [&] { ++done; });
    work.at_end_of_turn();
    EXPECT_EQ(done, 0);
    event_base_loop(base.get(), EVLOOP_ONCE);
    EXPECT_EQ(done, 1);
    {
        Timer gone(base.get(), [&] { ++done; });
        gone.at_end_of_turn();
    }
    event_base_loop(base.get(), EVLOOP_NONBLOCK);
    EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace dp
