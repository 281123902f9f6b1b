// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of the CPU device: oneDNN's sgemm, on the threads of everything else here (and on one
// within a loop that already uses them all).
#pragma once

#include <dnnl.h>

#include <cstdint>

namespace dp::trainer::cpu {

enum class Form { plain, transposed };

// A row-major matrix in memory: the first number, and the stride between rows.
struct Operand {
    const float* data;
    std::int64_t stride;
    Form form = Form::plain;
};

// c [rows, columns] = beta c + alpha op(a) op(b), summed over `inner`. False where oneDNN refuses.
inline bool multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, float alpha, Operand a,
                     Operand b, float beta, float* c, std::int64_t c_stride) {
    auto letter = [](Form form) { return form == Form::transposed ? 'T' : 'N'; };
    return dnnl_sgemm(letter(a.form), letter(b.form), rows, columns, inner, alpha, a.data, a.stride, b.data,
                      b.stride, beta, c, c_stride) == dnnl_success;
}

}  // namespace dp::trainer::cpu
