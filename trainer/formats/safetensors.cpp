// SPDX-License-Identifier: Apache-2.0
#include "trainer/formats/safetensors.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.hpp"
#include "trainer/base/bfloat16.hpp"
#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/float16.hpp"
#include "trainer/formats/safetensors_header.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

constexpr std::size_t kLength = 8;  // bytes that hold the header's length

struct Dtype {
    std::string_view name;
    std::uint64_t bytes;
};
constexpr std::array<Dtype, 15> kDtypes{{{"BOOL", 1},
                                         {"U8", 1},
                                         {"I8", 1},
                                         {"F8_E5M2", 1},
                                         {"F8_E4M3", 1},
                                         {"I16", 2},
                                         {"U16", 2},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"I32", 4},
                                         {"U32", 4},
                                         {"F32", 4},
                                         {"I64", 8},
                                         {"U64", 8},
                                         {"F64", 8}}};

// Bytes of a tensor; nothing where a shape has more numbers than can be counted, whether or not a side is 0.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape, std::uint64_t bytes) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    for (const std::uint64_t size : shape) {
        if (size > kMost / bytes) return std::nullopt;
        bytes *= std::max<std::uint64_t>(size, 1);
    }
    return std::ranges::find(shape, 0u) == shape.end() ? bytes : 0;
}

// Checked as far as it can be without the others.
// `begin`, `size`: where all tensors are in the file, and how many bytes they have.
Try<FileTensor> tensor_of(const DescribedTensor& described, std::uint64_t begin, std::uint64_t size) {
    const auto wrong = [&](const std::string& what) {
        return dp::fail(fmt::format("{} {}", printable(described.name, 60), what));
    };
    const auto dtype = std::ranges::find(kDtypes, described.dtype, &Dtype::name);
    if (dtype == kDtypes.end())
        return wrong(fmt::format("is of the unknown type {}", printable(described.dtype, 20)));
    const auto bytes = bytes_of(described.shape, dtype->bytes);
    if (!bytes) return wrong("has a shape that is too large");
    if (described.begin > described.end || described.end > size)
        return wrong(fmt::format("has the bytes {} to {}, and there are {}: the file is cut short or damaged",
                                 described.begin, described.end, size));
    if (described.end - described.begin != *bytes)
        return wrong(
            fmt::format("has {} bytes, and its shape asks for {}", described.end - described.begin, *bytes));
    return FileTensor{described.dtype, Shape(described.shape.begin(), described.shape.end()),
                      begin + described.begin, *bytes};
}

// Each byte belongs to one tensor.
Try<void> check_cover(std::vector<DescribedTensor>& tensors, std::uint64_t size) {
    std::ranges::sort(tensors, {}, [](const DescribedTensor& one) { return std::pair(one.begin, one.end); });
    std::uint64_t end = 0;
    for (const auto& one : tensors) {
        if (one.begin != end)
            return dp::fail(
                fmt::format("{} begins at byte {} of the tensors, and the one before it ends at {}",
                            printable(one.name, 60), one.begin, end));
        end = one.end;
    }
    if (end == size) return {};
    return dp::fail(fmt::format("its tensors end at byte {}, and there are {}", end, size));
}

template <typename Stored>
void widen(std::span<const std::byte> from, std::span<float> to) {
    Stored number{};
    for (std::size_t i = 0; i < to.size(); ++i) {
        std::memcpy(&number, from.data() + i * sizeof number, sizeof number);
        to[i] = to_float(number);
    }
}

std::uint64_t header_length(std::string_view head) {
    std::uint64_t length = 0;
    std::memcpy(&length, head.data(), kLength);
    return length;
}

}  // namespace

Try<FileTensors> read_tensors(std::string_view head, std::uint64_t size) {
    const auto not_one = [](const std::string& why) {
        return dp::fail(fmt::format("is no file of the safetensors format: {}", why));
    };
    if (size < kLength) return not_one(fmt::format("it has {} bytes", size));
    const std::uint64_t length = header_length(head);
    if (length > kLargestTensorHeader)
        return not_one(
            fmt::format("its header would have {} bytes, and the most is {}", length, kLargestTensorHeader));
    if (length > size - kLength)
        return not_one(fmt::format("its header would have {} bytes, and it has {} in all", length, size));
    auto described = read_tensor_header(head.substr(kLength, length));
    if (!described) return not_one(described.error().message);
    const std::uint64_t begin = kLength + length;
    FileTensors tensors;
    for (const auto& one : *described) {
        auto tensor = DP_TRY(tensor_of(one, begin, size - begin));
        tensors.emplace(one.name, std::move(tensor));
    }
    DP_TRY(check_cover(*described, size - begin));
    return tensors;
}

Try<void> convert_numbers(std::string_view dtype, std::span<const std::byte> stored, std::span<float> to) {
    if (dtype == "F32")
        std::memcpy(to.data(), stored.data(), to.size_bytes());
    else if (dtype == "F16")
        widen<Float16>(stored, to);
    else if (dtype == "BF16")
        widen<Bfloat16>(stored, to);
    else
        return dp::fail(fmt::format("is of type {}, and the trainer reads F32, F16 and BF16", dtype));
    return {};
}

Result<FileTensors> open_tensor_file(const fs::path& file) {
    const auto refuse = [&](const std::string& why) {
        return fail(Fault::usage, "{}: {}", file.string(), why);
    };
    auto in = open_regular(file);
    struct stat facts {};
    if (!in || ::fstat(in->get(), &facts) != 0)
        return refuse("cannot read: " + (in ? errno_text(errno) : in.error().message));
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    std::string head(std::min<std::uint64_t>(size, kLength), '\0');
    auto read = read_at(*in, 0, head.data(), head.size());
    if (read && head.size() == kLength) {
        // One that cannot be so long is refused unread.
        const std::uint64_t length = header_length(head);
        if (length <= kLargestTensorHeader && length <= size - kLength) head.resize(kLength + length);
        read = read_at(*in, kLength, head.data() + kLength, head.size() - kLength);
    }
    if (!read) return refuse("cannot read: " + read.error().message);
    auto tensors = read_tensors(head, size);
    if (!tensors) return refuse(tensors.error().message);
    const auto shared = std::make_shared<const Fd>(*std::move(in));
    for (auto& [name, tensor] : *tensors) tensor.file = shared;
    return *std::move(tensors);
}

Try<void> read_bytes(const FileTensor& tensor, std::uint64_t from, std::span<std::byte> to) {
    return read_at(*tensor.file, static_cast<std::int64_t>(tensor.begin + from), to.data(), to.size())
        .map_error([](const Failure& why) { return Failure{"cannot be read: " + why.message}; });
}

Try<void> read_numbers(const FileTensor& tensor, std::span<float> to) {
    constexpr std::size_t kPiece = std::size_t{1} << 18;  // numbers
    const std::size_t each = to.empty() ? 0 : tensor.bytes / to.size();
    std::vector<std::byte> stored(std::min(to.size(), kPiece) * each);
    for (std::size_t at = 0; at < to.size(); at += kPiece) {
        const auto some = to.subspan(at, std::min(kPiece, to.size() - at));
        const auto bytes = std::span(stored).first(some.size() * each);
        DP_TRY(read_bytes(tensor, at * each, bytes));
        DP_TRY(convert_numbers(tensor.dtype, bytes, some));
    }
    return {};
}

std::string tensor_header(const std::vector<NewTensor>& tensors) {
    nlohmann::ordered_json json{{"__metadata__", {{"format", "pt"}}}};
    std::int64_t end = 0;
    for (const auto& one : tensors) {
        const std::int64_t begin = end;
        end += elements_of(one.shape) * static_cast<std::int64_t>(sizeof(float));
        json[one.name] = {{"dtype", "F32"}, {"shape", one.shape}, {"data_offsets", {begin, end}}};
    }
    std::string text = json.dump();
    text.resize((text.size() + kLength - 1) / kLength * kLength, ' ');  // so that numbers are aligned
    const std::uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), kLength) + text;
}

Result<void> write_tensors(const fs::path& file, const std::vector<NewTensor>& tensors,
                           const std::function<Result<std::vector<float>>(std::size_t)>& numbers,
                           Fault fault) {
    auto out = DP_TRY(DurableFile::create(file, fault));
    const std::string header = tensor_header(tensors);
    DP_TRY(out.write(header.data(), header.size()));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto values = DP_TRY(numbers(i));
        DP_TRY(out.write(values.data(), values.size() * sizeof(float)));
    }
    return out.finish();
}

}  // namespace dp::trainer
