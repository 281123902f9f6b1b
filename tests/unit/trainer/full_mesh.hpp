// SPDX-License-Identifier: Apache-2.0
//
// Gloo's stores as both its versions take them: by reference before 2025, by shared pointer since.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>
#include <type_traits>

namespace dp::trainer {

using GlooStorePointer = std::shared_ptr<::gloo::rendezvous::Store>;

// Does not own the store.
inline GlooStorePointer pointer_to(::gloo::rendezvous::Store& store) {
    return {std::shared_ptr<void>(), &store};
}

template <typename Prefix = ::gloo::rendezvous::PrefixStore>
Prefix prefixed(const std::string& name, ::gloo::rendezvous::Store& store) {
    if constexpr (std::is_constructible_v<Prefix, std::string, GlooStorePointer>)
        return Prefix(name, pointer_to(store));
    else
        return Prefix(name, store);
}

template <typename Mesh = ::gloo::rendezvous::Context>
void connect_full_mesh(Mesh& mesh, ::gloo::rendezvous::Store& store) {
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = ::gloo::transport::tcp::CreateDevice(attributes);
    if constexpr (requires { mesh.connectFullMesh(pointer_to(store), device); })
        mesh.connectFullMesh(pointer_to(store), device);
    else
        mesh.connectFullMesh(store, device);
}

}  // namespace dp::trainer
