// SPDX-License-Identifier: Apache-2.0
//
// Sequence kernels except attention, as functions that queue them on a stream: see kernels.hpp for the
// conventions and device.hpp for what each computes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

void gelu(const Tensor& x, const Tensor& y, cudaStream_t stream);
void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, cudaStream_t stream);

void embed(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y,
           cudaStream_t stream);
void embed_backward(const Tensor& tokens, const Tensor& dy, const Tensor& d_table, const Tensor& d_positions,
                    Workspace& workspace, cudaStream_t stream);

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y, const Tensor& saved,
                cudaStream_t stream);
void layer_norm_backward(const Tensor& x, const Tensor& w, const Tensor& saved, const Tensor& dy,
                         const Tensor& dx, const Tensor& dw, const Tensor& db, Workspace& workspace,
                         cudaStream_t stream);

}  // namespace dp::trainer::kernels
