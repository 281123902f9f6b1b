// SPDX-License-Identifier: Apache-2.0
#include "trainer/formats/safetensors.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
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
Try<FileTensor> tensor_of(const DescribedTensor& described, std::string_view data) {
    const auto wrong = [&](const std::string& what) {
        return dp::fail(fmt::format("{} {}", printable(described.name, 60), what));
    };
    const auto dtype = std::ranges::find(kDtypes, described.dtype, &Dtype::name);
    if (dtype == kDtypes.end())
        return wrong(fmt::format("is of the unknown type {}", printable(described.dtype, 20)));
    const auto bytes = bytes_of(described.shape, dtype->bytes);
    if (!bytes) return wrong("has a shape that is too large");
    if (described.begin > described.end || described.end > data.size())
        return wrong(fmt::format("has the bytes {} to {}, and there are {}: the file is cut short or damaged",
                                 described.begin, described.end, data.size()));
    if (described.end - described.begin != *bytes)
        return wrong(
            fmt::format("has {} bytes, and its shape asks for {}", described.end - described.begin, *bytes));
    return FileTensor{described.dtype, Shape(described.shape.begin(), described.shape.end()),
                      std::as_bytes(std::span(data.substr(described.begin, *bytes)))};
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

}  // namespace

Try<FileTensors> read_tensors(std::string_view file) {
    const auto not_one = [](const std::string& why) {
        return dp::fail(fmt::format("is no file of the safetensors format: {}", why));
    };
    if (file.size() < kLength) return not_one(fmt::format("it has {} bytes", file.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), kLength);
    if (length > kLargestTensorHeader)
        return not_one(
            fmt::format("its header would have {} bytes, and the most is {}", length, kLargestTensorHeader));
    if (length > file.size() - kLength)
        return not_one(
            fmt::format("its header would have {} bytes, and it has {} in all", length, file.size()));
    auto described = read_tensor_header(file.substr(kLength, length));
    if (!described) return not_one(described.error().message);
    const std::string_view data = file.substr(kLength + length);
    FileTensors tensors;
    for (const auto& one : *described) {
        auto tensor = DP_TRY(tensor_of(one, data));
        tensors.emplace(one.name, std::move(tensor));
    }
    DP_TRY(check_cover(*described, data.size()));
    return tensors;
}

Try<void> convert_numbers(const FileTensor& tensor, std::span<float> to) {
    if (tensor.dtype == "F32")
        std::memcpy(to.data(), tensor.data.data(), to.size_bytes());
    else if (tensor.dtype == "F16")
        widen<Float16>(tensor.data, to);
    else if (tensor.dtype == "BF16")
        widen<Bfloat16>(tensor.data, to);
    else
        return dp::fail(fmt::format("is of type {}, and the trainer reads F32, F16 and BF16", tensor.dtype));
    return {};
}

Result<TensorFile> TensorFile::open(const fs::path& file) {
    const auto refuse = [&](const std::string& why) {
        return fail(Fault::usage, "{}: {}", file.string(), why);
    };
    const auto in = open_regular(file);
    struct stat facts {};
    if (!in || ::fstat(in->get(), &facts) != 0)
        return refuse("cannot read: " + (in ? errno_text(errno) : in.error().message));
    const auto bytes = static_cast<std::size_t>(facts.st_size);
    TensorFile opened;
    if (bytes > 0) {  // no byte cannot be mapped
        void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, in->get(), 0);
        if (at == MAP_FAILED) return refuse("cannot map: " + errno_text(errno));
        opened.mapping_ = {static_cast<const char*>(at), [at, bytes](const char*) { ::munmap(at, bytes); }};
    }
    auto tensors = read_tensors({opened.mapping_.get(), bytes});
    if (!tensors) return refuse(tensors.error().message);
    opened.tensors_ = *std::move(tensors);
    return opened;
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
