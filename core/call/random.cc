// SPDX-License-Identifier: Apache-2.0
#include "call/random.h"

#include <algorithm>
#include <cstring>

#include "schema/dtype.h"

namespace opdock {
namespace {

opdock_generator* argument(const opdock_function& function, const opdock_value* args) {
  for (uint32_t i = 0; i < function.num_params(); ++i) {
    if (args[i].tag == OPDOCK_TAG_GENERATOR) return args[i].as.generator;
  }
  return nullptr;
}

// Advances the offset atomically, as several threads may do at once; it wraps around at 2^64.
uint64_t reserve(opdock_generator* generator, uint64_t count) {
  return __atomic_fetch_add(&generator->offset, count, __ATOMIC_RELAXED);
}

}  // namespace

opdock_status take_random_numbers(Invocation* in, const opdock_value* args, uint64_t count) {
  opdock_generator* from =
      in->how.generator != nullptr ? in->how.generator : argument(in->function, args);
  if (from == nullptr) {
    from = in->function.resolver()->generator(in->target->device);
    if (from == nullptr) {
      return in->fail(OPDOCK_INVALID_ARGUMENT,
                      "found no generator of random numbers, wanted one in the call's options");
    }
  }
  if (!OPDOCK_HAS(from, opdock_generator, offset)) {
    return in->fail(OPDOCK_INVALID_ARGUMENT,
                    "found a generator of struct_size " + std::to_string(from->struct_size) +
                        ", wanted at least " +
                        std::to_string(offsetof(opdock_generator, offset) + sizeof from->offset) +
                        "; set it to sizeof(opdock_generator)");
  }
  const bool has_device_seed = OPDOCK_HAS(from, opdock_generator, device_seed);
  in->random = {sizeof in->random, 0, __atomic_load_n(&from->seed, __ATOMIC_RELAXED), 0,
                has_device_seed ? from->device_seed : nullptr};
  if (in->random.device_seed == nullptr) {
    bool is_capturing = false;
    const opdock_status status = in->is_capturing(&is_capturing);
    if (status != OPDOCK_OK) return status;
    if (is_capturing) {
      return in->fail(OPDOCK_UNSUPPORTED,
                      "found the stream being captured and a seed on the host, by which every "
                      "replay would draw "
                      "the same numbers, wanted one in device memory "
                      "(opdock_generator.device_seed); with torch "
                      "tensors pass no generator, so that torch's is drawn from");
    }
  } else if (in->target->driver == nullptr) {
    return in->fail(OPDOCK_INVALID_ARGUMENT,
                    "found a generator with a seed in device memory, wanted one for " +
                        to_text(in->target->device) + "; pass another");
  }
  in->random.offset = reserve(from, count);
  in->call.generator = &in->random;
  return OPDOCK_OK;
}

}  // namespace opdock
