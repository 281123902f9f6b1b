// SPDX-License-Identifier: Apache-2.0
//
// Texts that --data-dir or --data names: *.txt, each a document, and *.jsonl, whose lines are documents. They are tokenized once, and the
// tokens are kept in the cache. commands/preparation.cpp calls it.
#pragma once

#include <filesystem>
#include <optional>

#include "trainer/data/load.hpp"

namespace dp::trainer {

struct Corpus {
    std::filesystem::path where;  // a file, or a directory and those below it
    std::vector<std::filesystem::path> files;
};
// Nothing where there are no texts, or tokens are. Names that begin with a dot are passed over, and directories of `trainer prepare`.
Result<std::optional<Corpus>> find_corpus(const std::filesystem::path& where);

struct TokenizedCorpus {
    std::filesystem::path directory;  // as `trainer prepare` would leave it
    std::string note;                 // for people
};
// Where a tokenizer may be, besides where the texts are: the first that there is counts.
struct TokenizerSources {
    std::optional<std::filesystem::path> given = {};    // --tokenizer: before one beside the texts
    std::optional<std::filesystem::path> weights = {};  // --init-from: after it
    bool bytes = false;                                 // none of them: bytes
};
// With the tokenizer whose file is there (open_tokenizer_file()), else of bytes. Each document is behind an end of text. Done
// again if the files have other names, sizes or dates.
Result<TokenizedCorpus> tokenize_corpus(const Corpus& corpus, const std::filesystem::path& cache,
                                        BadSamples bad, const TokenizerSources& sources = {});

}  // namespace dp::trainer
