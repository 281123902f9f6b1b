// SPDX-License-Identifier: Apache-2.0
#include "torch/request.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dp {

// What follows an operation's byte, by TorchOperation: k key, v value, n i64, p u32, * a count of the rest.
constexpr std::string_view kOperands[] = {"kv", "kvv", "k", "kn", "*k", "*k", "",  "k", "k", "kv",
                                          "*k", "*kv", "",  "p",  "kv", "k",  "k", "",  "kn"};
static_assert(std::size(kOperands) == static_cast<size_t>(TorchOperation::barrier) + 1);

size_t TorchReader::take(std::string_view bytes) {
    size_t taken = 0;
    while (!complete_ && broken_.empty() && taken < bytes.size()) {
        const size_t more = std::min(need_ - token_.size(), bytes.size() - taken);
        token_.append(bytes.substr(taken, more));
        taken += more;
        // A part of zero length (an empty value) is complete at once.
        while (!complete_ && broken_.empty() && token_.size() == need_) on_token();
    }
    return taken;
}

TorchRequest TorchReader::request() {
    complete_ = false;
    operands_ = 0;
    expect(1);
    return std::exchange(request_, {});
}

void TorchReader::fail(std::string why) {
    broken_ = std::move(why);
    token_ = {};
    request_ = {};
    operands_ = 0;
}

void TorchReader::expect(size_t bytes) {
    token_.clear();
    need_ = bytes;
}

// The token as a little-endian number.
uint64_t TorchReader::number() const {
    uint64_t out = 0;
    for (size_t i = token_.size(); i-- > 0;) out = out << 8 | static_cast<unsigned char>(token_[i]);
    return out;
}

void TorchReader::on_token() {
    if (kind_ == Kind::unknown && token_.size() == 1)
        first_byte(static_cast<unsigned char>(token_[0]));
    else if (kind_ == Kind::unknown)
        first_word();
    else if (operands_to_come_.empty())
        operation(static_cast<unsigned char>(token_[0]));
    else
        operand();
}

void TorchReader::first_byte(unsigned char code) {
    if (code == 0) {
        need_ = 1 + sizeof kTorchMagic;
    } else {
        kind_ = Kind::old;
        operation(code);
    }
}

// 0 and four more bytes: a greeting, or an old client's SET and the first half of the key's length.
void TorchReader::first_word() {
    std::string word = token_.substr(1);
    token_ = word;
    if (number() == kTorchMagic) {
        kind_ = Kind::recent;
        expect(1);
        return;
    }
    kind_ = Kind::old;
    operation(0);
    token_ = std::move(word);
}

void TorchReader::operation(unsigned char code) {
    // A recent client counts from 1, because its greeting is 0, and has no WATCH_KEY.
    constexpr unsigned char kWatch = static_cast<unsigned char>(TorchOperation::watch_key);
    const bool recent = kind_ == Kind::recent;
    const int number = recent && code <= kWatch ? code - 1 : code;
    const auto last = recent ? TorchOperation::barrier : TorchOperation::cancel_wait;
    if (number < 0 || number > static_cast<int>(last))
        return fail("it sent " + std::to_string(code) + ", which is not an operation of PyTorch's TCPStore");
    request_.operation = static_cast<TorchOperation>(number);
    operands_to_come_ = kOperands[number];
    repeats_ = 0;
    next_operand();
}

void TorchReader::next_operand() {
    if (operands_to_come_.empty() && repeats_ > 0) {
        --repeats_;
        operands_to_come_ = repeated_;
    }
    in_body_ = false;
    if (operands_to_come_.empty()) {
        complete_ = true;
        expect(1);
    } else {
        expect(operands_to_come_[0] == 'p' ? sizeof(uint32_t) : sizeof(uint64_t));
    }
}

void TorchReader::operand() {
    if (in_body_) return body(std::exchange(token_, {}));
    const char kind = operands_to_come_[0];
    const uint64_t value = number();
    if (kind == '*') {
        if (value > kMaxTorchKeys)
            return fail("it asked about " + std::to_string(value) + " keys at once; the limit is " +
                        std::to_string(kMaxTorchKeys));
        repeated_ = operands_to_come_.substr(1);
        repeats_ = value;
        operands_to_come_ = {};
        next_operand();
    } else if (kind == 'n' || kind == 'p') {
        request_.number = static_cast<int64_t>(value);
        operands_to_come_.remove_prefix(1);
        next_operand();
    } else {
        const bool key = kind == 'k';
        const size_t limit = key ? kMaxTorchKey : kMaxTorchValue;
        if (value > limit)
            return fail("it sent a " + std::string(key ? "key" : "value") + " of " + std::to_string(value) +
                        " bytes; the limit is " + std::to_string(limit));
        if (operands_ + value > kMaxTorchRequest)
            return fail("it sent a request of more than " + std::to_string(kMaxTorchRequest >> 20) + " MiB");
        in_body_ = true;
        expect(value);
    }
}

void TorchReader::body(std::string bytes) {
    operands_ += bytes.size() + sizeof(std::string);
    (operands_to_come_[0] == 'k' ? request_.keys : request_.values).push_back(std::move(bytes));
    operands_to_come_.remove_prefix(1);
    next_operand();
}

}  // namespace dp
