// SPDX-License-Identifier: Apache-2.0
//
// libdp against the real daemon: `dpctl launch` gives each test a world of processes, and each rank's
// findings come back as its exit code.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dp.pb.h"
#include "dp/dp.hpp"
#include "socket_io.hpp"

extern "C" int c_face_smoke(void);  // c_face.c

namespace dp {
namespace {

std::string self() {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return std::string(path, n > 0 ? static_cast<size_t>(n) : 0);
}

// Runs this test program again as `ranks` ranks, each doing `body` (a name of kBodies below).
int launch(int ranks, const std::string& body, const std::string& more = "") {
    const std::string command = std::string(DP_TEST_DPCTL) + " launch -n " + std::to_string(ranks) + " " +
                                more + " -- env DP_TEST_BODY=" + body + " " + self();
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int body_meet() {
    auto c = Context::open();
    if (!c) return 10;
    for (int i = 0; i < 100; ++i)
        if (!c->barrier()) return 11;
    return 0;
}

int body_ids() {
    auto c = Context::open();
    if (!c) return 10;
    int made = 0;
    auto make = [&]() -> std::optional<UniqueId> {
        ++made;
        UniqueId id{};
        id.fill(static_cast<std::uint8_t>(40 + made));
        return id;
    };
    for (std::uint8_t round = 1; round <= 3; ++round) {
        auto id = c->unique_id({}, make);
        if (!id || (*id)[127] != 40 + round) return 11;
    }
    if (made != (c->world().rank == 0 ? 3 : 0)) return 12;
    // A root that cannot make one is known to all at once.
    auto none = c->unique_id({"broken", {}}, [] { return std::optional<UniqueId>(); });
    if (none || none.error().status != DP_ERROR_BACKEND) return 13;
    return 0;
}

int body_threads() {
    auto c = Context::open();
    if (!c) return 10;
    std::vector<std::thread> threads;
    std::vector<int> wrong(8, 0);
    for (size_t t = 0; t < wrong.size(); ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
                const std::string key = "k" + std::to_string(t) + "." + std::to_string(i);
                if (c->world().rank == 0 && !c->set(key, key)) wrong[t] = 1;
                auto got = c->get(key);
                if (!got || std::string(got->begin(), got->end()) != key) wrong[t] = 2;
                if (!c->barrier({"thread" + std::to_string(t), {}})) wrong[t] = 3;
            }
        });
    for (auto& thread : threads) thread.join();
    for (int w : wrong)
        if (w) return 10 + w;
    return 0;
}

int body_large() {
    auto c = Context::open();
    if (!c) return 10;
    const std::string large(DP_MAX_VALUE_BYTES, 'x');
    auto got = c->broadcast({}, large);
    if (!got || got->size() != large.size()) return 11;
    auto too_much = c->broadcast({}, std::string(4 * large.size(), 'x'));
    if (too_much || too_much.error().status != DP_ERROR_TOO_LARGE || !c->barrier()) return 15;
    auto over = c->set("k", large + "x");
    if (over || over.error().status != DP_ERROR_TOO_LARGE) return 12;
    char small[4];
    size_t size = 0;
    if (!c->set("five", std::string("12345"))) return 13;
    if (dp_get(c->get(), "five", small, sizeof small, &size, DP_TIMEOUT_DEFAULT) != DP_ERROR_TOO_LARGE ||
        size != 5)
        return 14;
    return 0;
}

int body_groups() {
    auto c = Context::open();
    if (!c) return 10;
    const auto rank = c->world().rank;
    const Group half{"half", rank < 2 ? std::vector<std::uint32_t>{0, 1} : std::vector<std::uint32_t>{2, 3}};
    auto got = c->broadcast(half, std::string(rank < 2 ? "low" : "high"));
    if (!got || got->size() != (rank < 2 ? 3u : 4u)) return 11;
    return 0;
}

int body_agree() {
    auto c = Context::open();
    if (!c) return 10;
    const bool last = c->world().rank == 2;
    if (!c->agree(
            {{"version", "2", DP_SAME, "-"}, {"device", std::to_string(c->world().rank), DP_DISTINCT, "-"}}))
        return 11;
    auto differs = c->agree({{"version", last ? "1" : "2", DP_SAME, "load the same"}});
    if (differs || differs.error().status != DP_ERROR_INVALID) return 12;
    const std::string& error = differs.error().message;
    if (error.find("version differs: 2 on ranks 0-1 (") == std::string::npos ||
        error.find("1 on rank 2 (") == std::string::npos ||
        error.find("; load the same") == std::string::npos)
        return 13;
    auto shared = c->agree({{"device", last ? "0" : std::to_string(c->world().rank), DP_DISTINCT, "-"}});
    if (shared || shared.error().message.find("ranks 0,2 (") == std::string::npos) return 14;
    return c->agree({}) ? 0 : 15;
}

int body_second_process() {
    auto c = Context::open();
    if (!c) return 10;
    if (std::system(("DP_TEST_BODY=refused " + self()).c_str()) != 0) return 11;
    return c->barrier() ? 0 : 12;
}

int body_refused() {
    auto again = Context::open();
    return !again && again.error().message.find("already rank") != std::string::npos ? 0 : 1;
}

int body_one_dies() {
    auto c = Context::open();
    if (!c) return 10;
    if (c->world().rank == 2) abort();
    auto met = c->barrier();
    // The death is in the error of everybody who waits, at once and by name.
    const bool named = !met && met.error().status == DP_ERROR_ABORTED &&
                       met.error().message.find("rank 2 on ") == 0 &&
                       met.error().message.find("SIGABRT") != std::string::npos;
    return named ? 0 : 11;
}

// What a call-back hears, within 10 s.
class Heard {
 public:
    void operator()(const Event& event) {
        std::lock_guard guard(mutex_);
        events_.push_back(event);
        news_.notify_all();
    }
    std::optional<Event> first() {
        std::unique_lock lock(mutex_);
        news_.wait_for(lock, std::chrono::seconds(10), [&] { return !events_.empty(); });
        return events_.empty() ? std::nullopt : std::optional(events_.front());
    }

 private:
    std::mutex mutex_;
    std::condition_variable news_;
    std::vector<Event> events_;
};

bool is_death_of_rank_2(const std::optional<Event>& event, dp_event_kind kind) {
    return event && event->kind == kind && event->ranks == std::vector<uint32_t>{2} &&
           event->reason.find("rank 2 on ") == 0 && event->reason.find("SIGABRT") != std::string::npos;
}

// Waits for no call: it computes, as a rank does nearly always, and hears of the death all the same.
int body_hears_of_the_end() {
    Heard heard;
    auto c = Context::open();
    if (!c || !c->barrier()) return 10;
    auto watch = c->on_event([&](const Event& event) { heard(event); });
    if (!watch) return 11;
    if (c->world().rank == 2) abort();
    return is_death_of_rank_2(heard.first(), DP_EVENT_ENDING) ? 0 : 12;
}

int body_hears_of_a_death() {
    Heard heard;
    auto c = Context::open();
    if (!c || !c->barrier()) return 10;
    auto watch = c->on_event([&](const Event& event) { heard(event); });
    if (!watch) return 11;
    if (c->world().rank == 2) abort();
    if (!is_death_of_rank_2(heard.first(), DP_EVENT_DEATHS)) return 12;
    // Who asks later is told, too, and the others go on together.
    Heard late;
    auto second = c->on_event([&](const Event& event) { late(event); });
    if (!is_death_of_rank_2(late.first(), DP_EVENT_DEATHS)) return 13;
    return c->barrier({"survivors", {0, 1, 3}}) ? 0 : 14;
}

size_t threads_here() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A rank that makes one call at a time gets no thread of libdp's; one that wants to hear of deaths gets one.
int body_has_no_thread() {
    std::thread([] {}).join();  // a sanitizer starts a thread of its own beside the first one
    const size_t before = threads_here();
    auto c = Context::open();
    if (!c || !c->barrier() || !c->set("k", std::string("v")) || !c->get("k")) return 10;
    if (threads_here() != before) return 11;
    auto first = c->on_event([](const Event&) {});
    auto second = c->on_event([](const Event&) {});
    if (!first || !second || threads_here() != before + 1) return 12;
    return c->barrier() ? 0 : 13;
}

// What came while nobody read is told inside of on_event, on the thread that calls it.
int body_hears_what_was() {
    auto c = Context::open();
    if (!c || !c->barrier()) return 10;
    if (c->world().rank == 2) abort();
    auto met = c->barrier();
    if (met) return 11;
    usleep(300000);
    bool told = false;
    const auto here = std::this_thread::get_id();
    auto watch = c->on_event([&](const Event& event) {
        told = std::this_thread::get_id() == here && is_death_of_rank_2(event, DP_EVENT_DEATHS);
    });
    return told ? 0 : 12;
}

// A call that is alone reads for itself, the death, too; who hears of it does on libdp's thread, at once.
int body_hears_beside_a_call() {
    Heard heard;
    auto c = Context::open();
    if (!c || !c->barrier()) return 10;
    std::thread alone([raw = c->get()] {
        char value[8];
        size_t size = 0;
        dp_get(raw, "never", value, sizeof value, &size, 60000);
    });
    usleep(200000);
    bool elsewhere = false;
    const std::thread::id others[] = {std::this_thread::get_id(), alone.get_id()};
    auto watch = c->on_event([&](const Event& event) {
        elsewhere = std::this_thread::get_id() != others[0] && std::this_thread::get_id() != others[1];
        heard(event);
    });
    const auto listens = [](unsigned rank) { return "rank " + std::to_string(rank) + " listens"; };
    if (c->world().rank == 2) {
        for (unsigned other : {0u, 1u, 3u})
            if (!c->get(listens(other))) return 12;
        usleep(300000);
        abort();
    }
    if (!c->set(listens(c->world().rank), std::string("yes"))) return 13;
    const bool told = is_death_of_rank_2(heard.first(), DP_EVENT_DEATHS);
    const bool goes_on = static_cast<bool>(c->barrier({"survivors", {0, 1, 3}}));
    { EventWatch forgotten = std::move(*watch); }
    { Context closing = std::move(*c); }
    alone.join();
    return told && elsewhere && goes_on ? 0 : 11;
}

// The first on_event and calls of other threads, all at once, a hundred times.
int body_begins_to_listen_beside_calls() {
    for (int round = 0; round < 100; ++round) {
        auto c = Context::open();
        if (!c) return 10;
        std::vector<int> wrong(6, 0);
        std::vector<std::thread> threads;
        for (size_t t = 0; t < wrong.size(); ++t)
            threads.emplace_back([&, t] {
                if (t % 2 == 0) {
                    auto watch = c->on_event([](const Event&) {});
                    if (!watch) wrong[t] = 1;
                } else if (!c->set("k" + std::to_string(t), std::string("v")) ||
                           !c->get("k" + std::to_string(t))) {
                    wrong[t] = 2;
                }
            });
        for (auto& thread : threads) thread.join();
        for (int w : wrong)
            if (w) return 10 + w;
    }
    return 0;
}

int body_late() {
    if (std::string(std::getenv("RANK")) == "1") sleep(60);
    auto c = Context::open();
    if (!c) return 10;
    auto met = c->barrier();
    return met ? 11 : 0;
}

int close_while_waiting(bool end_first) {
    auto c = Context::open();
    if (!c) return 10;
    dp_context* const raw = c->get();
    std::vector<std::thread> waiting;
    std::vector<int> wrong(32, 1);
    std::atomic<size_t> begun = 0;
    for (size_t t = 0; t < wrong.size(); ++t)
        waiting.emplace_back([&, t] {
            char value[8];
            size_t size = 0;
            ++begun;
            wrong[t] = dp_get(raw, "never", value, sizeof value, &size, 60000) == DP_ERROR_LOST ? 0 : 1;
        });
    while (begun < wrong.size()) usleep(1000);
    usleep(200000);
    if (end_first) {
        dp_end(raw);
        // It is there until it is closed.
        if (dp_barrier(raw, nullptr, 1000) != DP_ERROR_LOST ||
            std::string(dp_last_error()) != "the context is being closed (dp_close)")
            return 12;
        dp_end(raw);
    }
    { Context closing = std::move(*c); }
    for (auto& thread : waiting) thread.join();
    for (int w : wrong)
        if (w) return 11;
    return 0;
}
int body_close_while_waiting() {
    return close_while_waiting(false);
}
int body_end_while_waiting() {
    return close_while_waiting(true);
}

int body_fork_then_call() {
    auto c = Context::open();
    if (!c) return 10;
    // A call that waits, and libdp's thread beside it.
    std::thread waiting([raw = c->get()] {
        char value[8];
        size_t size = 0;
        dp_get(raw, "never", value, sizeof value, &size, 2000);
    });
    auto watch = c->on_event([](const Event&) {});
    pid_t child = fork();
    if (child == 0) {
        const dp_status status = dp_set(c->get(), "k", "v", 1, 1000);
        const bool told = std::string(dp_last_error()).find("fork") != std::string::npos;
        dp_close(c->get());  // must neither hang nor say goodbye for the parent
        _exit(status == DP_ERROR_INVALID && told ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    waiting.join();
    if (status != 0) return 11;
    return c->barrier() ? 0 : 12;
}

// Eight ranks, three ids: made on ranks 0, 2 and 5, in that order for everybody, and new each time.
int body_several_ids() {
    auto c = Context::open();
    if (!c) return 10;
    struct Maker {
        uint8_t rank;
        uint8_t made;
    } maker{static_cast<uint8_t>(c->world().rank), 0};
    auto make = [](void* user, uint8_t* id) {
        auto* self = static_cast<Maker*>(user);
        std::fill(id, id + DP_UNIQUE_ID_BYTES, static_cast<uint8_t>(10 * self->rank + ++self->made));
        return 0;
    };
    uint8_t ids[3 * DP_UNIQUE_ID_BYTES];
    for (int round = 1; round <= 3; ++round) {
        if (dp_unique_ids(c->get(), nullptr, 3, make, &maker, ids, 10000) != DP_OK) return 11;
        const int expected[] = {0 + round, 20 + round, 50 + round};
        for (size_t i = 0; i < 3; ++i)
            if (ids[i * DP_UNIQUE_ID_BYTES] != expected[i] ||
                ids[(i + 1) * DP_UNIQUE_ID_BYTES - 1] != expected[i])
                return 12;
    }
    if (dp_unique_ids(c->get(), nullptr, 9, make, &maker, ids, 10000) != DP_ERROR_INVALID) return 13;
    if (dp_unique_ids(c->get(), nullptr, 0, make, &maker, ids, 10000) != DP_ERROR_INVALID) return 14;
    // One of several roots fails: all are told.
    auto broken = [](void* user, uint8_t*) { return static_cast<Maker*>(user)->rank == 5 ? 1 : 0; };
    if (dp_unique_ids(c->get(), nullptr, 3, broken, &maker, ids, 10000) != DP_ERROR_BACKEND) return 15;
    return std::string(dp_last_error()).find("one of the 3 roots") == std::string::npos ? 16 : 0;
}

// What the step's daemon tells of this rank, as it tells dpctl top.
std::optional<wire::NodeUsage::Rank> told_of(uint32_t rank) {
    const std::string name = std::getenv("DP_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    wire::FromRank question;
    question.mutable_usage();
    std::optional<std::string> body;
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && send_all(fd, to_frame(question)))
        body = receive_frame(fd, kMaxFrame);
    close(fd);
    const auto answer = body ? parse_message<wire::ToRank>(*body) : std::nullopt;
    if (!answer) return std::nullopt;
    for (const auto& node : answer->usage().nodes())
        for (const auto& one : node.ranks())
            if (one.rank() == rank) return one;
    return std::nullopt;
}

int64_t ms_in(const wire::NodeUsage::Rank& rank, dp_phase_kind phase) {
    return phase < rank.phase_ns_size() ? rank.phase_ns(phase) / 1000000 : -1;
}

// Before its first dp_phase nothing is known of a rank but its process; then all time is in a phase.
int body_phases() {
    auto c = Context::open();
    if (!c) return 10;
    const uint32_t rank = c->world().rank;
    const auto before = told_of(rank);
    if (!before || before->phase_ns_size() != 0 || before->pid() != getpid()) return 11;
    if (before->command() != "libdp-tests" || before->state() != wire::StepStatus::HELLO) return 12;
    if (!c->phase(DP_PHASE_LOAD)) return 13;
    usleep(50000);
    if (!c->phase(DP_PHASE_COMPUTE)) return 14;
    usleep(100000);
    const auto told = told_of(rank);
    if (!told || told->phase_ns_size() != 5) return 15;
    if (ms_in(*told, DP_PHASE_LOAD) < 50 || ms_in(*told, DP_PHASE_COMPUTE) < 100) return 16;
    if (told->phase_ns(DP_PHASE_IDLE) + told->phase_ns(DP_PHASE_COMMUNICATION) +
            told->phase_ns(DP_PHASE_CHECKPOINT) !=
        0)
        return 17;
    // The other ranks' are told here, too.
    if (!c->barrier()) return 18;
    const auto other = told_of((rank + 1) % c->world().size);
    if (!c->barrier()) return 19;  // nobody goes before all have looked
    return other && ms_in(*other, DP_PHASE_COMPUTE) >= 100 ? 0 : 20;
}

int body_phases_of_threads() {
    auto c = Context::open();
    if (!c) return 10;
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (size_t t = 0; t < wrong.size(); ++t)
        threads.emplace_back([&, t] {
            for (size_t i = 0; i < 20000; ++i)
                if (!c->phase(static_cast<dp_phase_kind>((t + i) % 5))) wrong[t] = 1;
        });
    for (int i = 0; i < 20; ++i) {
        const auto told = told_of(c->world().rank);
        if (!told) return 11;
        for (const int64_t ns : told->phase_ns())
            if (ns < 0 || ns > 60'000'000'000) return 12;
    }
    for (auto& thread : threads) thread.join();
    for (int w : wrong)
        if (w) return 13;
    const auto told = told_of(c->world().rank);
    return told && told->phase_ns_size() == 5 ? 0 : 14;
}

// A fork does not write into the page of the rank, whether there was one before or not.
int body_phases_of_a_fork() {
    auto c = Context::open();
    if (!c) return 10;
    for (const bool first : {true, false}) {
        if (!first && !c->phase(DP_PHASE_COMPUTE)) return 11;
        const pid_t child = fork();
        if (child == 0) {
            const auto entered = c->phase(DP_PHASE_IDLE);
            _exit(!entered && entered.error().message.find("fork") != std::string::npos ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) return 12;
        usleep(20000);
        const auto told = told_of(0);
        if (!told || told->phase_ns_size() != (first ? 0 : 5)) return 13;
        if (!first && (told->phase_ns(DP_PHASE_IDLE) != 0 || ms_in(*told, DP_PHASE_COMPUTE) < 20)) return 14;
    }
    return c->barrier() ? 0 : 15;
}

// Scalars need no phase, and begin none; what cannot be logged is one error.
int body_scalars() {
    auto c = Context::open();
    if (!c) return 10;
    if (!c->log_scalar("loss", 0.5) || !c->log_scalar("loss", NAN)) return 11;
    const auto told = told_of(0);
    if (!told || told->phase_ns_size() != 0) return 12;
    if (!c->phase(DP_PHASE_COMPUTE) || !c->log_scalar("loss", 0.25)) return 13;
    const auto now = told_of(0);
    if (!now || now->phase_ns_size() != 5) return 14;
    for (const char* bad : {static_cast<const char*>(nullptr), "", "two\nlines", "\xc3\xa9"}) {
        const auto logged = c->log_scalar(bad, 1);
        if (logged || logged.error().status != DP_ERROR_INVALID) return 15;
    }
    if (!c->log_scalar(std::string(DP_MAX_SCALAR_NAME_BYTES, 'x').c_str(), 1)) return 16;
    const auto long_one = c->log_scalar(std::string(DP_MAX_SCALAR_NAME_BYTES + 1, 'x').c_str(), 1);
    if (long_one || long_one.error().status != DP_ERROR_TOO_LARGE ||
        long_one.error().message.find("has at most 31 bytes") == std::string::npos)
        return 17;
    for (int i = 2; i < DP_MAX_SCALARS; ++i)
        if (!c->log_scalar(std::to_string(i).c_str(), i)) return 18;
    const auto ninth = c->log_scalar("ninth", 1);
    if (ninth || ninth.error().status != DP_ERROR_TOO_LARGE ||
        ninth.error().message.find("at most 8 scalars; \"ninth\" would be one more than loss, x") ==
            std::string::npos)
        return 19;
    if (!c->log_scalar("loss", 1)) return 20;
    const pid_t child = fork();
    if (child == 0) _exit(c->log_scalar("loss", 7) ? 1 : 0);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 && c->barrier() ? 0 : 21;
}

// The task's next program has a page of its own; one that is closed has none.
int body_phases_again() {
    for (const dp_phase_kind phase : {DP_PHASE_CHECKPOINT, DP_PHASE_COMMUNICATION}) {
        auto c = Context::open();
        if (!c || !c->phase(phase)) return 10;
        usleep(10000);
        const auto told = told_of(0);
        if (!told || told->phase_ns_size() != 5 || ms_in(*told, phase) < 10) return 11;
        for (int other = 0; other < 5; ++other)
            if (other != phase && told->phase_ns(other) != 0) return 12;
    }
    const auto told = told_of(0);
    return told && told->phase_ns_size() == 0 ? 0 : 13;
}

int body_c() {
    return c_face_smoke();
}

const std::pair<const char*, int (*)()> kBodies[] = {
    {"meet", body_meet},
    {"ids", body_ids},
    {"several-ids", body_several_ids},
    {"threads", body_threads},
    {"large", body_large},
    {"groups", body_groups},
    {"c", body_c},
    {"agree", body_agree},
    {"second", body_second_process},
    {"refused", body_refused},
    {"dies", body_one_dies},
    {"hears-end", body_hears_of_the_end},
    {"hears-death", body_hears_of_a_death},
    {"has-no-thread", body_has_no_thread},
    {"hears-what-was", body_hears_what_was},
    {"hears-beside-a-call", body_hears_beside_a_call},
    {"begins-to-listen", body_begins_to_listen_beside_calls},
    {"late", body_late},
    {"close", body_close_while_waiting},
    {"end", body_end_while_waiting},
    {"fork", body_fork_then_call},
    {"phases", body_phases},
    {"phases-threads", body_phases_of_threads},
    {"phases-fork", body_phases_of_a_fork},
    {"phases-again", body_phases_again},
    {"scalars", body_scalars},
};

TEST(World, ABarrierIsOneForAll) {
    EXPECT_EQ(launch(4, "meet"), 0);
}
TEST(World, IdsAreTheRootsAndNewEachTime) {
    EXPECT_EQ(launch(4, "ids"), 0);
}
TEST(World, SeveralIdsAreMadeOnAsManyRanks) {
    EXPECT_EQ(launch(8, "several-ids"), 0);
}
TEST(World, OneUniqueIdForEach128Ranks) {
    EXPECT_EQ(dp_unique_id_count(1), 1u);
    EXPECT_EQ(dp_unique_id_count(128), 1u);
    EXPECT_EQ(dp_unique_id_count(129), 2u);
    EXPECT_EQ(dp_unique_id_count(16384), 128u);
}
TEST(World, ThreadsShareAContext) {
    EXPECT_EQ(launch(3, "threads"), 0);
}
TEST(World, LargeValuesTravelAndTooLargeOnesAreRefused) {
    EXPECT_EQ(launch(2, "large"), 0);
}
TEST(World, GroupsMeetByThemselves) {
    EXPECT_EQ(launch(4, "groups"), 0);
}
TEST(World, RanksThatDoNotFitAreToldWho) {
    EXPECT_EQ(launch(3, "agree"), 0);
}
TEST(World, TheCFaceWorksFromC) {
    EXPECT_EQ(launch(2, "c"), 0);
}
TEST(World, ASecondProcessOfARankIsRefused) {
    EXPECT_EQ(launch(2, "second"), 0);
}
TEST(World, ClosingEndsTheCallsOfOtherThreads) {
    EXPECT_EQ(launch(1, "close"), 0);
    EXPECT_EQ(launch(1, "end"), 0);
}
TEST(World, AForkOfARankCannotSpeakForIt) {
    EXPECT_EQ(launch(2, "fork"), 0);
}
TEST(World, ADeathEndsAllCallsAndIsTheResult) {
    EXPECT_EQ(launch(4, "dies"), 128 + SIGABRT);
}
TEST(World, ADeathIsHeardWithoutACall) {
    EXPECT_EQ(launch(4, "hears-end"), 128 + SIGABRT);
    EXPECT_EQ(launch(4, "hears-death", "--on-failure=report"), 128 + SIGABRT);
}
TEST(World, ARankThatCallsHasNoThreadOfLibdps) {
    EXPECT_EQ(launch(4, "has-no-thread"), 0);
}
TEST(World, ADeathThatNobodyReadIsHeardLater) {
    EXPECT_EQ(launch(4, "hears-what-was", "--on-failure=report"), 128 + SIGABRT);
}
TEST(World, ADeathThatACallReadsIsHeard) {
    EXPECT_EQ(launch(4, "hears-beside-a-call", "--on-failure=report"), 128 + SIGABRT);
}
TEST(World, ListeningMayBeginBesideCalls) {
    EXPECT_EQ(launch(1, "begins-to-listen"), 0);
}
TEST(World, PhasesAreToldToWhoeverAsks) {
    EXPECT_EQ(launch(2, "phases"), 0);
}
TEST(World, ThreadsShareAPhase) {
    EXPECT_EQ(launch(1, "phases-threads"), 0);
}
TEST(World, AForkHasNoPhase) {
    EXPECT_EQ(launch(1, "phases-fork"), 0);
}
TEST(World, PhasesBeginAnewWithEachProgram) {
    EXPECT_EQ(launch(1, "phases-again"), 0);
}
TEST(World, ScalarsNeedNoPhaseAndSayWhatCannotBeLogged) {
    EXPECT_EQ(launch(1, "scalars"), 0);
}
TEST(World, ALateRankEndsTheWorldInTime) {
    EXPECT_NE(launch(3, "late", "--timeout 1"), 0);
}

TEST(World, OutsideOfAStepTheErrorSaysHowToGetIn) {
    auto context = Context::open();
    ASSERT_FALSE(context);
    EXPECT_EQ(context.error().status, DP_ERROR_NO_STEP);
    EXPECT_NE(context.error().message.find("srun --dp-world=auto"), std::string::npos);
    EXPECT_EQ(dp_in_step(), 0);
}

TEST(World, NullArgumentsAreErrors) {
    EXPECT_EQ(dp_open(nullptr), DP_ERROR_INVALID);
    EXPECT_EQ(dp_barrier(nullptr, nullptr, 0), DP_ERROR_INVALID);
    EXPECT_EQ(dp_set(nullptr, "k", "v", 1, 0), DP_ERROR_INVALID);
    EXPECT_EQ(dp_phase(nullptr, DP_PHASE_IDLE), DP_ERROR_INVALID);
    EXPECT_EQ(dp_log_scalar(nullptr, "loss", 1), DP_ERROR_INVALID);
    EXPECT_EQ(dp_get_world(nullptr), nullptr);
    dp_end(nullptr);
    dp_close(nullptr);
}

// As a rank of a world of its own whose daemon is behind the abstract socket.
void be_rank_of(const std::string& socket) {
    setenv("DP_SOCKET", ("@" + socket).c_str(), 1);
    for (const char* name : {"DP_RANK", "DP_LOCAL_RANK", "DP_NODE_RANK", "DP_GENERATION", "DP_MASTER_PORT"})
        setenv(name, "0", 1);
    for (const char* name : {"DP_WORLD_SIZE", "DP_LOCAL_WORLD_SIZE", "DP_NODES", "DP_TENSOR_SIZE",
                             "DP_DATA_SIZE", "DP_PIPELINE_SIZE"})
        setenv(name, "1", 1);
}

TEST(World, ADaemonThatIsGoneIsSaid) {
    be_rank_of("slurm-dp/nowhere");
    auto context = Context::open();
    ASSERT_FALSE(context);
    EXPECT_EQ(context.error().status, DP_ERROR_LOST);
    unsetenv("DP_SOCKET");
}

// Welcomes one rank, and is gone.
class ShortLivedDaemon {
 public:
    explicit ShortLivedDaemon(const std::string& name) : listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 1) != 0)
            ADD_FAILURE() << "cannot listen at @" << name;
        thread_ = std::thread([this] {
            const int rank = accept(listener_, nullptr, nullptr);
            const auto hello = receive_frame(rank, kMaxFrame);
            wire::ToRank welcome;
            welcome.mutable_welcome();
            send_all(rank, to_frame(welcome));
            close(rank);
        });
    }
    ~ShortLivedDaemon() {
        gone();
        close(listener_);
    }
    void gone() {
        if (thread_.joinable()) thread_.join();
    }

 private:
    int listener_;
    std::thread thread_;
};

TEST(World, ADaemonThatEndsIsHeardHoweverLateOneListens) {
    const std::string name = "slurm-dp/short-lived/" + std::to_string(getpid());
    for (const bool calls_first : {false, true}) {
        ShortLivedDaemon daemon(name);
        be_rank_of(name);
        auto context = Context::open();
        ASSERT_TRUE(context) << context.error().message;
        daemon.gone();
        if (calls_first) {
            const auto met = context->barrier();
            ASSERT_FALSE(met);
            EXPECT_EQ(met.error().status, DP_ERROR_LOST) << met.error().message;
            EXPECT_NE(met.error().message.find("is gone"), std::string::npos) << met.error().message;
        }
        for (int listener = 0; listener < 2; ++listener) {
            Heard heard;
            auto watch = context->on_event([&](const Event& event) { heard(event); });
            ASSERT_TRUE(watch);
            const auto event = heard.first();
            ASSERT_TRUE(event);
            EXPECT_EQ(event->kind, DP_EVENT_LOST);
        }
        unsetenv("DP_SOCKET");
    }
}

}  // namespace
}  // namespace dp

int main(int argc, char** argv) {
    if (const char* wanted = std::getenv("DP_TEST_BODY"))
        for (const auto& [name, body] : dp::kBodies)
            if (std::string(name) == wanted) return body();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
