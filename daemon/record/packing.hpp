// SPDX-License-Identifier: Apache-2.0
//
// A record's entries as gzip packs them (RFC 1952), into two thirds of their size. The stream goes on from write to write, since it
// packs by what it has seen; each write ends so that all that is in the file then can be unpacked. Pure.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dp {

class RecordPacker {
 public:
    // It takes 144 KiB; throws std::bad_alloc.
    RecordPacker();
    // What the file grows by. A reader of the file up to here can unpack all of `bytes`.
    std::string pack(std::string_view bytes);
    // The end of the stream.
    std::string finish();

 private:
    struct End {
        void operator()(z_stream* stream) const;
    };
    std::unique_ptr<z_stream, End> stream_;

    std::string deflated(std::string_view bytes, int flush);
};

class RecordUnpacker {
 public:
    RecordUnpacker();
    // Takes from the front of `packed` what it uses, and returns how much it has written to `out`: less than its size if it needs
    // more.
    size_t unpack(std::string_view& packed, std::span<char> out);
    // What comes next is no such stream, or it follows the stream's end.
    bool is_damaged() const { return is_damaged_; }
    // A new stream begins.
    void reset();

 private:
    struct End {
        void operator()(z_stream* stream) const;
    };
    std::unique_ptr<z_stream, End> stream_;
    bool is_over_ = false, is_damaged_ = false;
};

}  // namespace dp
