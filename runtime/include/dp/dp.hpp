// SPDX-License-Identifier: Apache-2.0
//
// libdp's C++ API: dp/dp.h with RAII, results as values and std::chrono. Header-only over the C ABI, so that
// a program and libdp may be built by different compilers. What dp.h says about threads, time and errors
// holds here. Since 0.1.
#ifndef DP_DP_HPP
#define DP_DP_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "dp/dp.h"

namespace dp {

struct Error {
    dp_status status;
    std::string message;  // one line: what was tried, who is missing, what to do
};

template <typename T>
using Result = tl::expected<T, Error>;

using Timeout = std::optional<std::chrono::milliseconds>;  // nullopt: the step's --dp-timeout
using UniqueId = std::array<std::uint8_t, DP_UNIQUE_ID_BYTES>;
using Bytes = std::vector<char>;

// A group of ranks: see dp_group. An empty `members` is the whole world.
struct Group {
    std::string name = "world";
    std::vector<std::uint32_t> members;
};

// A value that must be equal on all ranks, or different on each: see dp_fact.
struct Fact {
    std::string name;
    std::string value;
    dp_rule rule = DP_SAME;
    std::string remedy;
};

// A death, or the end of the step: see dp_event. Owns its strings.
struct Event {
    dp_event_kind kind;
    std::string reason;
    std::vector<std::uint32_t> ranks;
};

// Delivers every event to its call-back while it lives (dp_on_event). The context must outlive it. Move-only.
class EventWatch {
 public:
    using Callback = std::function<void(const Event&)>;

    static Result<EventWatch> make(dp_context* context, Callback callback) {
        EventWatch made;
        made.callback_ =
            std::make_unique<std::shared_ptr<Callback>>(std::make_shared<Callback>(std::move(callback)));
        auto forward = [](void* user, const dp_event* event) {
            const auto running = *static_cast<std::shared_ptr<Callback>*>(user);  // may drop its own watch
            (*running)({event->kind, event->reason, {event->ranks, event->ranks + event->count}});
        };
        if (dp_status s = dp_on_event(context, forward, made.callback_.get(), &made.watch_); s != DP_OK)
            return tl::make_unexpected(Error{s, dp_last_error()});
        made.context_ = context;
        return made;
    }
    EventWatch(EventWatch&& other) noexcept { *this = std::move(other); }
    EventWatch& operator=(EventWatch&& other) noexcept {
        std::swap(context_, other.context_);
        std::swap(watch_, other.watch_);
        std::swap(callback_, other.callback_);
        return *this;
    }
    ~EventWatch() {
        if (context_) dp_forget_event(context_, watch_);
    }

 private:
    EventWatch() = default;
    dp_context* context_ = nullptr;
    std::uint64_t watch_ = 0;
    std::unique_ptr<std::shared_ptr<Callback>> callback_;
};

// This rank's place in one dimension of the world: see dp_place.
struct Place {
    std::uint32_t rank = 0;
    std::uint32_t size = 1;
    Group group;
};

// The world as seen by this rank. Move-only; its destructor says goodbye. Methods are thread-safe,
// as in dp.h.
class Context {
 public:
    // Opens this rank's context and says hello (dp_open).
    static Result<Context> open() {
        dp_context* raw = nullptr;
        if (dp_status s = dp_open(&raw); s != DP_OK) return failure(s);
        return Context(raw);
    }

    const dp_world& world() const { return *dp_get_world(handle_.get()); }
    dp_context* get() const { return handle_.get(); }

    Place place(dp_dimension dimension) const {
        dp_place raw{};
        if (dp_get_place(get(), dimension, &raw) != DP_OK) return {};
        return {
            raw.rank, raw.size, {raw.group.name, {raw.group.members, raw.group.members + raw.group.count}}};
    }

    // What dp_changes says. Owns its strings.
    struct Changes {
        std::uint32_t previous_rank;
        std::uint32_t previous_size;
        std::string reason;
        std::vector<std::uint32_t> replaced;
    };

    // Declares that this process will rejoin when peers die (dp_enable_rejoin).
    void enable_rejoin() { dp_enable_rejoin(get()); }

    // Waits for the next generation, and is in it from then on (dp_rejoin).
    Result<Changes> rejoin(Timeout timeout = {}) {
        dp_changes raw{};
        if (dp_status s = dp_rejoin(get(), &raw, milliseconds(timeout)); s != DP_OK) return failure(s);
        return Changes{raw.previous_rank,
                       raw.previous_size,
                       raw.reason,
                       {raw.replaced, raw.replaced + raw.replaced_count}};
    }

    void at_step(std::uint64_t step) { dp_at_step(get(), step); }

    // The phase that this rank is in from now on (dp_phase).
    Result<void> phase(dp_phase_kind phase) { return check(dp_phase(get(), phase)); }

    // A number of the training, for its report (dp_log_scalar).
    Result<void> log_scalar(const char* name, double value) {
        return check(dp_log_scalar(get(), name, value));
    }

    Result<EventWatch> on_event(EventWatch::Callback callback) {
        return EventWatch::make(get(), std::move(callback));
    }

    Result<void> barrier(const Group& group = {}, Timeout timeout = {}) {
        return check(dp_barrier(get(), View(group), milliseconds(timeout)));
    }

    // A barrier that compares facts about the members (dp_agree).
    Result<void> agree(const std::vector<Fact>& facts, const Group& group = {}, Timeout timeout = {}) {
        std::vector<dp_fact> raw;
        raw.reserve(facts.size());
        for (const Fact& fact : facts)
            raw.push_back({fact.name.c_str(), fact.value.c_str(), fact.rule, fact.remedy.c_str()});
        return check(dp_agree(get(), View(group), raw.data(), raw.size(), milliseconds(timeout)));
    }

    // The same new id for every member. `make` runs on the root only; it returns nullopt on
    // failure, never throws.
    Result<UniqueId> unique_id(const Group& group, const std::function<std::optional<UniqueId>()>& make,
                               Timeout timeout = {}) {
        auto forward = [](void* user, std::uint8_t* id) -> int {
            auto made = (*static_cast<const std::function<std::optional<UniqueId>()>*>(user))();
            if (!made) return 1;
            std::copy(made->begin(), made->end(), id);
            return 0;
        };
        UniqueId id{};
        void* user = const_cast<void*>(static_cast<const void*>(&make));
        dp_status s = dp_unique_id(get(), View(group), forward, user, id.data(), milliseconds(timeout));
        if (s != DP_OK) return failure(s);
        return id;
    }

    Result<Bytes> broadcast(const Group& group, std::span<const char> data, Timeout timeout = {}) {
        return receive([&](char* out, size_t capacity, size_t* size) {
            return dp_broadcast(get(), View(group), data.data(), data.size(), out, capacity, size,
                                milliseconds(timeout));
        });
    }

    Result<void> set(const std::string& key, std::span<const char> value, Timeout timeout = {}) {
        return check(dp_set(get(), key.c_str(), value.data(), value.size(), milliseconds(timeout)));
    }

    Result<Bytes> get(const std::string& key, Timeout timeout = {}) {
        return receive([&](char* out, size_t capacity, size_t* size) {
            return dp_get(get(), key.c_str(), out, capacity, size, milliseconds(timeout));
        });
    }

    Result<void> wait(const std::vector<std::string>& keys, Timeout timeout = {}) {
        std::vector<const char*> raw;
        raw.reserve(keys.size());
        for (const auto& key : keys) raw.push_back(key.c_str());
        return check(dp_wait(get(), raw.data(), raw.size(), milliseconds(timeout)));
    }

    Result<std::int64_t> add(const std::string& key, std::int64_t amount, Timeout timeout = {}) {
        std::int64_t result = 0;
        if (dp_status s = dp_add(get(), key.c_str(), amount, &result, milliseconds(timeout)); s != DP_OK)
            return failure(s);
        return result;
    }

    Result<Bytes> compare_set(const std::string& key, std::span<const char> expected,
                              std::span<const char> desired, Timeout timeout = {}) {
        return receive([&](char* out, size_t capacity, size_t* size) {
            return dp_compare_set(get(), key.c_str(), expected.data(), expected.size(), desired.data(),
                                  desired.size(), out, capacity, size, milliseconds(timeout));
        });
    }

 private:
    struct Close {
        void operator()(dp_context* context) const { dp_close(context); }
    };
    std::unique_ptr<dp_context, Close> handle_;

    explicit Context(dp_context* raw) : handle_(raw) {}

    // A Group as the C API takes it, for the duration of one call.
    class View {
     public:
        explicit View(const Group& group)
            : group_{group.name.c_str(), group.members.empty() ? nullptr : group.members.data(),
                     group.members.size()} {}
        operator const dp_group*() const { return &group_; }

     private:
        dp_group group_;
    };

    static std::int64_t milliseconds(Timeout timeout) {
        return timeout ? timeout->count() : DP_TIMEOUT_DEFAULT;
    }

    static tl::unexpected<Error> failure(dp_status status) {
        return tl::make_unexpected(Error{status, dp_last_error()});
    }

    static Result<void> check(dp_status status) {
        if (status != DP_OK) return failure(status);
        return {};
    }

    template <typename Call>
    static Result<Bytes> receive(Call call) {
        std::unique_ptr<char[]> out(new char[DP_MAX_VALUE_BYTES]);
        size_t size = 0;
        if (dp_status s = call(out.get(), DP_MAX_VALUE_BYTES, &size); s != DP_OK) return failure(s);
        return Bytes(out.get(), out.get() + size);
    }
};

}  // namespace dp

#endif
