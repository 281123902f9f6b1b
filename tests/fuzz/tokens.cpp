// SPDX-License-Identifier: Apache-2.0
//
// Data from outside (--data-dir): Megatron-LM's index, NumPy's header, a line of JSON. Whatever is in them, nothing is read that is not
// there, and what is taken says of the file what is so. The first byte chooses.
#include <cstring>

#include "target.hpp"
#include "trainer/data/json_lines.hpp"
#include "trainer/data/megatron_index.hpp"
#include "trainer/data/npy.hpp"

namespace {

using namespace dp;
using namespace dp::trainer;

void must_be_a_line(const std::string& why) {
    fuzz::must(!why.empty(), "a refusal says why");
    fuzz::must(why.find('\n') == std::string::npos, "a refusal is one line");
}

// The first bytes say how long the file of tokens is.
void read_index(fuzz::Bytes& bytes) {
    std::int64_t token_bytes = 0;
    const auto size = bytes.take(4);
    std::memcpy(&token_bytes, size.data(), size.size());
    const auto index = bytes.take(std::string_view::npos);
    const auto read = [&](std::int64_t at, void* to, std::size_t count) -> Try<void> {
        fuzz::must(at >= 0 && static_cast<std::size_t>(at) <= index.size() &&
                       count <= index.size() - static_cast<std::size_t>(at),
                   "only what is there is read");
        std::memcpy(to, index.data() + at, count);
        return {};
    };
    const auto found = read_megatron_index(read, static_cast<std::int64_t>(index.size()), token_bytes);
    if (!found) return must_be_a_line(found.error().message);
    fuzz::must(found->tokens >= 0 && found->tokens * bytes_of(found->type) == token_bytes,
               "all tokens are there");
    fuzz::must(found->sequences > 0 && found->documents >= 0, "it has sequences");
}

void read_header(std::string_view file) {
    const auto header = read_npy_header(file.substr(0, kLongestNpyHeader));
    if (!header) return must_be_a_line(header.error().message);
    fuzz::must(header->count >= 0, "a number of tokens");
    fuzz::must(static_cast<std::size_t>(header->bytes) <= file.size(), "the header was there");
}

void read_line(std::string_view line) {
    const auto text = text_in_line(line);
    if (!text) return must_be_a_line(text.error().message);
    fuzz::must(text->size() <= line.size(), "a text is no longer than its line");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    fuzz::Bytes bytes(data, size);
    switch (bytes.byte()) {
        case 'm':
            read_index(bytes);
            break;
        case 'n':
            read_header(bytes.take(std::string_view::npos));
            break;
        default:
            read_line(bytes.take(std::string_view::npos));
    }
    return 0;
}
