// SPDX-License-Identifier: Apache-2.0
//
// Page-locked host memory in which uploads wait for the GPU: batches that are read from files, and small ones, often of temporaries.
// From other memory CUDA copies only while the caller waits, or may read it after the call has returned, where the GPU can access it
// directly (GH200, HMM).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace dp::trainer {

// For one stream. Rooms are filled one after the other; one is free again once the stream has ended the copies from it, so that the
// host waits for the GPU only where it is three rooms ahead.
class UploadRooms {
 public:
    static constexpr std::size_t kLargest = std::size_t{4}
                                            << 20;  // bytes of a copy; larger ones are waited for

    UploadRooms() = default;
    ~UploadRooms() {
        for (const Room& room : rooms_)
            if (room.left != nullptr) cudaEventDestroy(room.left);
        if (memory_ != nullptr) cudaFreeHost(memory_);
    }
    UploadRooms(const UploadRooms&) = delete;
    UploadRooms& operator=(const UploadRooms&) = delete;

    // Without memory that it can lock (a container) it has no room for anything.
    void make() {
        void* memory = nullptr;
        if (cudaHostAlloc(&memory, kLargest * rooms_.size(), cudaHostAllocDefault) != cudaSuccess)
            return void(cudaGetLastError());  // else the next call that asks for it would be blamed
        memory_ = static_cast<std::byte*>(memory);
        for (Room& room : rooms_)
            if (cudaEventCreateWithFlags(&room.left, cudaEventDisableTiming) != cudaSuccess) forget(room);
    }

    bool has_room_for(std::size_t bytes) const { return memory_ != nullptr && bytes <= kLargest; }
    // Makes *place a copy of these bytes, for which there must be room, to be copied from by the next work of the stream.
    cudaError_t copy(const void* from, std::size_t bytes, cudaStream_t stream, const void** place) {
        if (bytes > kLargest - used_) {
            const cudaError_t result = take_next(stream);
            if (result != cudaSuccess) return result;
        }
        std::byte* const to = memory_ + now_ * kLargest + used_;
        std::memcpy(to, from, bytes);
        constexpr std::size_t kAlignment = 64;
        used_ = std::min(kLargest, used_ + (bytes + kAlignment - 1) / kAlignment * kAlignment);
        *place = to;
        return cudaSuccess;
    }

 private:
    struct Room {
        cudaEvent_t left = nullptr;  // comes once the stream has ended the copies from it
        bool is_left = false;
    };
    std::byte* memory_ = nullptr;
    std::array<Room, 4> rooms_ = {};
    std::size_t now_ = 0, used_ = 0;  // which room, and how much of it

    cudaError_t take_next(cudaStream_t stream) {
        Room& last = rooms_[now_];
        // CUDA may refuse the stream of a GPU's part, as stream_timer.hpp says.
        if (last.left != nullptr && cudaEventRecord(last.left, stream) != cudaSuccess) forget(last);
        last.is_left = true;
        now_ = (now_ + 1) % rooms_.size();
        used_ = 0;
        Room& room = rooms_[now_];
        if (!room.is_left) return cudaSuccess;
        return room.left != nullptr ? cudaEventSynchronize(room.left) : cudaStreamSynchronize(stream);
    }
    static void forget(Room& room) {
        cudaGetLastError();
        if (room.left != nullptr) cudaEventDestroy(room.left);
        room.left = nullptr;
    }
};

}  // namespace dp::trainer
