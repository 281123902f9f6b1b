// SPDX-License-Identifier: Apache-2.0
//
// Gloo's transport with waits that can be ended at any moment. When a connection closes, Gloo itself (2022 to
// 2025, Pair::signalException in tcp/pair.cc) wakes those who wait for a message that has not begun, but not
// those of whose message a part has been sent or received: they would wait until their timeout. Nor does it wake who waits for a third
// rank, which waits for the dead one.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/context.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace dp {

// The buffers that belong to one context. All methods may be called from any thread.
class InterruptibleWaits {
 public:
    using Buffer = ::gloo::transport::UnboundBuffer;

    void add(Buffer* buffer) {
        const std::lock_guard lock(mutex_);
        buffers_.insert(buffer);
    }
    void remove(Buffer* buffer) {
        const std::lock_guard lock(mutex_);
        buffers_.erase(buffer);
    }
    // Ends every wait now and from now on.
    void interrupt() {
        const std::lock_guard lock(mutex_);
        is_interrupted_ = true;
        for (Buffer* buffer : buffers_) {
            buffer->abortWaitSend();
            buffer->abortWaitRecv();
        }
    }
    void throw_if_interrupted() {
        const std::lock_guard lock(mutex_);
        if (is_interrupted_)
            throw ::gloo::IoException("a rank of the mesh has died, or the step or its generation has ended");
    }

 private:
    std::mutex mutex_;
    std::set<Buffer*> buffers_;
    bool is_interrupted_ = false;
};

class InterruptibleBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
    using Milliseconds = std::chrono::milliseconds;

    InterruptibleBuffer(std::unique_ptr<UnboundBuffer> buffer, std::shared_ptr<InterruptibleWaits> waits)
        : UnboundBuffer(buffer->ptr, buffer->size), buffer_(std::move(buffer)), waits_(std::move(waits)) {
        waits_->add(buffer_.get());
    }
    ~InterruptibleBuffer() override { waits_->remove(buffer_.get()); }

    bool waitRecv(int* rank, Milliseconds timeout) override {
        return unless_interrupted([&] { return buffer_->waitRecv(rank, timeout); });
    }
    bool waitSend(int* rank, Milliseconds timeout) override {
        return unless_interrupted([&] { return buffer_->waitSend(rank, timeout); });
    }
    void abortWaitRecv() override { buffer_->abortWaitRecv(); }
    void abortWaitSend() override { buffer_->abortWaitSend(); }
    void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        unless_interrupted([&] {
            buffer_->send(to, slot, offset, bytes);
            return true;
        });
    }
    void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        unless_interrupted([&] {
            buffer_->recv(from, slot, offset, bytes);
            return true;
        });
    }
    void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        unless_interrupted([&] {
            buffer_->recv(std::move(from), slot, offset, bytes);
            return true;
        });
    }

 private:
    std::unique_ptr<UnboundBuffer> buffer_;
    std::shared_ptr<InterruptibleWaits> waits_;

    // An interruption is what is told, whatever Gloo makes of connections that were closed meanwhile. A wait that its
    // user has aborted returns false.
    template <typename Call>
    bool unless_interrupted(const Call& call) {
        waits_->throw_if_interrupted();
        bool done = true;
        try {
            done = call();
        } catch (...) {
            waits_->throw_if_interrupted();
            throw;
        }
        if (!done) waits_->throw_if_interrupted();
        return done;
    }
};

// Stands in front of a context whose pairs are connected. Thread-safe as that one.
class InterruptibleContext final : public ::gloo::transport::Context {
 public:
    explicit InterruptibleContext(std::shared_ptr<::gloo::transport::Context> context)
        : Context(context->rank, context->size), context_(std::move(context)) {}

    // From any thread.
    void interrupt() { waits_->interrupt(); }

    void set_patience(std::chrono::milliseconds patience) {
        setTimeout(patience);
        context_->setTimeout(patience);
    }

    std::unique_ptr<::gloo::transport::Pair>& getPair(int peer) override { return context_->getPair(peer); }
    std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override {
        return context_->createPair(peer);
    }
    std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                          std::size_t bytes) override {
        return std::make_unique<InterruptibleBuffer>(context_->createUnboundBuffer(data, bytes), waits_);
    }

 private:
    std::shared_ptr<::gloo::transport::Context> context_;
    std::shared_ptr<InterruptibleWaits> waits_ = std::make_shared<InterruptibleWaits>();
};

}  // namespace dp
