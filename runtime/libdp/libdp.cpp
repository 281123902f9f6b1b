// SPDX-License-Identifier: Apache-2.0
//
// libdp's C API (dp/dp.h): arguments in, a status and a line out. No exception leaves it.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <memory>

#include "base/text.hpp"
#include "common/roots.hpp"
#include "dp/dp.h"
#include "libdp/client.hpp"
#include "libdp/internal.h"
#include "libdp/next_world.hpp"

struct dp_context {
    std::list<dp::WorldEnvironment> environments;  // by generation: the strings of all live until dp_close
    dp_world world{};
    std::array<std::vector<uint32_t>, 3> groups;  // by dp_dimension: the members
    std::unique_ptr<dp::Client> client;
    std::string reason;  // this and the next: of dp_changes
    std::vector<uint32_t> replaced;

    const dp::WorldEnvironment& environment() const { return environments.back(); }
    // The generation that this process is in from now on.
    void enter(dp::WorldEnvironment environment) {
        const auto& e = environments.emplace_back(std::move(environment));
        world = {e.rank,  e.size,       e.local_rank,          e.local_size,  e.node_rank,
                 e.nodes, e.generation, e.master_addr.c_str(), e.master_port, e.node_addr.c_str()};
        for (size_t d = 0; d < groups.size(); ++d)
            groups[d] = e.sizes.group_of(static_cast<dp::Dimension>(d), e.rank);
    }
};

namespace {

constexpr std::array<const char*, 3> kDimensionNames = {"tensor", "data", "pipeline"};  // by dp_dimension
static_assert(static_cast<int>(dp::Dimension::tensor) == DP_TENSOR &&
              static_cast<int>(dp::Dimension::data) == DP_DATA &&
              static_cast<int>(dp::Dimension::pipeline) == DP_PIPELINE);
static_assert(DP_PHASE_CHECKPOINT + 1 == dp::kPhases);
static_assert(DP_MAX_SCALARS == dp::kMostScalars && DP_MAX_SCALAR_NAME_BYTES == dp::kMaxScalarName);

thread_local std::string last_error;

dp_status fail(dp_status status, std::string message) {
    last_error = std::move(message);
    return status;
}

// Runs the body of a call: an exception (no memory) becomes a status.
template <typename Body>
dp_status guarded(Body body) {
    try {
        last_error.clear();
        return body();
    } catch (const std::exception& e) {
        return fail(DP_ERROR_INVALID, e.what());
    } catch (...) {
        return fail(DP_ERROR_INVALID, "an unknown exception inside libdp");
    }
}

// The same for a call that needs a context.
template <typename Body>
dp_status guarded(const dp_context* context, Body body) {
    return guarded([&] {
        return context ? body() : fail(DP_ERROR_INVALID, "the dp_context is NULL: call dp_open first");
    });
}

template <typename T>
dp_status status_of(const dp::Result<T>& result) {
    return result ? DP_OK : fail(result.error().status, result.error().message);
}

dp_status no_key() {
    return fail(DP_ERROR_INVALID, "the key is NULL");
}

dp_status check_value(const void* value, size_t size) {
    if (size > DP_MAX_VALUE_BYTES)
        return fail(DP_ERROR_TOO_LARGE,
                    "a value has at most " + std::to_string(DP_MAX_VALUE_BYTES) + " bytes");
    if (!value && size > 0) return fail(DP_ERROR_INVALID, "the value is NULL, but its size is not 0");
    return DP_OK;
}

std::chrono::milliseconds time_of(const dp_context* context, int64_t timeout_ms) {
    if (timeout_ms == DP_TIMEOUT_DEFAULT) return context->environment().timeout;
    // A limit, because the sum with a clock must not overflow.
    return std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, int64_t{1} << 40));
}

dp::Result<dp::wire::Reply> call(dp_context* context, dp::wire::Request request, int64_t timeout_ms) {
    return context->client->call(std::move(request), time_of(context, timeout_ms));
}

dp_status copy_value(const dp::Result<dp::wire::Reply>& reply, void* out, size_t capacity, size_t* out_size) {
    if (!reply) return status_of(reply);
    const std::string& value = reply->value();
    if (out_size) *out_size = value.size();
    if (value.size() > capacity)
        return fail(DP_ERROR_TOO_LARGE, "the value has " + std::to_string(value.size()) +
                                            " bytes and the buffer " + std::to_string(capacity));
    if (!value.empty()) std::memcpy(out, value.data(), value.size());
    return DP_OK;
}

struct GroupView {
    std::string name = "world";
    std::vector<uint32_t> members;  // empty: the world
    uint64_t size = 0;
    std::optional<uint64_t> place;  // of this rank
};

GroupView view(const dp_context* context, const dp_group* group) {
    GroupView out;
    out.size = context->world.size;
    out.place = context->world.rank;
    if (!group) return out;
    if (group->name) out.name = group->name;
    if (!group->members || group->count == 0) return out;
    out.members.assign(group->members, group->members + group->count);
    out.size = group->count;
    const auto mine = std::find(out.members.begin(), out.members.end(), context->world.rank);
    out.place.reset();
    if (mine != out.members.end()) out.place = static_cast<uint64_t>(mine - out.members.begin());
    return out;
}

bool is_root(const GroupView& group, uint32_t roots) {
    return group.place && dp::root_at(*group.place, roots, group.size);
}

// Takes part in the group's next collective.
dp::Result<dp::wire::Reply> meet(dp_context* context, const GroupView& group, dp::wire::Arrive how,
                                 int64_t timeout_ms) {
    dp::wire::Request request;
    auto* arrive = request.mutable_arrive();
    *arrive = std::move(how);
    arrive->set_group(group.name);
    for (uint32_t rank : group.members) arrive->add_members(rank);
    arrive->set_sequence(context->client->next_sequence(group.name, group.members));
    return call(context, std::move(request), timeout_ms);
}

// The same; returns the roots' values in order.
dp::Result<dp::wire::Reply> meet(dp_context* context, const GroupView& group, uint32_t roots,
                                 const void* data, size_t size, int64_t timeout_ms) {
    dp::wire::Arrive how;
    how.set_roots(roots);
    if (size > 0 && is_root(group, roots)) how.set_value(data, size);
    return meet(context, group, std::move(how), timeout_ms);
}

dp_status no_id(const GroupView& group, uint32_t roots) {
    const uint32_t first = group.members.empty() ? 0 : group.members.front();
    const std::string who = roots == 1 ? "rank " + std::to_string(first) + ", the root"
                                       : "one of the " + std::to_string(roots) + " roots";
    return fail(DP_ERROR_BACKEND, who + " of group \"" + dp::printable(group.name, 60) +
                                      "\", could not make a unique id; its own output says why");
}

}  // namespace

extern "C" {

dp_status dp_internal_fail(dp_status status, const char* message) {
    return fail(status, message);
}

void dp_internal_ready(dp_context* context) {
    if (context) context->client->tell_ready();
}

int dp_in_step(void) {
    return std::getenv("DP_SOCKET") != nullptr;
}

dp_status dp_open(dp_context** context) {
    return guarded([&] {
        if (!context) return fail(DP_ERROR_INVALID, "dp_open needs a pointer to write the context to");
        *context = nullptr;
        if (!dp_in_step())
            return fail(DP_ERROR_NO_STEP,
                        "this process is not a rank of slurm-dp (DP_SOCKET is not set): start it with "
                        "srun --dp-world=auto, or without Slurm with dpctl launch");
        auto environment = dp::world_from_environment(dp::get_environment);
        if (!environment) return fail(DP_ERROR_INVALID, environment.error().message);
        auto client = dp::Client::connect(*environment);
        if (!client) return status_of(client);
        auto opened = std::make_unique<dp_context>();
        opened->enter(std::move(*environment));
        opened->client = std::move(*client);
        *context = opened.release();
        return DP_OK;
    });
}

void dp_end(dp_context* context) {
    if (context) context->client->leave();
}

void dp_close(dp_context* context) {
    delete context;
}

const dp_world* dp_get_world(const dp_context* context) {
    return context ? &context->world : nullptr;
}

dp_status dp_get_place(const dp_context* context, dp_dimension dimension, dp_place* place) {
    return guarded(context, [&] {
        const auto index = static_cast<size_t>(dimension);
        if (!place || index >= kDimensionNames.size())
            return fail(DP_ERROR_INVALID,
                        "dp_get_place needs DP_TENSOR, DP_DATA or DP_PIPELINE and a dp_place to fill");
        const auto& members = context->groups[index];
        place->rank =
            context->environment().sizes.rank_in(static_cast<dp::Dimension>(index), context->world.rank);
        place->size = static_cast<uint32_t>(members.size());
        place->group = {kDimensionNames[index], members.data(), members.size()};
        return DP_OK;
    });
}

const char* dp_last_error(void) {
    return last_error.c_str();
}

const char* dp_status_name(dp_status status) {
    constexpr std::array kNames = {
        "ok",           "not in a step", "invalid",   "timed out",      "daemon lost",
        "step aborted", "not found",     "too large", "backend failed", "peer lost"};
    static_assert(kNames.size() == DP_ERROR_PEER_LOST + 1);
    const auto index = static_cast<size_t>(status);
    return index < kNames.size() ? kNames[index] : "unknown status";
}

dp_status dp_on_event(dp_context* context, dp_event_callback callback, void* user, uint64_t* watch) {
    return guarded(context, [&] {
        if (!callback) return fail(DP_ERROR_INVALID, "dp_on_event needs a call-back");
        const uint64_t made = context->client->on_event([callback, user](const dp::StepEvent& event) {
            const dp_event told{event.kind, event.reason.c_str(), event.ranks.data(), event.ranks.size()};
            callback(user, &told);
        });
        if (watch) *watch = made;
        return DP_OK;
    });
}

void dp_forget_event(dp_context* context, uint64_t watch) {
    if (context) context->client->forget(watch);
}

void dp_at_step(dp_context* context, uint64_t step) {
    if (context) context->client->tell_progress(step);
}

void dp_enable_rejoin(dp_context* context) {
    if (context) context->client->tell_enable_rejoin();
}

dp_status dp_rejoin(dp_context* context, dp_changes* changes, int64_t timeout_ms) {
    return guarded(context, [&] {
        auto next = context->client->rejoin(time_of(context, timeout_ms));
        if (!next) return status_of(next);
        auto environment = dp::next_world(context->environment(), *next);
        const auto replaced =
            dp::parse_ranges<uint32_t>(next->plan().replaced(), next->plan().place().world_size());
        if (!environment) return fail(DP_ERROR_INVALID, environment.error().message);
        const dp_world before = context->world;
        context->enter(std::move(*environment));
        context->reason = next->reason();
        context->replaced = replaced.value_or(std::vector<uint32_t>());
        if (changes)
            *changes = {before.rank, before.size, context->reason.c_str(), context->replaced.data(),
                        context->replaced.size()};
        return DP_OK;
    });
}

dp_status dp_phase(dp_context* context, dp_phase_kind phase) {
    return guarded(context, [&] {
        if (static_cast<size_t>(phase) >= dp::kPhases)
            return fail(DP_ERROR_INVALID,
                        "dp_phase needs a dp_phase_kind, not " + std::to_string(static_cast<long>(phase)));
        return status_of(context->client->enter_phase(phase));
    });
}

dp_status dp_log_scalar(dp_context* context, const char* name, double value) {
    return guarded(context, [&] {
        const std::string_view given = name ? name : "";
        if (given.size() > dp::kMaxScalarName)
            return fail(DP_ERROR_TOO_LARGE,
                        "a scalar's name has at most " + std::to_string(dp::kMaxScalarName) + " bytes: \"" +
                            dp::printable(given, 60) + "\" has " + std::to_string(given.size()));
        if (!dp::is_scalar_name(given))
            return fail(DP_ERROR_INVALID, "a scalar needs a name of printable ASCII characters, not \"" +
                                              dp::printable(given) + "\"");
        return status_of(context->client->log_scalar(given, value));
    });
}

dp_status dp_barrier(dp_context* context, const dp_group* group, int64_t timeout_ms) {
    return guarded(context,
                   [&] { return status_of(meet(context, view(context, group), 1, nullptr, 0, timeout_ms)); });
}

dp_status dp_unique_id(dp_context* context, const dp_group* group, dp_make_id make_id, void* user,
                       uint8_t id[DP_UNIQUE_ID_BYTES], int64_t timeout_ms) {
    return dp_unique_ids(context, group, 1, make_id, user, id, timeout_ms);
}

size_t dp_unique_id_count(size_t ranks) {
    return std::max<size_t>(1, (ranks + DP_RANKS_PER_ID - 1) / DP_RANKS_PER_ID);
}

dp_status dp_unique_ids(dp_context* context, const dp_group* group, size_t count, dp_make_id make_id,
                        void* user, uint8_t* ids, int64_t timeout_ms) {
    return guarded(context, [&] {
        if (!make_id || !ids) return fail(DP_ERROR_INVALID, "a unique id needs make_id and a buffer");
        const GroupView members = view(context, group);
        if (count == 0 || count > members.size)
            return fail(DP_ERROR_INVALID, "a group of " + std::to_string(members.size) + " has 1 to " +
                                              std::to_string(members.size) + " unique ids, not " +
                                              std::to_string(count));
        const auto roots = static_cast<uint32_t>(count);
        uint8_t made[DP_UNIQUE_ID_BYTES] = {};
        // A root that cannot make an id arrives anyway, without one, so that the others learn it at once.
        const bool have = is_root(members, roots) && make_id(user, made) == 0;
        auto reply = meet(context, members, roots, made, have ? sizeof made : 0, timeout_ms);
        if (!reply) return status_of(reply);
        if (reply->value().size() != count * DP_UNIQUE_ID_BYTES) return no_id(members, roots);
        std::memcpy(ids, reply->value().data(), reply->value().size());
        return DP_OK;
    });
}

dp_status dp_broadcast(dp_context* context, const dp_group* group, const void* data, size_t size, void* out,
                       size_t capacity, size_t* out_size, int64_t timeout_ms) {
    return guarded(context, [&] {
        if (const dp_status s = check_value(data, size); s != DP_OK) return s;
        return copy_value(meet(context, view(context, group), 1, data, size, timeout_ms), out, capacity,
                          out_size);
    });
}

dp_status dp_agree(dp_context* context, const dp_group* group, const dp_fact* facts, size_t count,
                   int64_t timeout_ms) {
    return guarded(context, [&] {
        if (!facts && count > 0)
            return fail(DP_ERROR_INVALID, "the facts are NULL, but their count is not 0");
        dp::wire::Arrive how;
        for (const dp_fact* fact = facts; fact != facts + count; ++fact) {
            if (!fact->name || fact->name[0] == '\0') return fail(DP_ERROR_INVALID, "a fact has no name");
            if (!fact->value) continue;
            auto* told = how.add_facts();
            told->set_name(fact->name);
            told->set_value(fact->value);
            told->set_rule(fact->rule == DP_DISTINCT ? dp::wire::Fact::DISTINCT : dp::wire::Fact::SAME);
            told->set_remedy(fact->remedy ? fact->remedy : "");
        }
        return status_of(meet(context, view(context, group), std::move(how), timeout_ms));
    });
}

dp_status dp_set(dp_context* context, const char* key, const void* value, size_t size, int64_t timeout_ms) {
    return guarded(context, [&] {
        if (!key) return no_key();
        if (const dp_status s = check_value(value, size); s != DP_OK) return s;
        dp::wire::Request request;
        request.mutable_set()->set_key(key);
        if (size > 0) request.mutable_set()->set_value(value, size);
        return status_of(call(context, std::move(request), timeout_ms));
    });
}

dp_status dp_get(dp_context* context, const char* key, void* out, size_t capacity, size_t* out_size,
                 int64_t timeout_ms) {
    return guarded(context, [&] {
        if (!key) return no_key();
        dp::wire::Request request;
        request.mutable_get()->set_key(key);
        request.mutable_get()->set_now(timeout_ms == 0);
        return copy_value(call(context, std::move(request), timeout_ms), out, capacity, out_size);
    });
}

dp_status dp_wait(dp_context* context, const char* const* keys, size_t count, int64_t timeout_ms) {
    return guarded(context, [&] {
        for (size_t i = 0; i < count; ++i)
            if (!keys || !keys[i]) return no_key();
        dp::wire::Request request;
        request.mutable_wait();
        for (size_t i = 0; i < count; ++i) request.mutable_wait()->add_keys(keys[i]);
        return status_of(call(context, std::move(request), timeout_ms));
    });
}

dp_status dp_add(dp_context* context, const char* key, int64_t amount, int64_t* result, int64_t timeout_ms) {
    return guarded(context, [&] {
        if (!key) return no_key();
        dp::wire::Request request;
        request.mutable_add()->set_key(key);
        request.mutable_add()->set_amount(amount);
        auto reply = call(context, std::move(request), timeout_ms);
        if (!reply) return status_of(reply);
        if (result) *result = reply->number();
        return DP_OK;
    });
}

dp_status dp_compare_set(dp_context* context, const char* key, const void* expected, size_t expected_size,
                         const void* desired, size_t desired_size, void* out, size_t capacity,
                         size_t* out_size, int64_t timeout_ms) {
    return guarded(context, [&] {
        if (!key) return no_key();
        if (const dp_status s = check_value(expected, expected_size); s != DP_OK) return s;
        if (const dp_status s = check_value(desired, desired_size); s != DP_OK) return s;
        dp::wire::Request request;
        auto* swap = request.mutable_compare_set();
        swap->set_key(key);
        if (expected_size > 0) swap->set_expected(expected, expected_size);
        if (desired_size > 0) swap->set_desired(desired, desired_size);
        return copy_value(call(context, std::move(request), timeout_ms), out, capacity, out_size);
    });
}

}  // extern "C"
