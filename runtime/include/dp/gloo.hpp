// SPDX-License-Identifier: Apache-2.0
//
// libdp-gloo: a Gloo full mesh between the ranks of a world, for CPU collectives. A separate library, so
// that libdp does not need Gloo. Errors are values; Gloo's exceptions are caught inside. Threads as in
// dp/dp.h. Since 0.1.
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

// Gloo's rendezvous store on top of the step's store. Puts `prefix` before each key. Throws
// gloo::IoException, as Gloo's own stores do, because Gloo calls it. Does not own the context, which
// must outlive it.
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

// A full mesh over TCP between the ranks of a group. Every member calls; a rank's number in the mesh is its
// place among the members. Listens on the node's own address (dp_world.node_addr). `timeout` bounds
// connecting and becomes the mesh's collective timeout; without it, collectives time out after 30 minutes.
// Gloo also counts the time in which a step is suspended. When a member has died, or the step, or its generation (dp_rejoin), is being
// ended, calls that wait in the mesh, and later ones, fail at once (gloo::IoException); the other members make a new one. The context must outlive the mesh.
Result<std::shared_ptr<::gloo::Context>> gloo_mesh(Context& context, const Group& group,
                                                   Timeout timeout = {});

// The same for the whole world; all ranks give the same name.
Result<std::shared_ptr<::gloo::Context>> gloo_full_mesh(Context& context, const std::string& name,
                                                        Timeout timeout = {});

}  // namespace dp

#endif
