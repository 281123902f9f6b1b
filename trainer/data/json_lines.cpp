// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/json_lines.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace dp::trainer {
namespace {

bool is_utf8(std::string_view text) {
    try {
        (void)nlohmann::json(text).dump();
        return true;
    } catch (const nlohmann::json::exception&) {
        return false;
    }
}

}  // namespace

Try<std::string> text_in_line(std::string_view line) {
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) return dp::fail(is_utf8(line) ? "it is no JSON" : "it is not UTF-8");
    if (!json.is_object()) return dp::fail("it is no object with a \"text\"");
    const auto text = json.find("text");
    if (text == json.end()) return dp::fail("it has no \"text\"");
    if (!text->is_string()) return dp::fail("its \"text\" is no string");
    return std::move(text->get_ref<std::string&>());
}

Try<bool> LineReader::next() {
    constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
    line_.clear();
    is_too_long_ = false;
    for (bool begun = false;;) {
        if (used_ == piece_.size()) {
            piece_.resize(kReadAtOnce);
            const ssize_t got = TEMP_FAILURE_RETRY(::read(file_.get(), piece_.data(), piece_.size()));
            const int why = errno;
            piece_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
            used_ = 0;
            if (got < 0) return dp::fail(errno_text(why));
            if (got == 0) {
                if (begun) ++number_;
                return begun;
            }
        }
        begun = true;
        const std::size_t end = std::min(piece_.find('\n', used_), piece_.size());
        if (line_.size() + end - used_ > longest_) is_too_long_ = true;
        if (is_too_long_)
            line_.clear();
        else
            line_.append(piece_, used_, end - used_);
        const bool is_whole = end < piece_.size();
        used_ = is_whole ? end + 1 : end;
        if (!is_whole) continue;
        ++number_;
        return true;
    }
}

}  // namespace dp::trainer
