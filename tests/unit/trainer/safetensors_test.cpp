// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: what is read and written, and the line for each way in which a file is no such file.
#include "trainer/formats/safetensors.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "scratch.hpp"
#include "small_files.hpp"
#include "trainer/base/bfloat16.hpp"
#include "trainer/base/float16.hpp"
#include "trainer/formats/tensor_files.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string file_of(const std::string& header, std::size_t bytes) {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
           std::string(bytes, 'x');
}

Try<FileTensors> tensors_in(std::string_view file) {
    return read_tensors(file, file.size());
}

std::vector<float> numbers_of(const char* dtype, const auto& stored) {
    std::vector<float> numbers(stored.size());
    const auto done = convert_numbers(dtype, std::as_bytes(std::span(stored)), numbers);
    EXPECT_TRUE(done) << done.error().message;
    return numbers;
}

std::vector<float> numbers_of(const FileTensor& tensor) {
    std::vector<float> numbers(static_cast<std::size_t>(tensor.elements()));
    const auto done = read_numbers(tensor, numbers);
    EXPECT_TRUE(done) << done.error().message;
    return numbers;
}

std::string of_many_tensors(int count) {
    std::string header = "{";
    for (int i = 0; i < count; ++i)
        header +=
            fmt::format(R"({}"{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i > 0 ? "," : "", i);
    return header + "}";
}

TEST(Safetensors, OfAFileEachTensorIsFound) {
    const std::string file = file_of(
        R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},"__metadata__":{"format":"pt","b":"c"},
            "ä":{"data_offsets":[0,8],"shape":[],"dtype":"F64"},"none":{"dtype":"U8","shape":[3,0],"data_offsets":[8,8]}}  )",
        20);
    const auto tensors = tensors_in(file);
    ASSERT_TRUE(tensors) << tensors.error().message;
    ASSERT_EQ(tensors->size(), 3u);
    EXPECT_EQ(tensors->at("b").dtype, "BF16");
    EXPECT_EQ(tensors->at("b").shape, (Shape{2, 3}));
    EXPECT_EQ(tensors->at("b").begin, file.size() - 12);
    EXPECT_EQ(tensors->at("b").bytes, 12u);
    EXPECT_EQ(tensors->at("ä").shape, Shape{});
    EXPECT_EQ(tensors->at("none").bytes, 0u);
    EXPECT_TRUE(tensors_in(file_of("{}", 0))->empty());
}

// Each differs from a file in one thing.
TEST(Safetensors, WhatIsNoFileOfThemIsRefusedInOneLine) {
    const auto one = [](const std::string& rest, std::size_t bytes = 8) {
        return file_of(R"({"a":{)" + rest + "}}", bytes);
    };
    const auto offsets = [&](const std::string& both, const std::string& shape = "[2]",
                             std::size_t bytes = 8) {
        return one(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + both, bytes);
    };
    const auto two = [](const std::string& first, const std::string& second, std::size_t bytes) {
        return file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + first +
                           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}",
                       bytes);
    };
    std::string huge = file_of("{}", 0), beyond = huge, over = huge;
    const std::uint64_t lengths[] = {std::numeric_limits<std::uint64_t>::max(), 3, kLargestTensorHeader + 1};
    std::memcpy(huge.data(), &lengths[0], 8);
    std::memcpy(beyond.data(), &lengths[1], 8);
    std::memcpy(over.data(), &lengths[2], 8);
    ASSERT_TRUE(tensors_in(offsets("[0,8]")));
    ASSERT_TRUE(tensors_in(two("[0,8]", "[8,12]", 12)));
    std::string many_ones;
    for (int i = 0; i < 64; ++i) many_ones += ",1";
    const std::string not_one = "is no file of the safetensors format: ";
    const std::pair<std::string, std::string> cases[] = {
        {"", not_one + "it has 0 bytes"},
        {"1234567", not_one + "it has 7 bytes"},
        {huge, not_one + "its header would have 18446744073709551615 bytes, and the most is 100000000"},
        {over, not_one + "its header would have 100000001 bytes, and the most is 100000000"},
        {beyond, not_one + "its header would have 3 bytes, and it has 10 in all"},
        {file_of("", 0), not_one + "its header is not JSON"},
        {file_of(" {}", 0), not_one + "its header is not JSON"},
        {file_of(std::string("{}\0{}", 5), 0), not_one + "its header is not JSON"},
        {file_of("{} {}", 0), not_one + "its header is not JSON: byte "},
        {file_of("{\"a\xff\":1}", 0), not_one + "its header is not JSON: byte "},
        {file_of(R"({"a":)", 0), not_one + "its header is not JSON: byte "},
        {file_of(std::string(100'000, '{'), 0), not_one + "its header is not JSON: byte 2"},
        {file_of(R"({"a":)" + std::string(100'000, '['), 0), not_one + "its header has a wrong value of a"},
        {file_of("[]", 0), not_one + "its header is not JSON"},
        {file_of(R"({"a":null})", 0), "a wrong value of a"},
        {file_of(R"({"a":1})", 0), "a wrong value of a"},
        {file_of(R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "a tensor without a name"},
        {file_of(R"({"__metadata__":{"a":1}})", 0), "a wrong value of a"},
        {file_of(R"({"__metadata__":{"a":"1","a":"1"}})", 0), "its header has a twice"},
        {file_of(of_many_tensors(200'001), 0), "its header has more than 200000 tensors"},
        {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "its header has __metadata__ twice"},
        {file_of(
             R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
             8),
         "its header has a twice"},
        {one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
         "its header has dtype twice for a"},
        {one(R"("dtype":"F32","shape":[2])"), "its header lacks data_offsets for a"},
        {one(R"("dtype":"F32","data_offsets":[0,8])"), "its header lacks shape for a"},
        {one(R"("shape":[2],"data_offsets":[0,8])"), "its header lacks dtype for a"},
        {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)"),
         "its header has the unknown more for a"},
        {one(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), "a wrong value of dtype for a"},
        {one(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"), "a wrong value of dtype for a"},
        {one(R"("dtype":{},"shape":[2],"data_offsets":[0,8])"), "a wrong value of dtype for a"},
        {one(R"("dtype":"F3","shape":[2],"data_offsets":[0,8])"), "a is of the unknown type F3"},
        {offsets("[0,8]", "2"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[-2]"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[2.0]"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[[2]]"), "a wrong value of shape for a"},
        {offsets("[0,8]", R"(["2"])"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[true]"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[18446744073709551616]"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[2" + many_ones + "]"), "a wrong value of shape for a"},
        {offsets("[0,8]", "[18446744073709551615]"), "a has a shape that is too large"},
        {offsets("[0,0]", "[9223372036854775807,9223372036854775807,0]", 0),
         "a has a shape that is too large"},
        {offsets("[0,8]", "[4294967296,4294967298]"), "a has a shape that is too large"},
        {offsets("[0,8]", "[3]"), "a has 8 bytes, and its shape asks for 12"},
        {offsets("[0,8]", "[0]"), "a has 8 bytes, and its shape asks for 0"},
        {offsets("[0]"), "a wrong value of data_offsets for a"},
        {offsets("[0,4,8]"), "a wrong value of data_offsets for a"},
        {offsets("[-8,0]"), "a wrong value of data_offsets for a"},
        {offsets("[8,0]"), "a has the bytes 8 to 0, and there are 8: the file is cut short or damaged"},
        {offsets("[0,8]", "[2]", 7),
         "a has the bytes 0 to 8, and there are 7: the file is cut short or damaged"},
        {offsets("[18446744073709551608,18446744073709551615]"), "a has the bytes 18446744073709551608 to "},
        {offsets("[1,9]", "[2]", 9), "a begins at byte 1 of the tensors, and the one before it ends at 0"},
        {offsets("[0,8]", "[2]", 9), "its tensors end at byte 8, and there are 9"},
        {two("[0,8]", "[4,8]", 8), "b begins at byte 4 of the tensors, and the one before it ends at 8"},
        {two("[0,8]", "[9,13]", 13), "b begins at byte 9 of the tensors, and the one before it ends at 8"},
        {two("[4,12]", "[0,4]", 16), "its tensors end at byte 12, and there are 16"},
        {file_of("{}", 1), "its tensors end at byte 0, and there are 1"},
        {file_of("{\"a\\n\\u001b\":{\"dtype\":\"F32\"}}", 1), "its header lacks shape for a??"},
    };
    for (const auto& [file, says] : cases) {
        const std::string said = refusal_of(tensors_in(file));
        EXPECT_THAT(said, HasSubstr(says)) << file.substr(0, 200);
        EXPECT_EQ(said.find('\n'), std::string::npos) << said;
        EXPECT_LT(said.size(), 200u) << said;
    }
}

TEST(Safetensors, NumbersOfEachTypeAreExact) {
    const float infinite = std::numeric_limits<float>::infinity();
    const std::vector<float> wide{1.5f, -0.0f, 1e-40f, infinite};
    EXPECT_EQ(numbers_of("F32", wide), wide);
    const std::vector<std::uint16_t> halves{0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001,
                                            0x83FF, 0x8000, 0x7C00, 0xFC00, 0x3555};
    EXPECT_EQ(numbers_of("F16", halves),
              (std::vector<float>{1, -2, 65504, 0x1p-14f, 0x1p-24f, -1023 * 0x1p-24f, 0, infinite, -infinite,
                                  0.333251953125f}));
    EXPECT_TRUE(std::signbit(to_float(Float16{0x8000})));
    EXPECT_TRUE(std::isnan(to_float(Float16{0x7E00})));
    const std::vector<std::uint16_t> brains{0x3F80, 0xC000, 0x0001, 0x7F80};
    EXPECT_EQ(numbers_of("BF16", brains), (std::vector<float>{1, -2, 0x1p-133f, infinite}));
    std::vector<float> room(1);
    const std::array<double, 1> doubles{1};
    EXPECT_EQ(refusal_of(convert_numbers("F64", std::as_bytes(std::span(doubles)), room)),
              "is of type F64, and the trainer reads F32, F16 and BF16");
}

// Odd lengths: numbers that lie anywhere are read.
TEST(Safetensors, WhatWasWrittenIsReadAgain) {
    const Scratch scratch;
    const auto file = scratch / "model.safetensors";
    std::vector<NewTensor> tensors{{"a", {2, 3}}, {"b", {}}, {"c", {0, 2}}, {"quoted \" ä", {1}}};
    const auto values = [&](std::size_t i) -> Result<std::vector<float>> {
        std::vector<float> numbers(static_cast<std::size_t>(elements_of(tensors[i].shape)));
        for (std::size_t n = 0; n < numbers.size(); ++n) numbers[n] = static_cast<float>(10 * i + n) + 0.1f;
        return numbers;
    };
    const auto written = write_tensors(file, tensors, values, Fault::usage);
    ASSERT_TRUE(written) << written.error().message;
    const std::string bytes = contents_of(file);
    EXPECT_EQ(tensor_header(tensors).size() % 8, 0u);
    EXPECT_THAT(
        bytes.substr(8),
        StartsWith(
            R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"));
    const auto opened = open_tensor_file(file);
    ASSERT_TRUE(opened) << opened.error().message;
    ASSERT_EQ(opened->size(), 4u);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto& tensor = opened->at(tensors[i].name);
        EXPECT_EQ(tensor.shape, tensors[i].shape);
        EXPECT_EQ(numbers_of(tensor), *values(i));
    }
    // Cut short anywhere, it is refused.
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(tensors_in(bytes.substr(0, length))) << length;
}

TEST(Safetensors, LongTensorsAreReadPieceByPiece) {
    const Scratch scratch;
    std::vector<std::uint16_t> halves((std::size_t{1} << 19) + 3);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i % 0x7C00);
    const std::string bytes(reinterpret_cast<const char*>(halves.data()), 2 * halves.size());
    std::string file = file_of(fmt::format(R"({{"a":{{"dtype":"F16","shape":[{}],"data_offsets":[0,{}]}}}})",
                                           halves.size(), bytes.size()),
                               0);
    const auto opened = open_tensor_file(scratch.write("f", file + bytes));
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(numbers_of(opened->at("a")), numbers_of("F16", halves));
}

// As somebody who writes it anew does.
TEST(Safetensors, AFileThatIsCutWhileItIsReadIsAnError) {
    const Scratch scratch;
    const auto path = scratch.write("f", tensor_header({{"a", {4096}}}) + std::string(4 * 4096, '\0'));
    const auto opened = open_tensor_file(path);
    ASSERT_TRUE(opened) << opened.error().message;
    std::filesystem::resize_file(path, 4096);
    std::vector<float> numbers(4096);
    EXPECT_EQ(refusal_of(read_numbers(opened->at("a"), numbers)), "cannot be read: cut short");
}

TEST(Safetensors, AFullDiskIsSaid) {
    const Scratch scratch;
    const SmallFiles full(1000);
    const auto written = write_tensors(
        scratch / "f", {{"a", {1000}}},
        [](std::size_t) { return Result<std::vector<float>>(std::vector<float>(1000)); }, Fault::usage);
    EXPECT_THAT(refusal_of(written), HasSubstr("cannot write: File too large"));
}

std::string some_file(const std::string& name) {
    return tensor_header({{name, {1}}}) + std::string(4, '\0');
}

TEST(TensorFiles, AreAFileOrADirectoryOrWhatAnIndexNames) {
    const Scratch scratch;
    const auto names = [&](const std::string& where) {
        const auto files = open_tensor_files(scratch / where);
        EXPECT_TRUE(files) << files.error().message;
        std::vector<std::string> found;
        if (files)
            for (const auto& [name, tensor] : files->tensors)
                found.push_back(name + (files->config ? *files->config : ""));
        return found;
    };
    scratch.write("one/model.safetensors", some_file("a"));
    EXPECT_THAT(names("one"), ElementsAre("a"));
    EXPECT_THAT(names("one/model.safetensors"), ElementsAre("a"));
    scratch.write("one/config.json", "{}");
    EXPECT_THAT(names("one"), ElementsAre("a{}"));
    EXPECT_THAT(names("one/model.safetensors"), ElementsAre("a{}"));
    scratch.write("more/x1.safetensors", some_file("a"));
    scratch.write("more/x2.safetensors", some_file("b"));
    scratch.write("more/model.safetensors.index.json",
                  R"({"metadata":{},"weight_map":{"a":"x1.safetensors","b":"x2.safetensors"}})");
    EXPECT_THAT(names("more"), ElementsAre("a", "b"));
    for (const auto& [name, what] :
         {std::pair("x1.safetensors", "one of"), std::pair("model.safetensors.index.json", "the index of")})
        EXPECT_THAT(
            refusal_of(open_tensor_files(scratch / "more" / name)),
            HasSubstr(fmt::format("{}: is {} a model of several files; give their directory", name, what)));
    scratch.write("alone/x1.safetensors", some_file("a"));
    EXPECT_THAT(names("alone/x1.safetensors"), ElementsAre("a"));
    std::filesystem::create_symlink("gone", scratch / "one" / "linked");
    std::filesystem::rename(scratch / "one" / "linked", scratch / "one" / "config.json");
    EXPECT_THAT(refusal_of(open_tensor_files(scratch / "one")),
                HasSubstr("config.json: cannot read: No such file or directory"));
}

TEST(TensorFiles, AnIndexIsBelievedInNothing) {
    const Scratch scratch;
    scratch.write("d/x1.safetensors", some_file("a"));
    scratch.write("d/x2.safetensors", some_file("a"));
    scratch.write("outside.safetensors", some_file("a"));
    const std::pair<std::string, std::string> cases[] = {
        {"", "index.json: has no weight_map"},
        {"[]", "index.json: has no weight_map"},
        {R"({"weight_map":["a"]})", "index.json: has no weight_map"},
        {R"({"weight_map":{"a":1}})", "index.json: names no file for a"},
        {R"({"weight_map":{"a":"../outside.safetensors"}})",
         "index.json: names ../outside.safetensors, which is no name of a file beside it"},
        {R"({"weight_map":{"a":"/etc/passwd"}})", "names /etc/passwd, which is no name"},
        {R"({"weight_map":{"a":".."}})", "names .., which is no name"},
        {R"({"weight_map":{"a":""}})", "names , which is no name"},
        {R"({"weight_map":{"a":"x1.safetensors\u0000"}})", "which is no name"},
        {R"({"weight_map":{"a":"x3.safetensors"}})",
         "x3.safetensors: cannot read: No such file or directory"},
        {R"({"weight_map":{"b":"x1.safetensors"}})",
         "x1.safetensors: lacks b, which model.safetensors.index.json says is there"},
        {R"({"weight_map":{"a":"x1.safetensors","b":"x2.safetensors"}})",
         "x2.safetensors: has a, which another file of the model has, too"},
    };
    for (const auto& [index, says] : cases) {
        scratch.write("d/model.safetensors.index.json", index);
        EXPECT_THAT(refusal_of(open_tensor_files(scratch / "d")), HasSubstr(says));
    }
    EXPECT_THAT(refusal_of(open_tensor_files(scratch / "gone")),
                HasSubstr("gone: cannot read: No such file or directory"));
    std::filesystem::resize_file(scratch / "d/model.safetensors.index.json", 16'777'217);
    EXPECT_THAT(refusal_of(open_tensor_files(scratch / "d")),
                HasSubstr("index.json: has 16777217 bytes, and the most is 16777216"));
    std::filesystem::create_directory(scratch / "empty");
    EXPECT_THAT(refusal_of(open_tensor_files(scratch / "empty")),
                HasSubstr("empty: holds neither model.safetensors nor model.safetensors.index.json"));
    scratch.write("empty/model.safetensors", "");
    EXPECT_THAT(refusal_of(open_tensor_files(scratch / "empty")),
                HasSubstr("model.safetensors: is no file of the safetensors format: it has 0 bytes"));
    std::filesystem::create_directory(scratch / "empty" / "a.safetensors");
    EXPECT_THAT(refusal_of(open_tensor_file(scratch / "empty/a.safetensors")),
                HasSubstr("a.safetensors: cannot read: Is a directory"));
}

}  // namespace
}  // namespace dp::trainer
