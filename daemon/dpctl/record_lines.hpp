// SPDX-License-Identifier: Apache-2.0
//
// What a node tells `dpctl collect` of its records, as lines: srun brings those of all nodes through one pipe. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dp {

// slurmstepd sends its tasks' lines whole, in messages of so many bytes (SLURM_IO_MAX_MSG_LEN, slurmstepd/io.c), and srun writes
// one message after the other.
inline constexpr size_t kMaxRecordLine = 1024;

struct RecordLine {
    enum class Kind {
        file,     // its name and size: the next data are its bytes
        data,     // any bytes
        problem,  // for the user; a file that has begun is not whole
        end,      // the node has nothing more to say
    };
    std::string node;
    Kind kind = Kind::end;
    std::string text;

    bool operator==(const RecordLine&) const = default;
};

// With its newline. Only of data does it take any length, in several lines.
std::string text_of(const RecordLine& line);
// Without its newline; nullopt: the line is somebody else's.
std::optional<RecordLine> read_record_line(std::string_view line);

// Of a line about a file.
struct SentFile {
    std::string name;
    uint64_t size = 0;  // bytes

    bool operator==(const SentFile&) const = default;
};
std::string text_of(const SentFile& file);
std::optional<SentFile> read_sent_file(std::string_view text);

// Whether record_file_name gives this name to a record of the job on that node. Such a name is no path.
bool is_record_of(std::string_view name, uint32_t job, std::string_view node);

}  // namespace dp
