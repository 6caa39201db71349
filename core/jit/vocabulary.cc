// SPDX-License-Identifier: Apache-2.0
#include "jit/vocabulary.h"

#include "base/mutex.h"
#include "vocabulary_text.h"

namespace opdock {

const std::vector<SourceText>& vocabulary() {
  const NoFork no_fork;
  static const std::vector<SourceText>* const all = [] {
    auto* made = new std::vector<SourceText>;
    for (const EmbeddedHeader& header : kVocabulary)
      made->push_back(
          {header.name, Text::built_in(header.text), header.digest, header.include_lines});
    return made;
  }();
  return *all;
}

}  // namespace opdock
