// SPDX-License-Identifier: Apache-2.0
//
// What the values of --data-split, --data and prepare's --tokenizer may be. option_rows.cpp declares the options with these.
#pragma once

#include "trainer/command_line/values.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

// "969,30,1", of which the last may be left out.
Format<TrainTestRest> train_test_rest();
// "wiki:0.7,code:0.3"
Format<DataMix> data_mix();
// "gpt2", "bytes", or a file that is there
Format<std::string> tokenizer_name();

}  // namespace dp::trainer
