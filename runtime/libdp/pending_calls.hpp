// SPDX-License-Identifier: Apache-2.0
//
// A rank's calls in progress: each waits for its own reply; the end of step or daemon ends all. Thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "dp.pb.h"
#include "dp/dp.hpp"

namespace dp {

inline dp_status status_of(wire::Status status) {
    constexpr std::array kByNumber = {DP_OK,
                                      DP_ERROR_TIMEOUT,
                                      DP_ERROR_NOT_FOUND,
                                      DP_ERROR_INVALID,
                                      DP_ERROR_ABORTED,
                                      DP_ERROR_TOO_LARGE,
                                      DP_ERROR_LOST};
    static_assert(kByNumber.size() == wire::LOST + 1);
    return wire::Status_IsValid(status) ? kByNumber[static_cast<size_t>(status)] : DP_ERROR_INVALID;
}

class PendingCalls {
 public:
    // One call, pending as long as this object lives. If calls have ended already, it has its result at once.
    class Call {
     public:
        explicit Call(PendingCalls& calls) : calls_(calls) {
            const std::lock_guard guard(calls_.mutex_);
            id_ = calls_.next_id_++;
            calls_.calls_[id_] = this;
            if (calls_.ended_) finish(tl::unexpected(*calls_.ended_));
        }
        ~Call() {
            const std::lock_guard guard(calls_.mutex_);
            calls_.calls_.erase(id_);
            if (calls_.calls_.empty()) calls_.idle_.notify_all();
        }
        Call(const Call&) = delete;
        Call& operator=(const Call&) = delete;

        uint64_t id() const { return id_; }
        // False: there is no result within that time.
        bool wait_for(std::chrono::milliseconds time) {
            std::unique_lock lock(calls_.mutex_);
            return done_.wait_for(lock, time, [this] { return result_.has_value(); });
        }
        bool has_result() const {
            const std::lock_guard guard(calls_.mutex_);
            return result_.has_value();
        }
        // Once there is one.
        Result<wire::Reply> take_result() { return std::move(*result_); }

     private:
        friend class PendingCalls;
        PendingCalls& calls_;
        uint64_t id_ = 0;
        std::condition_variable done_;
        std::optional<Result<wire::Reply>> result_;

        // The first result counts. The mutex is held.
        void finish(Result<wire::Reply> result) {
            if (!result_) result_ = std::move(result);
            done_.notify_all();
        }
    };

    // Gives the reply to its call, if that still waits.
    void answer(const wire::Reply& reply) {
        const std::lock_guard guard(mutex_);
        const auto call = calls_.find(reply.id());
        if (call == calls_.end()) return;
        if (reply.status() == wire::OK)
            call->second->finish(reply);
        else
            call->second->finish(tl::unexpected(Error{status_of(reply.status()), reply.error()}));
    }
    // Ends all calls with this error, and each later one. False if later ones had an error already.
    bool end(const Error& why) {
        const bool is_first = refuse(why);
        const std::lock_guard guard(mutex_);
        for (auto& [id, call] : calls_) call->finish(tl::unexpected(why));
        return is_first;
    }
    // Refuses later calls with this error; those in progress go on. The loss of a peer may still become the end.
    bool refuse(const Error& why) {
        const std::lock_guard guard(mutex_);
        if (ended_ && ended_->status != DP_ERROR_PEER_LOST) return false;
        ended_ = why;
        return true;
    }
    // After the loss of a peer: there is another generation, and calls are possible again.
    void begin_anew() {
        const std::lock_guard guard(mutex_);
        if (ended_ && ended_->status == DP_ERROR_PEER_LOST) ended_.reset();
    }
    bool lost_a_peer() {
        const std::lock_guard guard(mutex_);
        return ended_ && ended_->status == DP_ERROR_PEER_LOST;
    }
    void wait_until_idle() {
        std::unique_lock lock(mutex_);
        idle_.wait(lock, [this] { return calls_.empty(); });
    }

 private:
    std::mutex mutex_;
    std::condition_variable idle_;
    std::map<uint64_t, Call*> calls_;
    // Differs from the ids of an earlier process of this task, whose answers may still be under way.
    uint64_t next_id_ = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    std::optional<Error> ended_;
};

}  // namespace dp
