// SPDX-License-Identifier: Apache-2.0
#include "engine/store.hpp"

#include "base/text.hpp"
#include "dp/dp.h"

namespace dp {
namespace {

bool fits(const std::string& key) {
    return !key.empty() && key.size() <= DP_MAX_KEY_BYTES;
}

std::string in_words(const std::string& key) {
    return "key \"" + printable(key, 80) + "\"";
}

}  // namespace

std::vector<Answer> Store::handle(Caller caller, const wire::Request& request, Time now) {
    const Time deadline = now + clamped(request.timeout_ms());
    auto refuse = [&](wire::Status status, std::string why) {
        return std::vector<Answer>{answer(caller, status, std::move(why))};
    };
    auto bad_key = [&] {
        return refuse(wire::INVALID, "a key has 1 to " + std::to_string(DP_MAX_KEY_BYTES) + " bytes");
    };
    // One answer per call: libdp never reuses a number.
    if (waiters_.contains(caller))
        return refuse(wire::INVALID, "this rank already has a call with that number");
    switch (request.operation_case()) {
        case wire::Request::kSet: {
            const auto& set = request.set();
            if (!fits(set.key())) return bad_key();
            return put(caller, set.key(), set.value(), {});
        }
        case wire::Request::kGet: {
            const auto& get = request.get();
            if (!fits(get.key())) return bad_key();
            if (auto found = values_.find(get.key()); found != values_.end()) {
                Answer known = answer(caller, wire::OK);
                known.reply.set_value(found->second);
                return {std::move(known)};
            }
            if (get.now()) return refuse(wire::NOT_FOUND, "no " + in_words(get.key()));
            wait(caller, {{get.key()}, true, deadline, now});
            return {};
        }
        case wire::Request::kWait: {
            std::set<std::string> missing;
            for (const auto& key : request.wait().keys()) {
                if (!fits(key)) return bad_key();
                if (!values_.contains(key)) missing.insert(key);
            }
            if (missing.empty()) return refuse(wire::OK, "");
            wait(caller, {std::move(missing), false, deadline, now});
            return {};
        }
        case wire::Request::kAdd: {
            const auto& add = request.add();
            if (!fits(add.key())) return bad_key();
            int64_t value = 0;
            if (auto found = values_.find(add.key()); found != values_.end()) {
                auto number = parse_number<int64_t>(found->second);
                if (!number) return refuse(wire::INVALID, in_words(add.key()) + " holds no number");
                value = *number;
            }
            if (__builtin_add_overflow(value, add.amount(), &value))
                return refuse(wire::INVALID, in_words(add.key()) + " would overflow 64 bits");
            wire::Reply reply;
            reply.set_number(value);
            return put(caller, add.key(), std::to_string(value), std::move(reply));
        }
        case wire::Request::kCompareSet: {
            const auto& swap = request.compare_set();
            if (!fits(swap.key())) return bad_key();
            auto found = values_.find(swap.key());
            const std::string held = found == values_.end() ? "" : found->second;
            const bool equal = held == swap.expected();
            wire::Reply reply;
            reply.set_value(equal ? swap.desired() : held);
            if (equal) return put(caller, swap.key(), swap.desired(), std::move(reply));
            return {{{caller}, std::move(reply)}};
        }
        default:
            return refuse(wire::INVALID, "unknown operation; use libdp and slurm-dp of the same version");
    }
}

std::vector<Answer> Store::put(Caller caller, const std::string& key, std::string value, wire::Reply reply) {
    if (value.size() > DP_MAX_VALUE_BYTES)
        return {answer(caller, wire::TOO_LARGE,
                       "a value has at most " + std::to_string(DP_MAX_VALUE_BYTES) + " bytes")};
    auto found = values_.find(key);
    const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
    if (bytes_ - before + key.size() + value.size() > kMaxStoreBytes ||
        (found == values_.end() && values_.size() >= kMaxStoreKeys))
        return {answer(caller, wire::TOO_LARGE, "the step's store is full")};
    bytes_ += key.size() + value.size() - before;
    values_[key] = value;

    std::vector<Answer> answers{{{caller}, std::move(reply)}};
    auto waiting = by_key_.find(key);
    if (waiting == by_key_.end()) return answers;
    Answer woken;  // all Gets of the key share one answer
    woken.reply.set_value(value);
    Answer complete;
    for (Caller who : std::set<Caller>(waiting->second)) {
        auto waiter = waiters_.find(who);
        waiter->second.missing.erase(key);
        if (!waiter->second.missing.empty()) continue;
        (waiter->second.wants_value ? woken : complete).callers.push_back(who);
        forget(waiter);
    }
    by_key_.erase(key);
    if (!woken.callers.empty()) answers.push_back(std::move(woken));
    if (!complete.callers.empty()) answers.push_back(std::move(complete));
    return answers;
}

void Store::wait(Caller caller, Waiter waiter) {
    next_ = earlier(next_, waiter.deadline);
    for (const auto& key : waiter.missing) by_key_[key].insert(caller);
    waiters_[caller] = std::move(waiter);
}

void Store::forget(std::map<Caller, Waiter>::iterator waiter) {
    for (const auto& key : waiter->second.missing) {
        const auto entry = by_key_.find(key);
        entry->second.erase(waiter->first);
        if (entry->second.empty()) by_key_.erase(entry);
    }
    waiters_.erase(waiter);
    if (waiters_.empty()) next_.reset();
}

std::vector<Answer> Store::expire(Time now) {
    std::vector<Answer> answers;
    if (!next_ || now < *next_) return answers;
    next_.reset();
    for (auto it = waiters_.begin(); it != waiters_.end();) {
        auto current = it++;
        const Waiter& waiter = current->second;
        if (waiter.deadline > now) {
            next_ = earlier(next_, waiter.deadline);
            continue;
        }
        answers.push_back(answer(
            current->first, wire::TIMEOUT,
            "no rank has set " + in_words(*waiter.missing.begin()) + " within " + words(now - waiter.asked)));
        forget(current);
    }
    return answers;
}

std::vector<Answer> Store::end(wire::Status status, const std::string& why) {
    std::vector<Answer> answers;
    for (const auto& [caller, waiter] : waiters_) answers.push_back(answer(caller, status, why));
    waiters_.clear();
    by_key_.clear();
    return answers;
}

void Store::drop(uint32_t rank) {
    for (auto it = waiters_.begin(); it != waiters_.end();)
        if (auto current = it++; current->first.rank == rank) forget(current);
}

}  // namespace dp
