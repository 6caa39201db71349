// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf noop_examples([](Examples& examples) {
  const opdock_value rows = examples.array({4, 6});
  examples.add({"noop", "noop", {rows}, {}, {}, false});
  examples.add({"noop", "noop_launch", {rows}, {}, {}});
});

}  // namespace opdock_test
