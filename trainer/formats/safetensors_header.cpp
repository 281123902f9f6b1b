// SPDX-License-Identifier: Apache-2.0
#include "trainer/formats/safetensors_header.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

constexpr std::size_t kMostDimensions = 64;
// The largest models have some ten thousand.
constexpr std::size_t kMostTensors = 200'000;
constexpr std::string_view kMetadata = "__metadata__";

// Its methods are the parser's (nlohmann::json_sax); false ends it, with `problem` said.
class HeaderParts final : public nlohmann::json_sax<nlohmann::json> {
 public:
    std::vector<DescribedTensor> tensors;
    std::string problem;

    bool start_object(std::size_t) override {
        if (at_ == At::begin) return go_to(At::names);
        if (at_ != At::names || key_.empty()) return wrong_value();
        if (key_ == kMetadata) return go_to(At::metadata);
        if (tensors.size() == kMostTensors)
            return wrong(fmt::format("its header has more than {} tensors", kMostTensors));
        tensors.emplace_back().name = key_;
        return go_to(At::tensor);
    }
    bool key(string_t& name) override {
        std::set<std::string>& before = at_ == At::names ? names_ : fields_;
        if (!before.insert(name).second)
            return wrong(fmt::format("its header has {} twice{}", printable(name, 60), in_tensor()));
        const bool is_known =
            at_ != At::tensor || name == "dtype" || name == "shape" || name == "data_offsets";
        key_ = std::move(name);
        if (key_.empty() && at_ == At::names) return wrong("its header has a tensor without a name");
        return is_known ||
               wrong(fmt::format("its header has the unknown {}{}", printable(key_, 60), in_tensor()));
    }
    bool end_object() override {
        if (at_ == At::names) return go_to(At::end);
        if (at_ == At::tensor)
            for (const char* field : {"dtype", "shape", "data_offsets"})
                if (!fields_.contains(field))
                    return wrong(fmt::format("its header lacks {}{}", field, in_tensor()));
        fields_.clear();
        return go_to(At::names);
    }
    bool start_array(std::size_t) override {
        if (at_ != At::tensor || key_ == "dtype") return wrong_value();
        numbers_.clear();
        return go_to(At::numbers);
    }
    bool number_unsigned(number_unsigned_t number) override {
        if (at_ != At::numbers) return wrong_value();
        if (numbers_.size() == (key_ == "shape" ? kMostDimensions : 2)) return wrong_value();
        numbers_.push_back(number);
        return true;
    }
    bool end_array() override {
        DescribedTensor& tensor = tensors.back();
        if (key_ == "shape") {
            tensor.shape = numbers_;
        } else {
            if (numbers_.size() != 2) return wrong_value();
            tensor.begin = numbers_[0];
            tensor.end = numbers_[1];
        }
        return go_to(At::tensor);
    }
    bool string(string_t& text) override {
        if (at_ == At::metadata) return true;
        if (at_ != At::tensor || key_ != "dtype") return wrong_value();
        tensors.back().dtype = std::move(text);
        return true;
    }
    bool null() override { return wrong_value(); }
    bool boolean(bool) override { return wrong_value(); }
    bool number_integer(number_integer_t) override { return wrong_value(); }  // below 0
    bool number_float(number_float_t, const string_t&) override { return wrong_value(); }
    bool binary(binary_t&) override { return wrong_value(); }
    bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception&) override {
        return wrong(fmt::format("its header is not JSON: byte {} is wrong", byte));
    }

 private:
    enum class At { begin, names, metadata, tensor, numbers, end } at_ = At::begin;
    std::string key_;  // the last one
    std::set<std::string> names_, fields_;
    std::vector<std::uint64_t> numbers_;

    bool go_to(At next) {
        at_ = next;
        return true;
    }
    bool wrong(std::string what) {
        problem = std::move(what);
        return false;
    }
    bool wrong_value() {
        if (key_.empty()) return wrong("its header is not an object of tensors");
        return wrong(fmt::format("its header has a wrong value of {}{}", printable(key_, 60), in_tensor()));
    }
    // The name of the tensor that the header is in the middle of.
    std::string in_tensor() const {
        const bool is_inside = at_ == At::tensor || at_ == At::numbers;
        return is_inside ? " for " + printable(tensors.back().name, 60) : "";
    }
};

}  // namespace

Try<std::vector<DescribedTensor>> read_tensor_header(std::string_view json) {
    // The parser would take a NUL for the end, and not look at what follows.
    if (!json.starts_with('{') || json.find('\0') != std::string_view::npos)
        return dp::fail("its header is not JSON");
    HeaderParts parts;
    if (!nlohmann::json::sax_parse(json, &parts)) return dp::fail(std::move(parts.problem));
    return std::move(parts.tensors);
}

}  // namespace dp::trainer
