// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static const ExamplesOf norm_examples([](Examples& examples) {
  const opdock_value rows = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     vector = examples.array({6}), shorter = examples.array({5}),
                     other = examples.array({6, 4}),
                     half = examples.array({4, 6}, {}, Type::kFloat16);
  const opdock_value eps = number(1e-5);
  examples.add({"norm",
                "layer_norm",
                {rows, vector, vector, eps},
                {examples.gapped(4, 6)},
                {{columns, vector, vector, eps},
                 {rows, shorter, vector, eps},
                 {rows, vector, shorter, eps},
                 {rows, half, none(), eps}}});
  examples.add({"norm",
                "add_layer_norm",
                {rows, rows, vector, none(), eps},
                {examples.gapped(4, 6), examples.gapped(4, 6)},
                {{columns, rows, vector, none(), eps},
                 {rows, columns, vector, none(), eps},
                 {rows, other, vector, none(), eps},
                 {rows, half, vector, none(), eps}}});
  examples.add({"norm",
                "bias_add_layer_norm",
                {rows, rows, vector, vector, none(), eps, boolean(true)},
                {examples.gapped(4, 6), examples.gapped(4, 6)},
                {{columns, rows, vector, none(), none(), eps, boolean(true)},
                 {rows, columns, vector, none(), none(), eps, boolean(true)},
                 {rows, rows, shorter, none(), none(), eps, boolean(true)},
                 {rows, rows, half, none(), none(), eps, boolean(true)},
                 {rows, other, vector, none(), none(), eps, boolean(false)}}});
  examples.add({"norm",
                "rms_norm",
                {rows, vector, eps},
                {examples.gapped(4, 6)},
                {{columns, vector, eps},
                 {rows, shorter, eps},
                 {rows, half, eps},
                 {rows, vector, number(-1)}}});
  examples.add({"norm",
                "add_rms_norm",
                {rows, rows, vector, eps},
                {examples.gapped(4, 6), examples.gapped(4, 6)},
                {{columns, rows, vector, eps},
                 {rows, columns, vector, eps},
                 {rows, other, vector, eps},
                 {rows, half, vector, eps}}});
  examples.add({"norm",
                "layer_norm_backward",
                {rows, rows, vector, vector, rows, eps},
                {examples.gapped(4, 6), examples.output({6}), examples.output({6})},
                {{columns, rows, vector, vector, none(), eps},
                 {other, rows, vector, vector, none(), eps},
                 {rows, columns, vector, vector, none(), eps},
                 {rows, rows, shorter, vector, none(), eps},
                 {rows, rows, vector, shorter, none(), eps},
                 {rows, rows, vector, vector, half, eps}}});
  examples.add({"norm",
                "rms_norm_backward",
                {rows, rows, vector, none(), eps},
                {examples.gapped(4, 6), examples.output({6})},
                {{half, rows, vector, none(), eps},
                 {rows, rows, shorter, none(), eps},
                 {rows, rows, vector, other, eps},
                 {rows, rows, vector, none(), number(-1)}}});
});

}  // namespace opdock_test
