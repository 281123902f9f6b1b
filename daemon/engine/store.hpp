// SPDX-License-Identifier: Apache-2.0
//
// The step's key-value store, with calls that wait for a key. A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/answers.hpp"
#include "engine/time.hpp"

namespace dp {

inline constexpr size_t kMaxStoreKeys = size_t{128} << 10;
inline constexpr size_t kMaxStoreBytes = size_t{256} << 20;

class Store {
 public:
    // Handles a Set, Get, Wait, Add or CompareSet. Answers this call and the calls that it wakes.
    std::vector<Answer> handle(Caller caller, const wire::Request& request, Time now);

    // Answers calls whose deadline has passed.
    std::vector<Answer> expire(Time now);
    // No later than the next deadline.
    std::optional<Time> next_deadline() const { return next_; }

    // Answers all waiting calls.
    std::vector<Answer> end(wire::Status status, const std::string& why);

    // Forgets the rank's waiting calls.
    void drop(uint32_t rank);

 private:
    struct Waiter {
        std::set<std::string> missing;
        bool wants_value = false;  // a Get
        Time deadline{};
        Time asked{};
    };

    std::unordered_map<std::string, std::string> values_;
    size_t bytes_ = 0;
    std::map<Caller, Waiter> waiters_;
    std::optional<Time> next_;  // a lower bound of the waiters' deadlines
    std::unordered_map<std::string, std::set<Caller>> by_key_;

    std::vector<Answer> put(Caller caller, const std::string& key, std::string value, wire::Reply reply);
    void wait(Caller caller, Waiter waiter);
    void forget(std::map<Caller, Waiter>::iterator waiter);
};

}  // namespace dp
