// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf convert_copy_examples([](Examples& examples) {
  const opdock_value src = examples.array({4, 6}), other = examples.array({6, 4}),
                     half = examples.array({4, 6}, {}, Type::kFloat16),
                     misaligned = examples.misaligned({4, 6});
  for (const char* op : {"copy_to_device", "copy_to_host"}) {
    // The CPU converts in one case, the GPU in the other.
    for (const Type type : {Type::kFloat16, Type::kFloat64}) {
      Array* const dst = examples.output({4, 6}, {}, type);
      const bool is_larger = type == Type::kFloat64;
      examples.add({.plugin = "convert_copy",
                    .op = op,
                    .args = {dst->value(), src},
                    .outputs = {},
                    .invalid_args = {{dst->value(), other}, {dst->value(), misaligned}},
                    .launches = is_larger == (op == std::string("copy_to_device")),
                    .drives = true,
                    .written = {dst}});
    }
    Array* const same = examples.output({4, 6}, {}, Type::kFloat16);
    examples.add({.plugin = "convert_copy",
                  .op = op,
                  .args = {same->value(), half},
                  .outputs = {},
                  .invalid_args = {},
                  .launches = false,
                  .drives = true,
                  .written = {same}});
  }
});

}  // namespace opdock_test
