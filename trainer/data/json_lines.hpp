// SPDX-License-Identifier: Apache-2.0
//
// JSON lines (jsonlines.org), as data sets of text are published: each line is an object, and its "text" a document. prepare/corpus.cpp
// reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// Pure: the document in a line. An error is the reason alone.
Try<std::string> text_in_line(std::string_view line);

// Reads a file line by line, of which none is held that is longer than kLongestLine.
inline constexpr std::size_t kLongestLine = std::size_t{256} << 20;
class LineReader {
 public:
    explicit LineReader(Fd file, std::size_t longest = kLongestLine)
        : file_(std::move(file)), longest_(longest) {}

    // Whether there is one more; an error is the reason alone.
    Try<bool> next();
    std::string_view line() const { return line_; }  // without its end
    std::int64_t number() const { return number_; }  // from 1
    bool is_too_long() const { return is_too_long_; }

 private:
    Fd file_;
    std::size_t longest_;
    std::string line_, piece_;
    std::size_t used_ = 0;  // of the piece
    std::int64_t number_ = 0;
    bool is_too_long_ = false;
};

}  // namespace dp::trainer
