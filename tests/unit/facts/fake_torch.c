/* Stands in for libtorch: only its version, 2.13.1. SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

uint64_t aoti_torch_abi_version(void) {
  return (uint64_t)2 << 56 | (uint64_t)13 << 48 | (uint64_t)1 << 40;
}
