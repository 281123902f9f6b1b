// SPDX-License-Identifier: Apache-2.0
//
// Megatron-LM's and NumPy's files of tokens: what their libraries write, byte by byte, and every way in which a file can be bad.
#include <gmock/gmock.h>

#include <cstring>

#include "scratch.hpp"
#include "token_sets.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/megatron_index.hpp"
#include "trainer/data/npy.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tokens = std::vector<Token>;

// All tokens that a set trains on, with sequences of one token.
Tokens tokens_of(const fs::path& where) {
    const auto data = load_tokens(where, 1, 65536);
    EXPECT_TRUE(data) << data.error().message;
    if (!data) return {};
    Tokens tokens(data->train.features.bytes.size() / sizeof(Token));
    std::memcpy(tokens.data(), data->train.features.bytes.data(), tokens.size() * sizeof(Token));
    return tokens;
}

// ---- Megatron-LM

TEST(Megatron, ReadsEachTypeOfTokensBehindItsNameOrInItsDirectory) {
    const std::vector<std::vector<std::int64_t>> documents{{1, 2, 3}, {}, {250}, {4, 5, 6, 7}};
    const auto check = [&](std::uint8_t code, auto one) {
        const Scratch scratch;
        write_megatron(scratch.path(), "my_text_document", documents, code, one);
        // The last two are for the test.
        const Tokens expected{1, 2, 3, 250, 4, 5};
        for (const char* where : {"", "my_text_document", "my_text_document.bin", "my_text_document.idx"})
            EXPECT_EQ(tokens_of(scratch / where), expected) << where << " of type " << int{code};
    };
    check(1, std::uint8_t{});
    check(4, std::int32_t{});
    check(5, std::int64_t{});
    check(8, std::uint16_t{});
}

TEST(Megatron, FilesOfADirectoryAreReadInTheOrderOfTheirNames) {
    const Scratch scratch;
    write_megatron(scratch.path(), "b_train", {{3, 4}}, 8, std::uint16_t{});
    write_megatron(scratch.path(), "a_train", {{1}, {2}}, 4, std::int32_t{});
    write_megatron(scratch.path(), "a_valid", {{8, 9}}, 8, std::uint16_t{});
    scratch.write("vocab.json", "{}");
    EXPECT_EQ(tokens_of(scratch.path()), (Tokens{1, 2, 3, 4}));
}

TEST(Megatron, WhatIsWrongWithAnIndexIsTold) {
    const std::string good = megatron_index({3, 1}, {0, 6}, 8);
    const auto refusal = [](std::string index, std::int64_t token_bytes = 8) {
        return refusal_of(read_megatron_index(
            [&](std::int64_t at, void* to, std::size_t count) -> Try<void> {
                EXPECT_LE(static_cast<std::size_t>(at) + count, index.size());
                std::memcpy(to, index.data() + at, count);
                return {};
            },
            static_cast<std::int64_t>(index.size()), token_bytes));
    };
    const auto changed = [&](std::size_t at, char byte) {
        std::string index = good;
        index[at] = byte;
        return index;
    };
    EXPECT_THAT(refusal(""), HasSubstr("cut short within the header"));
    EXPECT_THAT(refusal(good.substr(0, 33)), HasSubstr("cut short within the header"));
    EXPECT_THAT(refusal(changed(0, 'X')), HasSubstr("no index of Megatron-LM"));
    EXPECT_THAT(refusal(changed(9, 2)), HasSubstr("version 2"));
    EXPECT_THAT(refusal(changed(17, 0)), HasSubstr("type of numbers is 0"));
    EXPECT_THAT(refusal(changed(17, 9)), HasSubstr("type of numbers is 9"));
    EXPECT_THAT(refusal(changed(17, 7)), HasSubstr("of float32, which is no type of tokens"));
    EXPECT_THAT(refusal(changed(18, 3)), HasSubstr("3 sequences and 3 documents do not take the 48 bytes"));
    EXPECT_THAT(refusal(changed(25, '\x80')), HasSubstr("sequences and 3 documents do not take"));
    EXPECT_THAT(refusal(changed(33, '\x40')), HasSubstr("do not take the 48 bytes"));
    EXPECT_THAT(refusal(good + "x"), HasSubstr("do not take the 49 bytes"));
    EXPECT_THAT(refusal(good.substr(0, 34)), HasSubstr("do not take the 0 bytes"));
    EXPECT_THAT(refusal(megatron_index({}, {}, 8)), HasSubstr("no sequences"));
    EXPECT_THAT(refusal(megatron_index({3, -1}, {0, 6}, 8)), HasSubstr("sequence 1 has -1 tokens"));
    EXPECT_THAT(refusal(megatron_index({3, 1}, {2, 8}, 8)),
                HasSubstr("sequence 0 begins at byte 2, but the one"));
    EXPECT_THAT(refusal(megatron_index({3, 1}, {0, 4}, 8)),
                HasSubstr("sequence 1 begins at byte 4, but the one before it ends at 6"));
    EXPECT_THAT(refusal(megatron_index({3, 1}, {0, 9}, 8)), HasSubstr("sequence 1 begins at byte 9 of 8"));
    EXPECT_THAT(refusal(megatron_index({3, 1}, {0, -6}, 8)), HasSubstr("sequence 1 begins at byte -6"));
    EXPECT_THAT(refusal(good, 7), HasSubstr("end at byte 8, but there are 7"));
    EXPECT_THAT(refusal(good, 10), HasSubstr("end at byte 8, but there are 10"));
}

TEST(Megatron, ARefusalNamesTheFileAndWhatToDo) {
    const Scratch scratch;
    write_megatron(scratch.path(), "text", {{1, 2, 3}}, 8, std::uint16_t{});
    fs::resize_file(scratch / "text.bin", 4);
    const std::string said = refusal_of(load_tokens(scratch.path(), 1, 65536));
    EXPECT_THAT(
        said, HasSubstr((scratch / "text.idx").string() + ": its sequences end at byte 6, but there are 4"));
    EXPECT_THAT(said, HasSubstr("preprocess_data.py"));
}

TEST(Megatron, TokensThatNoModelHasAreRefused) {
    for (const std::int64_t token : {std::int64_t{-1}, std::int64_t{65536}, std::int64_t{1} << 40}) {
        const Scratch scratch;
        write_megatron(scratch.path(), "text", {{1, token, 3, 4}}, 5, std::int64_t{});
        const std::string said = refusal_of(load_tokens(scratch.path(), 1, 65536));
        EXPECT_THAT(said, HasSubstr("text.bin: token " + std::to_string(token)));
        EXPECT_THAT(said, token < 0 ? HasSubstr("is negative") : HasSubstr("at most 65536"));
    }
}

TEST(Megatron, OfVeryManySequencesTheEndsAndSomeBetweenAreChecked) {
    const Scratch scratch;
    constexpr std::int64_t kMany = (std::int64_t{1} << 22) + 10;
    std::vector<std::int32_t> lengths(kMany, 1);
    std::vector<std::int64_t> pointers(kMany);
    for (std::int64_t i = 0; i < kMany; ++i) pointers[static_cast<std::size_t>(i)] = 2 * i;
    const auto read_index = [&] {
        const std::string index = megatron_index(lengths, pointers, 8);
        return read_megatron_index(
            [&](std::int64_t at, void* to, std::size_t count) -> Try<void> {
                std::memcpy(to, index.data() + at, count);
                return {};
            },
            static_cast<std::int64_t>(index.size()), 2 * kMany);
    };
    const auto good = read_index();
    ASSERT_TRUE(good) << good.error().message;
    EXPECT_EQ(good->tokens, kMany);
    EXPECT_EQ(good->sequences, kMany);
    // In another order, as a set that was shuffled by its index alone.
    std::reverse(pointers.begin(), pointers.end());
    EXPECT_THAT(refusal_of(read_index()), HasSubstr("sequence 0 begins at byte"));
}

// ---- NumPy

TEST(Npy, ReadsEachVersionAndTypeOfTokens) {
    struct Case {
        std::string type;
        std::string number;  // as it is stored
    };
    for (const auto& [type, number] :
         {Case{"<u2", {"\x01\x02", 2}}, Case{"<i4", {"\x01\x02\0\0", 4}}, Case{"<u4", {"\x01\x02\0\0", 4}},
          Case{"<i8", {"\x01\x02\0\0\0\0\0\0", 8}}}) {
        for (const int version : {1, 2, 3}) {
            const Scratch scratch;
            scratch.write("tokens.npy", npy_header(type, "(8,)", version) + number + number + number +
                                            number + number + number + number + number);
            EXPECT_EQ(tokens_of(scratch.path()), (Tokens(6, 0x201))) << type << " in version " << version;
        }
    }
    const Scratch scratch;
    scratch.write("train.npy", npy_header("|u1", "(2, 2)", 1) + "\1\2\3\4");
    scratch.write("val.npy", npy_header("<u2", "(1,2L)", 1) + std::string("\1\0\2\0", 4));
    EXPECT_EQ(tokens_of(scratch.path()), (Tokens{1, 2, 3, 4}));
}

TEST(Npy, WhatIsWrongWithAHeaderIsTold) {
    const std::string good = npy_header("<u2", "(3,)", 1);
    ASSERT_TRUE(read_npy_header(good));
    EXPECT_EQ(read_npy_header(good)->count, 3);
    EXPECT_EQ(read_npy_header(good)->bytes, 128);
    const auto with = [&](const std::string& dictionary) {
        return refusal_of(read_npy_header(npy_of(dictionary, 1)));
    };
    EXPECT_THAT(refusal_of(read_npy_header("")), HasSubstr("no array of numpy's"));
    EXPECT_THAT(refusal_of(read_npy_header("PK\3\4")), HasSubstr("no array of numpy's"));
    for (const std::size_t cut : {std::size_t{6}, std::size_t{7}, std::size_t{9}, std::size_t{127}})
        EXPECT_THAT(refusal_of(read_npy_header(good.substr(0, cut))),
                    HasSubstr("cut short within the header"))
            << cut;
    EXPECT_THAT(refusal_of(read_npy_header(npy_of("{}", 4))), HasSubstr("version 4.0"));
    std::string long_one = npy_of("{}", 2);
    long_one[11] = '\x7f';
    EXPECT_THAT(refusal_of(read_npy_header(long_one)), HasSubstr("a header of 21"));
    for (const char* type : {">u2", "<f4", "<i2", "|O"})
        EXPECT_THAT(refusal_of(read_npy_header(npy_header(type, "(3,)", 1))),
                    HasSubstr(std::string("its numbers are '") + type));
    EXPECT_THAT(refusal_of(read_npy_header(npy_header("<u2", "()", 1))), HasSubstr("0 dimensions"));
    EXPECT_THAT(refusal_of(read_npy_header(npy_header("<u2", "(1, 2, 3)", 1))), HasSubstr("3 dimensions"));
    EXPECT_THAT(refusal_of(read_npy_header(npy_header("<u2", "(4294967296, 4294967296)", 1))),
                HasSubstr("too large"));
    EXPECT_THAT(with("{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3), }"),
                HasSubstr("numpy.ascontiguousarray()"));
    EXPECT_TRUE(read_npy_header(npy_of("{'descr': '<u2', 'fortran_order': True, 'shape': (2,), }", 1)));
    EXPECT_THAT(with("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (2,), }"),
                HasSubstr("records"));
    for (const char* bad :
         {"", "{", "{'descr': '<u2'}", "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), } x",
          "{'descr': '<u2', 'fortran_order': False, 'shape': (-2,)}",
          "{'descr': '<u2', 'fortran_order': 0, 'shape': (2,)}",
          "{'descr': '<u2, 'fortran_order': False, 'shape': (2,)}",
          "{'descr': '<u2', 'fortran_order': False, 'shape': (2",
          "{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,)}",
          "{'descr': '<u2' 'fortran_order': False 'shape': (2,)}", "{'other': '<u2'}"})
        EXPECT_THAT(with(bad), HasSubstr("not what numpy writes")) << bad;
}

TEST(Npy, AFileThatIsNotAsLongAsItsShapeIsRefused) {
    const Scratch scratch;
    for (const std::size_t bytes : {4, 5, 8}) {
        scratch.write("tokens.npy", npy_header("<u2", "(3,)", 1) + std::string(bytes, '\1'));
        const std::string said = refusal_of(load_tokens(scratch.path(), 1, 65536));
        EXPECT_THAT(said, HasSubstr("tokens.npy: its shape has 3 numbers, but " + std::to_string(bytes) +
                                    " bytes follow"));
        EXPECT_THAT(said, HasSubstr("numpy.save()"));
    }
}

// ---- which there are

TEST(TokenFiles, OfTwoKindsOfThemNoneIsGuessed) {
    const Scratch scratch;
    scratch.write("tokens.npy", npy_header("<u2", "(3,)", 1) + std::string(6, '\1'));
    write_megatron(scratch.path(), "text", {{1, 2, 3}}, 8, std::uint16_t{});
    EXPECT_THAT(
        refusal_of(load_tokens(scratch.path(), 1, 65536)),
        HasSubstr("has Megatron-LM's *.bin with *.idx and NumPy's *.npy; give a directory with one kind"));
    EXPECT_THAT(refusal_of(load_tokens(scratch / "nothing", 1, 65536)), HasSubstr("no tokens there"));
}

TEST(TokenFiles, AreSplitAsIsAsked) {
    const Scratch scratch;
    std::string numbers;
    for (int i = 0; i < 100; ++i) numbers += {static_cast<char>(i), '\0'};
    scratch.write("tokens.npy", npy_header("<u2", "(100,)", 1) + numbers);
    const auto data = load_tokens(scratch.path(), 1, 100, TrainTestRest{70, 20, 10});
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->train.count, 69);
    EXPECT_EQ(data->test.count, 19);
    EXPECT_EQ(data->test.features.bytes.front(), 70);
    EXPECT_THAT(refusal_of(load_tokens(scratch.path(), 1, 100, TrainTestRest{999, 1, 0})),
                HasSubstr("1 tokens to test with"));
    fs::rename(scratch / "tokens.npy", scratch / "train.npy");
    scratch.write("val.npy", npy_header("<u2", "(100,)", 1) + numbers);
    EXPECT_THAT(refusal_of(load_tokens(scratch.path(), 1, 100, TrainTestRest{70, 20, 10})),
                HasSubstr("val.npy is there to test with; leave out --data-split"));
}

}  // namespace
}  // namespace dp::trainer
