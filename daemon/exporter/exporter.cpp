// SPDX-License-Identifier: Apache-2.0
#include "exporter/exporter.hpp"

#include <event2/event.h>
#include <signal.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/awake.hpp"
#include "exporter/page_server.hpp"
#include "exporter/step_watcher.hpp"
#include "exporter/steps.hpp"
#include "loop/timer.hpp"

namespace dp {
namespace {

struct FreeBase {
    void operator()(event_base* b) const { event_base_free(b); }
};

Try<void> export_steps(const std::string& listen, const std::string& web_config) {
    const ListenAddress where = DP_TRY(parse_listen_address(listen));
    if (web_config.empty() && !where.is_loopback())
        return fail("--listen=" + listen +
                    ": other machines need a certificate; give --web-config=FILE, or an address of this "
                    "machine alone, such as 127.0.0.1");
    const std::unique_ptr<event_base, FreeBase> base(event_base_new());
    StepsOfNode steps(DP_VERSION);
    StepWatcher watcher(base.get(), steps);
    PageServer server(base.get(), web_config, [&](MetricsFormat format, const PageServer::Answer& answer) {
        watcher.ask([&, format, answer] { answer(steps.page(format, watcher.unreachable(), steady_now())); });
    });
    DP_TRY(server.listen(where));
    signal(SIGPIPE, SIG_IGN);
    std::vector<EventPtr> signals;
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
        signals.emplace_back(evsignal_new(
            base.get(), number,
            [](int, short, void* loop) { event_base_loopbreak(static_cast<event_base*>(loop)); },
            base.get()));
        event_add(signals.back().get(), nullptr);
    }
    std::printf("dpctl exporter: http%s://%s/metrics\n", web_config.empty() ? "" : "s", listen.c_str());
    std::fflush(stdout);
    event_base_dispatch(base.get());
    return {};
}

}  // namespace

int run_exporter(const std::string& listen, const std::string& web_config) {
    const auto done = export_steps(listen, web_config);
    if (!done) std::fprintf(stderr, "dpctl: %s\n", done.error().message.c_str());
    return done ? 0 : 1;
}

}  // namespace dp
