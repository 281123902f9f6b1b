// SPDX-License-Identifier: Apache-2.0
#include "loop/deferred.hpp"

#include <string>

#include "server_test.hpp"

namespace dp {
namespace {

TEST(Deferred, IsDoneOnceAfterEverythingElseThatIsDueInTheTurn) {
    const EventBase base(event_base_new());
    std::string seen;
    Deferred work(base.get(), [&] { seen += "work "; });
    const auto say = [&](const char* word) {
        return [&, word] {
            seen += word;
            work.ask();
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

TEST(Deferred, IsDoneInTheNextTurnWhereItIsAskedForOutsideOfOne) {
    const EventBase base(event_base_new());
    int done = 0;
    Deferred work(base.get(), [&] { ++done; });
    work.ask();
    EXPECT_EQ(done, 0);
    event_base_loop(base.get(), EVLOOP_ONCE);
    EXPECT_EQ(done, 1);
    {
        Deferred gone(base.get(), [&] { ++done; });
        gone.ask();
    }
    event_base_loop(base.get(), EVLOOP_NONBLOCK);
    EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace dp
