// Attention for plugins: extension "opdock.attention/1".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/attention.h"

namespace opdock {

// The extension's table; static.
const opdock_attention_table* attention_extension();

}  // namespace opdock
