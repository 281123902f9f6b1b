// SPDX-License-Identifier: Apache-2.0
#include "record/packing.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace dp {
namespace {

// zlib.h, deflateInit2: (1 << (kWindowBits + 2)) + (1 << (kMemoryLevel + 9)) bytes are 144 KiB. With a window for which 48 KiB in
// all are enough, the record of a node with one rank is 3 % larger; more memory makes none smaller.
constexpr int kWindowBits = 15, kMemoryLevel = 5;
constexpr int kGzip = 16;  // added to the window's bits

// The sizes in a z_stream are 32 bits.
uInt uint_of(size_t size) {
    return static_cast<uInt>(std::min<size_t>(size, std::numeric_limits<uInt>::max()));
}

// zlib only reads there, but its type does not say so.
Bytef* bytes_at(std::string_view text) {
    return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

}  // namespace

void RecordPacker::End::operator()(z_stream* stream) const {
    deflateEnd(stream);
    delete stream;
}

RecordPacker::RecordPacker() : stream_(new z_stream{}) {
    if (deflateInit2(stream_.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits + kGzip, kMemoryLevel,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::bad_alloc();
}

// Z_PARTIAL_FLUSH is enough to unpack all that is there, and takes 3 bytes less than Z_SYNC_FLUSH, which ends at a whole byte.
std::string RecordPacker::pack(std::string_view bytes) {
    return deflated(bytes, Z_PARTIAL_FLUSH);
}

std::string RecordPacker::finish() {
    return deflated("", Z_FINISH);
}

std::string RecordPacker::deflated(std::string_view bytes, int flush) {
    std::string out;
    std::array<char, 4096> some;
    do {
        const uInt size = uint_of(bytes.size());
        const bool is_last = size == bytes.size();
        stream_->next_in = bytes_at(bytes);
        stream_->avail_in = size;
        bytes.remove_prefix(size);
        do {
            stream_->next_out = reinterpret_cast<Bytef*>(some.data());
            stream_->avail_out = some.size();
            deflate(stream_.get(), is_last ? flush : Z_NO_FLUSH);
            out.append(some.data(), some.size() - stream_->avail_out);
        } while (stream_->avail_out == 0);
    } while (!bytes.empty());
    return out;
}

void RecordUnpacker::End::operator()(z_stream* stream) const {
    inflateEnd(stream);
    delete stream;
}

RecordUnpacker::RecordUnpacker() : stream_(new z_stream{}) {
    // Of any window: other programs may have packed it again.
    if (inflateInit2(stream_.get(), MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
}

size_t RecordUnpacker::unpack(std::string_view& packed, std::span<char> out) {
    if (is_over_ || is_damaged_) {
        is_damaged_ |= !packed.empty();
        return 0;
    }
    const uInt in = uint_of(packed.size()), room = uint_of(out.size());
    stream_->next_in = bytes_at(packed);
    stream_->avail_in = in;
    stream_->next_out = reinterpret_cast<Bytef*>(out.data());
    stream_->avail_out = room;
    const int done = inflate(stream_.get(), Z_NO_FLUSH);
    is_over_ = done == Z_STREAM_END;
    // Z_BUF_ERROR: nothing was there to take.
    is_damaged_ = !is_over_ && done != Z_OK && done != Z_BUF_ERROR;
    packed.remove_prefix(in - stream_->avail_in);
    return room - stream_->avail_out;
}

void RecordUnpacker::reset() {
    inflateReset(stream_.get());
    is_over_ = is_damaged_ = false;
}

}  // namespace dp
