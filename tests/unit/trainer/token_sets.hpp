// SPDX-License-Identifier: Apache-2.0
//
// Token files as Megatron-LM and NumPy write them, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dp::trainer {

template <typename T>
std::string bytes_of_numbers(const std::vector<T>& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

// NAME.idx; each sequence is a document.
inline std::string megatron_index(const std::vector<std::int32_t>& lengths,
                                  const std::vector<std::int64_t>& pointers, std::uint8_t code) {
    std::vector<std::int64_t> documents;
    for (std::size_t i = 0; i <= lengths.size(); ++i) documents.push_back(static_cast<std::int64_t>(i));
    return std::string("MMIDIDX\0\0", 9) + bytes_of_numbers<std::uint64_t>({1}) + static_cast<char>(code) +
           bytes_of_numbers<std::uint64_t>({lengths.size(), documents.size()}) + bytes_of_numbers(lengths) +
           bytes_of_numbers(pointers) + bytes_of_numbers(documents);
}

template <typename T>
void write_megatron(const std::filesystem::path& directory, const std::string& name,
                    const std::vector<std::vector<std::int64_t>>& documents, std::uint8_t code,
                    T /*stored*/) {
    std::vector<T> numbers;
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> pointers;
    for (const auto& document : documents) {
        lengths.push_back(static_cast<std::int32_t>(document.size()));
        pointers.push_back(static_cast<std::int64_t>(numbers.size() * sizeof(T)));
        for (const std::int64_t token : document) numbers.push_back(static_cast<T>(token));
    }
    std::ofstream(directory / (name + ".bin"), std::ios::binary) << bytes_of_numbers(numbers);
    std::ofstream(directory / (name + ".idx"), std::ios::binary) << megatron_index(lengths, pointers, code);
}

// Up to the numbers, which begin at a multiple of 64 bytes.
inline std::string npy_of(std::string dictionary, int version) {
    const std::size_t fixed = version == 1 ? 10 : 12;
    dictionary.resize((dictionary.size() + fixed + 1 + 63) / 64 * 64 - fixed, ' ');
    dictionary.back() = '\n';
    const auto length = static_cast<std::uint32_t>(dictionary.size());
    std::string header = "\x93NUMPY";
    header += {static_cast<char>(version), '\0'};
    header.append(reinterpret_cast<const char*>(&length), fixed - 8);
    return header + dictionary;
}
inline std::string npy_header(const std::string& type, const std::string& shape, int version) {
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(std::max<std::size_t>(header.size(), 100), ' ');
    return npy_of(header, version);
}

}  // namespace dp::trainer
