// SPDX-License-Identifier: Apache-2.0
//
// Operations of the CPU device that take more than a loop, by their files. Shapes and formulas as in
// device.hpp. cpu.cpp calls them.
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// ---- attention.cpp. False if oneDNN refuses a product.
bool attention(const Attention& a, In qkv, Out y, Out sums);
bool attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv);

// ---- losses.cpp
void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                           Out d_logits);
void softmax_part(In logits, Shard words, In labels, Out notes);
void softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale, InOut metrics,
                                    Out d_logits);
void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction);
void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits);

// ---- normalisation.cpp
void layer_norm(In x, In w, In b, Out y, Out saved);
void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db);
void add_channels(ImageShape shape, In b, InOut y);
void sum_channels(ImageShape shape, In dy, Out db);
void batch_norm_sums(const BatchNorm& norm, In x, Out sums);
void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b, InOut running, Out saved,
                Out y);
void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y);
void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums, Out dw,
                              Out db);
void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows, InOut dx);

}  // namespace dp::trainer::cpu
