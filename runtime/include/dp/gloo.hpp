// SPDX-License-Identifier: Apache-2.0
//
// libdp-gloo: a Gloo full mesh between the ranks of a world, for CPU collectives. A library of its own, so
// that libdp needs no Gloo. Errors come back as values; Gloo's exceptions are caught inside.
#ifndef DP_GLOO_HPP
#define DP_GLOO_HPP

#include <gloo/context.h>
#include <gloo/rendezvous/store.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dp/dp.hpp"

namespace dp {

// Gloo's rendezvous store on top of the step's store. Keys get `prefix` in front. Throws gloo::IoException,
// as Gloo's own stores do, because Gloo calls it. Does not own the context, which must outlive it.
class GlooStore : public ::gloo::rendezvous::Store {
 public:
    GlooStore(Context& context, std::string prefix) : context_(context), prefix_(std::move(prefix)) {}
    void set(const std::string& key, const std::vector<char>& data) override;
    std::vector<char> get(const std::string& key) override;
    void wait(const std::vector<std::string>& keys) override;
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
    Context& context_;
    std::string prefix_;
};

// A full mesh between the ranks of a group over TCP: every member calls; a rank's number in the mesh is its
// place among the members. Listens on the node's own address (dp_world.node_addr). `timeout` bounds the
// connecting and becomes the mesh's collective timeout (Gloo counts the time of a suspended step, too; 30
// minutes without one). When the step is being ended, what waits in the mesh fails at once
// (gloo::IoException). The context must outlive the mesh.
Result<std::shared_ptr<::gloo::Context>> gloo_mesh(Context& context, const Group& group,
                                                   Timeout timeout = {});

// The same of the whole world, whose ranks call it with the same name.
Result<std::shared_ptr<::gloo::Context>> gloo_full_mesh(Context& context, const std::string& name,
                                                        Timeout timeout = {});

}  // namespace dp

#endif
