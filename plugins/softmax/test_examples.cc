// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf softmax_examples([](Examples& examples) {
  const opdock_value rows = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     shorter = examples.array({5}),
                     half = examples.array({4, 6}, {}, Type::kFloat16);
  const opdock_value one = number(1), off = boolean(false);
  for (const char* op : {"softmax", "log_softmax"})
    examples.add({"softmax",
                  op,
                  {rows, one, none(), off},
                  {examples.gapped(4, 6)},
                  {{columns, one, none(), off},
                   {rows, one, columns, off},
                   {rows, one, shorter, off},
                   {rows, one, half, off},
                   {examples.misaligned({4, 6}), one, none(), off}}});
  for (const char* op : {"softmax_backward", "log_softmax_backward"})
    examples.add({"softmax",
                  op,
                  {rows, rows, one, off},
                  {examples.gapped(4, 6)},
                  {{columns, rows, one, off},
                   {rows, columns, one, off},
                   {shorter, rows, one, off},
                   {half, rows, one, off},
                   {examples.misaligned({4, 6}), rows, one, off}}});
});

}  // namespace opdock_test
