// SPDX-License-Identifier: Apache-2.0
//
// --help as it was written: from 2.5 on, CLI11 wraps paragraphs anew and moves long options to the right.
#pragma once

namespace dp {

// `formatter`: CLI11's. Before 2.5 there is nothing to do.
template <typename Formatter>
void keep_help_lines(Formatter& formatter) {
    if constexpr (requires { formatter.enable_footer_formatting(false); }) {
        formatter.enable_description_formatting(false);
        formatter.enable_footer_formatting(false);
        formatter.right_column_width(1000);
        formatter.long_option_alignment_ratio(2.5F / static_cast<float>(formatter.get_column_width()));
    }
}

}  // namespace dp
