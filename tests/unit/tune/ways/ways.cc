// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <opdock/kernel_names.hpp>
#include <thread>

using namespace opdock;

static void plan(Plan&, Tensor, int64_t) {}

static void run(Call& call, Results results, Tensor, int64_t question) {
  const int32_t tuned = question == 0 ? -1 : call.tuned(static_cast<uint64_t>(question), 3);
  const int64_t way = tuned < 0 ? 0 : tuned;
  if (question == 9 && way == 2) throw Error(OPDOCK_UNSUPPORTED, "way 2 cannot be taken");
  results.set(0, way);
  if (call.is_cpu()) {
    constexpr int kMilliseconds[] = {6, 1, 3};
    std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds[way]));
  } else {
    call.launch(OPDOCK_KERNEL_INDEX("ways"), {way + 1, 1});
  }
}

OPDOCK_OP(ways, plan, nullptr, run)
